"""Real children that answer, crash, hang, flood, and outlive their parent."""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nodedoctor
from nodedoctor.children import child_process
from nodedoctor.children.output_bounds import KEPT
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.model import Observation, Outcome

pytestmark = pytest.mark.race


def run(*argv: str, timeout: float = 10, **more: object) -> Observation:
    return asyncio.run(child_process.run("it", Command(argv, **more), timeout))  # type: ignore[arg-type]


def python(code: str, timeout: float = 10, **more: object) -> Observation:
    return run(sys.executable, "-I", "-S", "-c", code, timeout=timeout, **more)


def test_an_answer_keeps_text_code_time_and_stderr():
    seen = python("import sys; print('yes'); print('but', file=sys.stderr); sys.exit(3)")
    assert (seen.outcome, seen.text, seen.rc, seen.note) == (Outcome.OK, "yes\n", 3, "but")
    assert seen.seconds > 0 and seen.argv[0] == sys.executable


@pytest.mark.parametrize("name", ["no-such-command-here", "/no/such/command"])
def test_a_command_that_is_not_there_is_missing(name):
    seen = run(name, "--version")
    assert seen.outcome is Outcome.MISSING
    assert name in seen.note


def test_a_command_that_may_not_be_run_is_denied(tmp_path):
    script = tmp_path / "tool"
    script.write_text("#!/bin/sh\n")
    assert run(str(script)).outcome is Outcome.DENIED


@pytest.mark.parametrize("data", [None, b"some"])
def test_a_start_that_is_cancelled_ends_with_its_child(data: bytes | None):
    """At any turn of the event loop, also when the loop ends and cancels what asyncio itself has begun."""
    word = f"97{os.getpid()}"

    async def left_after(turns: int) -> None:
        task = asyncio.create_task(child_process.run("it", Command(("sleep", word), stdin=data), 60))
        for _ in range(turns):
            await asyncio.sleep(0)
        assert not task.done()

    for turns in range(12):
        asyncio.run(left_after(turns))
    assert gone(word)


@pytest.mark.slow
def test_a_start_that_is_cancelled_alone_ends_with_its_child():
    word = f"96{os.getpid()}"

    async def cancelled_after(turns: int) -> None:
        task = asyncio.create_task(child_process.run("it", Command(("sleep", word)), 60))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await asyncio.sleep(0.2)

    for turns in range(1, 10):
        asyncio.run(cancelled_after(turns))
    assert gone(word)


def gone(word: str) -> bool:
    """Whether no process has a word among its arguments, or none soon."""
    ends = time.monotonic() + 20
    while subprocess.run(["pgrep", "-f", f"sleep {word}"], stdout=subprocess.DEVNULL).returncode == 0:
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


def test_exit_127_of_the_command_itself_is_an_answer():
    assert run("sh", "-c", "echo env: no >&2; exit 0").outcome is Outcome.OK
    seen = run("sh", "-c", "exit 127")
    assert (seen.outcome, seen.rc) == (Outcome.OK, 127)


def test_a_crash_names_the_signal():
    seen = python("import os; print('so far', flush=True); os.kill(os.getpid(), 11)")
    assert (seen.outcome, seen.rc, seen.text) == (Outcome.CRASH, -11, "so far\n")
    assert "SIGSEGV" in seen.note


def test_a_hang_is_killed_and_what_it_said_is_kept():
    began = time.monotonic()
    seen = python(
        "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)];"
        "print('half', flush=True); time.sleep(60)",
        timeout=0.3,
    )
    assert seen.outcome is Outcome.TIMEOUT
    assert seen.text == "half\n"
    assert "state S" in seen.note
    assert time.monotonic() - began < 5


@pytest.mark.slow
def test_a_child_that_survives_sigkill_is_left_behind(monkeypatch):
    spared = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: spared.append(pid))
    monkeypatch.setattr(os, "kill", lambda pid, number: spared.append(pid))
    began = time.monotonic()
    seen = python("import time; time.sleep(8)", timeout=0.2)
    took = time.monotonic() - began
    monkeypatch.undo()
    assert seen.outcome is Outcome.STUCK
    # Whatever an earlier test left is ended when it is collected, by the same calls.
    (pid,) = {pid for pid in spared if f"pid {pid} state S" in seen.note}
    os.killpg(pid, signal.SIGKILL)
    assert took < 4, "it waited for the child"


def test_a_grandchild_that_keeps_the_pipe_costs_a_moment_only():
    began = time.monotonic()
    seen = run("sh", "-c", "echo answer; sleep 30 & exit 0")
    assert (seen.outcome, seen.text) == (Outcome.OK, "answer\n")
    assert "keeps its output open" in seen.note
    assert time.monotonic() - began < 10


def test_a_flood_keeps_its_tail():
    line = "x" * 1023
    seen = python(f"for i in range(12 * 1024): print('{line}')\nprint('the end')")
    assert seen.truncated
    assert len(seen.text) <= KEPT
    assert seen.text.endswith("the end\n")


def test_binary_garbage_is_text():
    seen = python("import sys; sys.stdout.buffer.write(bytes(range(256)))")
    assert seen.outcome is Outcome.OK
    assert "\ufffd" in seen.text


def test_a_held_child_answers_at_the_end_of_its_output_and_lives_until_closed():
    async def hold() -> tuple[Observation, bool, bool]:
        code = "import os, sys; print(os.getpid(), flush=True); os.close(1); sys.stdin.read()"
        running = await child_process.start("it", Command((sys.executable, "-I", "-c", code), hold=True))
        assert isinstance(running, child_process.Running)
        seen = await running.answer(10)
        alive = os.path.exists(f"/proc/{seen.text.strip()}")
        running.close()
        for _ in range(100):
            if running._pipes.exited.done():
                break
            await asyncio.sleep(0.02)
        return seen, alive, running._pipes.exited.done()

    seen, alive, ended = asyncio.run(hold())
    assert seen.outcome is Outcome.OK
    assert alive and ended


def test_stdin_reaches_the_child():
    assert run("cat", stdin=b"fed").text == "fed"


def test_tools_in_sbin_are_found_and_the_locale_is_plain(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    seen = run("sh", "-c", "echo $PATH $LC_ALL")
    assert "/usr/sbin" in seen.text and "C.UTF-8" in seen.text


@pytest.mark.slow
def test_nothing_is_printed_when_the_loop_ends_with_children_about():
    code = (
        "import asyncio, os\n"
        "os.killpg = os.kill = lambda *a: None\n"
        "from nodedoctor.children import child_process as command\n"
        "from nodedoctor.declare.registry import Command\n"
        "seen = asyncio.run(command.run('it', Command(('sleep', '3')), 0.1))\n"
        "print(seen.outcome.value)\n"
    )
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("stuck\n", "")


def test_a_held_child_that_crashes_is_a_crash():
    async def hold() -> Observation:
        code = "import os; print('half', flush=True); os.kill(os.getpid(), 11)"
        running = await child_process.start("it", Command((sys.executable, "-I", "-c", code), hold=True))
        assert isinstance(running, child_process.Running)
        try:
            return await running.answer(10)
        finally:
            running.close()

    seen = asyncio.run(hold())
    assert (seen.outcome, seen.text) == (Outcome.CRASH, "half\n")


ASK = "import sys, nodedoctor.children.programs as c;"
ASK += "print(*c.child(*sys.argv[1:], packages=True), sep='\\n')"
NVML = "raise ImportError('here: ' + __file__)"


def told(folder: Path, *path: str, **env: str) -> list[str]:
    """The argv of a child that needs packages, made by a process that finds them along a path only."""
    argv = [sys.executable, "-S", "-c", ASK, "gpu/nvml"]
    search = os.pathsep.join([str(Path(nodedoctor.__file__).parent.parent), *path])
    env = {"PATH": os.defpath, "PYTHONPATH": search, **env}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_a_child_is_told_where_we_found_its_packages(tmp_path):
    (tmp_path / "one" / "psutil").mkdir(parents=True)
    (tmp_path / "one" / "psutil" / "__init__.py").write_text("raise SystemExit('psutil was imported')")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "pynvml.py").write_text(NVML)
    argv = told(tmp_path, str(tmp_path / "one"), "two")
    assert argv[1:5] == ["-I", "-S", "-X", f"packages={tmp_path}/one:{tmp_path}/two"]
    assert f"here: {tmp_path}/two/pynvml.py" in run(*argv).text


def test_a_child_takes_packages_from_nowhere_else(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "pynvml.py").write_text(NVML)
    unaware, aware = told(tmp_path), told(tmp_path, str(theirs))
    (theirs / "json.py").write_text("raise SystemExit('before the standard library')")
    env = {"PYTHONPATH": str(theirs), "PYTHONUSERBASE": str(theirs)}
    assert unaware[1:] == ["-I", "-S", child("gpu/nvml")[-1]]
    assert "No module named 'pynvml'" in run(*unaware, env=env).text
    assert "here:" in run(*aware, env=env).text


def test_a_child_finds_the_packages_of_this_very_environment():
    for name in ("psutil", "pynvml"):
        code = f"import sys; sys.path.append({str(Path(nodedoctor.__file__).parent / 'probes')!r});"
        code += f"from packages import add_folders; add_folders(); import {name}; print({name}.__file__)"
        program = child("gpu/nvml", packages=True)
        seen = run(*program[:-1], "-c", code)
        assert seen.text.strip() == str(importlib.util.find_spec(name).origin)


@pytest.mark.slow
def test_the_stdin_of_a_tied_child_ends_only_when_it_is_let_go(tmp_path):
    told = tmp_path / "told"
    waiter = (
        f"import sys; print(sys.stdin.readline(), flush=True); sys.stdin.read(); open({str(told)!r}, 'w')"
    )
    start = f"subprocess.Popen([sys.executable, '-Ic', {waiter!r}], start_new_session=True)"
    script = f"import subprocess, sys; {start}.wait(1)"
    seen = python(script, stdin=b"first\n", tied=True)
    assert "first" in seen.text and seen.rc == 1, "it waited for more, and nothing came"
    for _ in range(500):
        if told.exists():
            return
        time.sleep(0.01)
    raise AssertionError("its stdin was left open")


def test_without_psutil_one_line_says_so():
    seen = run(*child("host/processes"))
    assert (seen.rc, seen.text, seen.note) == (1, "", "psutil cannot be loaded: No module named 'psutil'")
