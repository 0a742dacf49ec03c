"""Our programs as forks of one interpreter: they answer, crash, hang and end like any other child."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodedoctor.children import child_process, fork_server, programs
from nodedoctor.children.fork_server import ForkServer
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.model import Observation, Outcome

pytestmark = pytest.mark.race

CODE = """import os, signal, sys, time
def main():
    {}
if __name__ == "__main__":
    main()
"""


@pytest.fixture
def server():
    served = ForkServer()
    yield served
    served.close()


def program(folder: Path, code: str, *words: str) -> Command:
    """A program as ours are: a module with a `main`."""
    file = folder / f"told{len(list(folder.iterdir()))}.py"
    file.write_text(CODE.format(code))
    return Command((sys.executable, "-I", "-S", str(file), *words))


async def answer(asked: Command, server: ForkServer | None, timeout: float = 20) -> Observation:
    running = await child_process.start("it", asked, server)
    assert isinstance(running, child_process.Running)
    try:
        return await running.answer(timeout)
    finally:
        running.close()


def ask(server: ForkServer | None, *commands: Command, timeout: float = 20) -> list[Observation]:
    """The answers of several programs that run at the same time."""

    async def together() -> list[Observation]:
        return list(await asyncio.gather(*(answer(asked, server, timeout) for asked in commands)))

    return asyncio.run(together())


TOLD = {
    "arguments": "print(sys.argv[1:], 'ü'); sys.exit('no: ' + sys.argv[1])",
    "streams": "[s.reconfigure(errors='replace') for s in (sys.stdout, sys.stderr)]; print('ü')",
    "buffers": "print([(s.line_buffering, s.errors, s.encoding) for s in (sys.stdout, sys.stderr)])",
    "surroundings": "print(os.getcwd(), sorted({*os.environ} - {'NODEDOCTOR_RUN'})); sys.stderr.write('but')",
    "isolation": "print(sys.stdin.read() == '', sys.flags.isolated, sys.flags.no_site); sys.exit(7)",
    "packages": "print([p for p in sys.path if p.endswith('-packages')], sys._xoptions)",
    "session": "print(os.getsid(0) == os.getpid() == os.getpgrp())",
    "end": "print('half'); raise SystemExit",
    "descriptors": "print(sorted(os.listdir('/proc/self/fd')))",
    "signals": "print(signal.getsignal(signal.SIGCHLD), signal.set_wakeup_fd(-1))",
    "child": "print(os.waitpid(os.fork() or os._exit(3), 0)[1])",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("what", TOLD)
def test_a_fork_answers_as_a_fresh_interpreter_does(server, tmp_path, what):
    asked = program(tmp_path, TOLD[what], "a b", "")
    (fork,), (fresh,) = ask(server, asked), ask(None, asked)
    assert server.asked == 1
    told = ("text", "rc", "note", "outcome", "argv", "truncated")
    assert {name: getattr(fork, name) for name in told} == {name: getattr(fresh, name) for name in told}
    assert fork.text


def test_our_own_programs_answer_alike(server):
    """With --each, another reader starts where the first is slow: it has descriptors of other numbers."""
    words = ("--root", "/", "read:/proc/sys/kernel/ostype", "read:/nowhere", "stat:/dev/null")
    asked = [
        Command(child("host/files", *words, "list:/proc/self/fd")),
        Command(child("host/files", "--each", "5", *words)),
    ]
    forked, fresh = ask(server, *asked), ask(None, *asked)
    assert [seen.text for seen in forked] == [seen.text for seen in fresh]
    assert "Linux" in forked[0].text and "ENOENT" in forked[1].text


def test_packages_are_found_where_we_find_them(server):
    (seen,) = ask(server, Command(child("host/processes", "--root", "/", packages=True)))
    assert (seen.outcome, seen.rc, seen.note, server.asked) == (Outcome.OK, 0, "", 1)
    assert f'"pid": {os.getpid()}' in seen.text


def test_without_psutil_only_the_program_that_needs_it_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_packages", lambda: (str(tmp_path),))
    server = ForkServer()
    words = ("--root", "/", "read:/proc/cmdline")
    processes = Command(child("host/processes", "--root", "/", packages=True))
    missing, well = ask(server, processes, Command(child("host/files", *words)))
    server.close()
    assert (missing.rc, well.rc, server.asked) == (1, 0, 2)
    assert "psutil" in missing.note and "cmdline" in well.text


@pytest.mark.slow
def test_what_was_begun_ahead_is_handed_over(server, tmp_path):
    """However far it is by then, it ran once and all that it said is there: none of its output is lost."""
    log = tmp_path / "log"
    ran = f"open({str(log)!r}, 'a').write('ran\\n'); "
    long = program(tmp_path, ran + "sys.stdout.write('x' * 300_000 + '!')")
    short = program(tmp_path, ran + "print('told')")
    fails = program(tmp_path, ran + "sys.exit('no')")
    goes_on = program(tmp_path, ran + "time.sleep(1); print('late')")
    asked = (long, short, fails, goes_on)
    for one in asked:
        server.ahead(one)
        server.ahead(one)
    time.sleep(0.5)
    seen = ask(server, *asked, program(tmp_path, "print('other')"))
    assert [one.rc for one in seen] == [0, 0, 1, 0, 0]
    assert len(seen[0].text) == 300_001 and [one.text for one in seen[1:]] == [
        "told\n",
        "",
        "late\n",
        "other\n",
    ]
    assert seen[2].note == "no"
    assert log.read_text() == "ran\n" * 4
    assert [one.text for one in ask(server, short)] == ["told\n"]  # asked again, it runs again
    assert log.read_text() == "ran\n" * 5


@pytest.mark.slow
def test_what_was_begun_ahead_and_never_asked_for_is_ended(server, tmp_path):
    file = tmp_path / "pid"
    code = f"open({str(file)!r}, 'w').write(str(os.getpid())); sys.stdout.flush(); time.sleep(600)"
    server.ahead(program(tmp_path, code))
    until = time.monotonic() + 20
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < until
        time.sleep(0.01)
    pid = int(file.read_text())
    assert ask(server, program(tmp_path, "print('other')"))[0].text == "other\n"
    server.close()
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until + 20
        time.sleep(0.01)


def test_a_server_that_died_ahead_costs_nothing(tmp_path):
    served = ForkServer()
    asked = program(tmp_path, "print('told')")
    served.ahead(asked)
    os.killpg(served._process.pid, signal.SIGKILL)
    seen = ask(served, asked, program(tmp_path, "print('other')"))
    assert [one.text for one in seen] == ["told\n", "other\n"]
    served.close()


def test_an_exception_is_told_and_a_crash_names_its_signal(server, tmp_path):
    raises, crashes = ask(
        server,
        program(tmp_path, "print('so far'); raise ValueError('odd')"),
        program(tmp_path, "print('so far', flush=True); os.kill(os.getpid(), 11)"),
    )
    assert (raises.rc, raises.text) == (1, "so far\n") and "ValueError: odd" in raises.note
    assert (crashes.outcome, crashes.rc, crashes.text) == (Outcome.CRASH, -11, "so far\n")
    assert "SIGSEGV" in crashes.note


def test_a_fork_goes_by_its_programs_name(server, tmp_path):
    (told,) = ask(server, program(tmp_path, "print(open('/proc/self/comm').read())"))
    assert told.text.split() == ["told0"]


@pytest.mark.slow
def test_one_that_hangs_is_killed_with_what_it_started_and_holds_up_nobody(server, tmp_path):
    hang = (
        "[signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; print(os.fork(), flush=True); time.sleep(99)"
    )
    began = time.monotonic()
    hung, well = ask(server, program(tmp_path, hang), program(tmp_path, "print('well')"), timeout=1)
    assert (hung.outcome, well.text) == (Outcome.TIMEOUT, "well\n")
    assert "state S" in hung.note and time.monotonic() - began < 20
    (grandchild, _) = sorted(map(int, hung.text.split()), reverse=True)
    assert gone(grandchild)


@pytest.mark.slow
def test_one_that_survives_sigkill_is_left_behind(server, tmp_path, monkeypatch):
    spared: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: spared.append(pid))
    (seen,) = ask(server, program(tmp_path, "time.sleep(60)"), timeout=0.5)
    server.close()
    monkeypatch.undo()
    assert seen.outcome is Outcome.STUCK and f"pid {spared[0]} state S" in seen.note
    assert Path(f"/proc/{spared[0]}").exists(), "the server's end is not that of its forks"
    os.killpg(spared[0], signal.SIGKILL)


def test_what_cannot_be_forked_has_an_interpreter_of_its_own(server, tmp_path):
    environment = Command(child("host/environment"), env={"NCCL_DEBUG": "ODD"})
    foreign = Command(("sh", "-c", "echo foreign"))
    own, other = ask(server, environment, foreign)
    assert "ODD" in own.text and other.text == "foreign\n" and server.asked == 0


def test_without_a_server_programs_are_started_all_the_same(server, tmp_path):
    server._process.kill()
    server._process.wait(10)
    one, two = ask(server, program(tmp_path, "print('one')"), program(tmp_path, "print('two')"))
    assert (one.text, two.text) == ("one\n", "two\n")
    (later,) = ask(server, program(tmp_path, "print('later')"))
    assert later.text == "later\n"


def test_a_server_that_does_not_answer_is_done_without(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fork_server, "FORK_TIMEOUT_S", 0.3)
    os.kill(server._process.pid, signal.SIGSTOP)
    (seen,) = ask(server, program(tmp_path, "print('well')"))
    assert seen.text == "well\n"
    assert server._process.poll() is not None


@pytest.mark.slow
def test_a_server_that_dies_takes_no_answer_along(server, tmp_path):
    async def go() -> tuple[Observation, Observation]:
        slow = program(tmp_path, "print('begun', flush=True); time.sleep(1); print('done')")
        waiting = asyncio.ensure_future(answer(slow, server))
        hung = asyncio.ensure_future(answer(program(tmp_path, "time.sleep(60)"), server, timeout=2))
        while server.asked < 2 or not all(fork.started.done() for fork in server._children.values()):
            await asyncio.sleep(0.05)
        server._process.kill()
        return await waiting, await hung

    slow, hung = asyncio.run(go())
    assert (slow.text, slow.rc, slow.outcome) == ("begun\ndone\n", None, Outcome.OK)
    assert hung.outcome is Outcome.TIMEOUT


@pytest.mark.slow
def test_the_server_ends_with_us(tmp_path):
    code = (
        "import os, sys\n"
        "from nodedoctor.children.fork_server import ForkServer\n"
        "print(ForkServer()._process.pid, flush=True)\n"
        "os._exit(0)"
    )
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert gone(int(done.stdout)) and done.stderr == ""


def test_descriptors_are_given_back(server, tmp_path):
    asked = [program(tmp_path, "print('x' * 100000)") for _ in range(5)]
    ask(server, *asked)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert [len(seen.text) for seen in ask(server, *asked)] == [100001] * 5
    assert len(os.listdir("/proc/self/fd")) == before


def gone(pid: int) -> bool:
    """Whether a process ends; one that nobody has waited for yet has ended."""
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def mark() -> str:
    """A run's mark that no test beside this one has: its server would end this one's children, too."""
    return f"{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture
def asked_of(mark: str) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """The server by itself, with the mark of its run, and our end of its socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        serving = subprocess.Popen(
            child("fork_server"), stdin=theirs, env={**os.environ, fork_server.MARK: mark}
        )
    with ours:
        yield serving, ours
    serving.kill()
    serving.wait()


def sleeper(**more: str) -> subprocess.Popen[bytes]:
    """A child in a session of its own, as nodedoctor starts them."""
    return subprocess.Popen(["sleep", "600"], start_new_session=True, env={**os.environ, **more})


@pytest.mark.slow
def test_an_end_that_nobody_hears_of_costs_no_other_end(asked_of):
    """A program ends while there is nobody left to be told, and a message is still unread."""
    serving, ours = asked_of
    left = sleeper()
    try:
        quick = Path(__file__).parents[2] / "nodedoctor/probes/host/host_watch.py"
        outputs = os.open(os.devnull, os.O_WRONLY)
        words = ("1", "-I", "-S", str(quick), "--no-such-option")
        ours.send(f"watch\0{left.pid}".encode())
        socket.send_fds(ours, ["\0".join(words).encode()], [outputs, outputs])
        os.close(outputs)
        assert ours.recv(256).startswith(b"started")
        serving.send_signal(signal.SIGSTOP)
        time.sleep(1)  # it ends
        ours.send(b"forget\x001")
        ours.close()
        serving.send_signal(signal.SIGCONT)
        assert left.wait(60) == -signal.SIGKILL
        assert serving.wait(60) == 0
    finally:
        left.kill()


@pytest.mark.slow
def test_who_died_before_it_read_what_it_was_told_leaves_nothing(asked_of):
    """The kernel then says "connection reset" instead of the end."""
    serving, ours = asked_of
    left = sleeper()
    try:
        ours.send(f"watch\0{left.pid}".encode())
        outputs = os.open(os.devnull, os.O_WRONLY)
        socket.send_fds(ours, [b"1\0-I\0-S\0/nothing.py"], [outputs, outputs])
        os.close(outputs)
        assert select.select([ours], [], [], 60)[0]
        ours.close()
        assert left.wait(60) == -signal.SIGKILL
        assert serving.wait(60) == 0
    finally:
        left.kill()


@pytest.mark.slow
def test_what_nobody_told_of_is_found_by_its_mark(asked_of, mark):
    serving, ours = asked_of
    told_of, strange = sleeper(**{fork_server.MARK: mark}), sleeper(**{fork_server.MARK: f"{mark}-too"})
    try:
        ours.close()
        assert told_of.wait(60) == -signal.SIGKILL
        assert serving.wait(60) == 0
        assert strange.poll() is None
    finally:
        told_of.kill()
        strange.kill()


def test_a_child_has_the_mark(server, tmp_path):
    forked = program(tmp_path, f"print(os.environ[{fork_server.MARK!r}])")
    fresh = replace(forked, env={"A": "b"})
    told = [seen.text.strip() for seen in ask(server, forked, fresh)]
    assert told == [server.mark[fork_server.MARK]] * 2 and server.asked == 1
