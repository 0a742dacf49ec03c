"""Real children that speak for many: floods, both pipes, a reader who is late, an end that is asked for."""

import asyncio
import contextlib
import os
import sys
import time

import pytest

from nodedoctor.children.child_stream import ChildStream, listen
from nodedoctor.declare.registry import Command

pytestmark = pytest.mark.race


def python(code: str, **more: object) -> Command:
    return Command((sys.executable, "-I", "-S", "-c", code), **more)  # type: ignore[arg-type]


def heard(command: Command, slowly: float = 0.0) -> list[tuple[int, str]]:
    async def collect() -> list[tuple[int, str]]:
        lines = []
        async for line in listen(command):
            lines.append(line)
            if slowly and len(lines) % 1000 == 0:
                await asyncio.sleep(slowly)
        return lines

    return asyncio.run(collect())


def test_no_line_of_a_flood_is_lost_however_late_the_reader():
    lines = heard(python("for n in range(50_000): print(n)"), slowly=0.01)
    assert [text for fd, text in lines if fd == 1] == [str(n) for n in range(50_000)]


@pytest.mark.slow
def test_a_late_reader_holds_the_child_back(tmp_path):
    """Else the answers of a thousand nodes would wait in our memory."""

    async def looked() -> tuple[bool, int, bool]:
        said = f"import os; os.write(1, b'x\\n' * 500_000); open({str(tmp_path / 'done')!r}, 'w')"
        async with contextlib.aclosing(listen(python(said))) as lines:
            await anext(lines)
            await asyncio.sleep(0.5)
            early = (tmp_path / "done").exists()
            count = 1 + len([line async for line in lines])
        return early, count, (tmp_path / "done").exists()

    assert asyncio.run(looked()) == (False, 500_000, True)


def test_lines_of_both_pipes_and_a_last_one_without_its_end():
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.stdout.write('cut')"
    lines = heard(python(code))
    assert sorted(lines) == [(1, "cut"), (1, "out"), (2, "err")]


def test_what_has_come_and_was_not_asked_for_can_be_taken_at_the_end():
    async def taken() -> list[list[tuple[int, str]]]:
        talk = await ChildStream.start(python("import sys; print('out'); print('err', file=sys.stderr)"))
        lines: list[tuple[int, str]] = []
        ends = time.monotonic() + 60
        while len(lines) < 2 and time.monotonic() < ends:
            await asyncio.sleep(0.01)
            lines += talk.take_waiting()
        rest = talk.take_waiting()
        await talk.leave()
        return [sorted(lines), rest]

    assert asyncio.run(taken()) == [[(1, "out"), (2, "err")], []]


def test_it_ends_although_a_grandchild_keeps_the_pipe():
    began = time.monotonic()
    assert (1, "mine") in heard(Command(("sh", "-c", "sleep 30 & echo mine")))
    assert time.monotonic() - began < 20


def test_a_child_that_is_left_may_say_goodbye(tmp_path):
    trace = tmp_path / "trace"
    command = Command(
        ("sh", "-c", f"trap 'echo left >{trace}; exit' TERM; echo here; while :; do sleep 0.05; done")
    )

    async def leave(parting: float) -> None:
        async with contextlib.aclosing(listen(command, parting=parting)) as lines:
            await anext(lines)

    asyncio.run(leave(0))
    assert not trace.exists()
    asyncio.run(leave(10))
    assert trace.read_text() == "left\n"


def test_a_child_that_ignores_that_is_killed():
    code = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True);"
        "time.sleep(60)"
    )

    async def leave() -> int:
        async with contextlib.aclosing(listen(python(code), parting=0.2)) as lines:
            return int((await anext(lines))[1])

    pid = asyncio.run(leave())
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/stat") as stat:
            if " Z " not in stat.read():
                time.sleep(0.05)
                continue
        break
    else:
        pytest.fail("it still runs")


def test_it_reads_what_it_is_given_and_a_tied_one_learns_that_it_is_left(tmp_path):
    assert heard(Command(("cat",), stdin=b"one\ntwo\n")) == [(1, "one"), (1, "two")]
    trace = tmp_path / "trace"
    command = Command(
        ("sh", "-c", f"echo here; read line; cat; echo end >{trace}"), stdin=b"line\n", tied=True
    )

    async def leave() -> bool:
        async with contextlib.aclosing(listen(command)) as lines:
            await anext(lines)
            await asyncio.sleep(0.2)
            return trace.exists()

    assert not asyncio.run(leave())


def test_what_cannot_be_started_says_so(monkeypatch):
    monkeypatch.setattr(os.path, "exists", lambda path: False)  # no env(1): our own exec
    with pytest.raises(OSError):
        heard(Command(("/no/such/command",)))


def test_a_tied_child_is_told_by_the_end_of_its_stdin_first(tmp_path):
    trace = tmp_path / "trace"
    script = f"trap 'echo signal >>{trace}; exit' TERM; echo here; cat; echo end >>{trace}"

    async def leave() -> None:
        command = Command(("sh", "-c", script), stdin=b"", tied=True)
        async with contextlib.aclosing(listen(command, parting=20)) as lines:
            await anext(lines)

    asyncio.run(leave())
    assert trace.read_text() == "end\n"
