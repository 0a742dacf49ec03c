"""`nodedoctor run` is not noticed: output, order, exit codes, signals, terminals are those of the command."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from forked import nodedoctor_forked

RUN = (sys.executable, "-m", "nodedoctor", "run")


def run(
    folder: Path, *command: str, options: tuple[str, ...] = (), seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    """What comes of a command whose watch is not seen to start; the others need `RUN`."""
    words = ("run", "--dir", str(folder), *options, "--", *command)
    return nodedoctor_forked(*words, timeout=seconds, piped=True)


def kept(folder: Path) -> Path:
    """The one folder that was made."""
    (found,) = folder.iterdir()
    return found


def test_output_and_exit_code(tmp_path: Path) -> None:
    done = run(tmp_path / "jobs", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert done.stderr.startswith("err\n")
    found = kept(tmp_path / "jobs")
    assert json.loads((found / "run.json").read_text())["exit_code"] == 3
    assert sorted((found / "logs/output.log").read_text().split()) == ["err", "out"]
    assert found.stat().st_mode & 0o777 == 0o700
    assert (found / "run.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("command", "code"), [("no-such-command-here", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_started(command: str, code: int, tmp_path: Path) -> None:
    done = run(tmp_path, command)
    assert done.returncode == code
    assert command in done.stderr and "Traceback" not in done.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGRTMIN])
def test_ends_by_the_signal_of_the_command(number: int, tmp_path: Path) -> None:
    done = run(tmp_path, "sh", "-c", f"kill -{int(number)} $$")
    assert (done.returncode, "Traceback" in done.stderr) == (-number, False)


def test_a_folder_that_cannot_be_made_does_not_stop_the_job(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(tmp_path / "file" / "below", "echo", "trains")
    assert (done.returncode, done.stdout) == (0, "trains\n")
    assert "without being watched" in done.stderr


def test_the_order_of_both_outputs_in_one_file(tmp_path: Path) -> None:
    script = "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done"
    with (tmp_path / "log").open("wb") as log:
        argv = [*RUN, "--dir", str(tmp_path / "jobs"), "--", "sh", "-c", script]
        subprocess.run(argv, stdout=log, stderr=subprocess.STDOUT, timeout=60, check=True)
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[:10] == [f"{word} {i}" for i in range(1, 6) for word in ("out", "err")]


def test_bytes_pass_unchanged(tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    (tmp_path / "data").write_bytes(data)
    argv = [*RUN, "--dir", str(tmp_path / "jobs"), "--no-arm", "--", "cat", str(tmp_path / "data")]
    assert subprocess.run(argv, capture_output=True, timeout=60).stdout == data


@pytest.mark.slow
def test_a_reader_that_has_gone(tmp_path: Path) -> None:
    """The command learns of it as it would without us: by SIGPIPE."""
    command = (
        f"{sys.executable} -m nodedoctor run --dir {tmp_path} -- yes | head -n 1; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["y", "141"]


@pytest.mark.slow
def test_signals_reach_the_command_once(tmp_path: Path) -> None:
    script = (
        "trap 'n=$((n+1)); echo got' USR1; trap 'exit $n' TERM; n=0; echo ready; while :; do sleep 0.05; done"
    )
    argv = [*RUN, "--dir", str(tmp_path), "--", "bash", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        time.sleep(1)  # until the plumbing has its handlers
        job.send_signal(signal.SIGUSR1)
        assert job.stdout.readline() == "got\n"
        job.send_signal(signal.SIGTERM)
        assert job.wait(30) == 1


def test_signals_that_are_ignored_stay_so(tmp_path: Path) -> None:
    """As behind nohup: the command ignores it, too, and so both go on; SIGPIPE only Python ignores."""
    script = "trap '' HUP; exec \"$@\""
    shown = "import signal; print(signal.getsignal(1).name, signal.pthread_sigmask(0, ()))"
    wanted = ["SIG_IGN", "set()"]
    for argv in ([], [*RUN, "--dir", str(tmp_path), "--"]):
        job = ["sh", "-c", script, "sh", *argv, sys.executable, "-c", shown]
        assert subprocess.run(job, capture_output=True, text=True, timeout=60).stdout.split() == wanted


@pytest.mark.slow
def test_the_job_goes_on_when_nodedoctor_is_killed(tmp_path: Path) -> None:
    script = "echo ready; sleep 1.5; echo still here"
    argv = [*RUN, "--dir", str(tmp_path), "--", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        job.kill()
        assert job.stdout.readline() == "still here\n"


def ended(stat: Path) -> bool:
    """Whether a process has ended; process 1 may take a while to collect it."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.slow
def test_a_stopped_rank_in_a_session_of_its_own_does_not_outlive_the_job(tmp_path: Path) -> None:
    """torchrun starts ranks so, and may itself not end by SIGTERM."""
    rank = (
        "import os, time\n"
        "for step in range(6):\n"
        "    time.sleep(0.1)\n"
        "    print('step', step, 'loss 1.0', os.getpid(), flush=True)\n"
        "os.kill(os.getpid(), 19)\n"
    )
    (tmp_path / "rank.py").write_text(rank)
    places = "RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1 LOCAL_RANK=0"
    script = f"trap '' TERM; {places} setsid {sys.executable} {tmp_path}/rank.py & wait; wait"
    options = ("--hang-after", "2", "--kill-after", "1")
    done = run(tmp_path / "jobs", "sh", "-c", script, options=options, seconds=110)
    assert done.returncode == -signal.SIGKILL
    assert ended(Path(f"/proc/{done.stdout.split()[-1]}/stat"))


def test_who_is_told_to_end_and_killed_takes_the_job_along(tmp_path: Path) -> None:
    """As Slurm does to whom it knows by a process group: the job has one of its own."""
    script = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
    argv = [*RUN, "--dir", str(tmp_path), "--", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        assert job.stdout is not None
        pid = int(job.stdout.readline())
        try:
            job.send_signal(signal.SIGTERM)
            ends = time.monotonic() + 30
            while f"job/guard.py\0{pid}\0" not in commands(job.pid):
                assert time.monotonic() < ends
                time.sleep(0.05)
        finally:
            job.kill()  # else a failure would wait for the job
        assert job.stdout.read() == ""  # the job has it open until it ends


def commands(parent: int) -> str:
    """The command lines of a process's children."""
    found = ""
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has ended by now
            found += Path(f"/proc/{pid}/cmdline").read_text()
    return found


@pytest.mark.slow
def test_what_is_set_for_the_job_and_what_is_left_alone(tmp_path: Path) -> None:
    argv = [*RUN, "--dir", str(tmp_path), "--", "env"]
    env = {**os.environ, "NCCL_DEBUG": "INFO", "TORCH_FR_BUFFER_SIZE": "77"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert (seen["NCCL_DEBUG"], seen["TORCH_FR_BUFFER_SIZE"]) == ("INFO", "77")
    assert "NCCL_DEBUG_FILE" not in seen and "TORCH_NCCL_TRACE_BUFFER_SIZE" not in seen
    assert seen["PYTHONFAULTHANDLER"] == "1"
    unarmed = subprocess.run([*argv[:-2], "--no-arm", "--", "env"], capture_output=True, text=True).stdout
    before = subprocess.run(["env"], capture_output=True, text=True).stdout
    assert _variables(unarmed) == _variables(before)


def test_what_arm_says_beside_its_block(tmp_path: Path) -> None:
    """A shell takes the block alone; a person reads what works on this node, and what nobody has tried."""
    done = nodedoctor_forked("arm", "--sbatch", "--dir", str(tmp_path))
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"mkdir", "export"}
    assert "by the signal that the ranks have registered" in done.stderr
    assert "not yet tried on GPUs" in done.stderr


def _variables(text: str) -> set[str]:
    return {line for line in text.splitlines() if not line.startswith("_=")}


class Terminal:
    """A shell with job control on a terminal of its own."""

    def __init__(self) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ.update(PS1="$ ", TERM="xterm")
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, wanted: str, seconds: float = 30) -> str:
        """What the terminal shows up to some text, and all before is forgotten."""
        ends = time.monotonic() + seconds
        while wanted not in self.seen:
            left = ends - time.monotonic()
            assert left > 0, f"{wanted!r} did not come: {self.seen[-2000:]!r}"
            if select.select([self.master], [], [], left)[0]:
                self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
        shown, _, self.seen = self.seen.partition(wanted)
        return shown

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.close(self.master)
        os.waitpid(self.pid, 0)


@pytest.mark.slow
def test_on_a_terminal(tmp_path: Path) -> None:
    """A terminal for the command, Ctrl-C to it alone, Ctrl-Z and fg as without us."""
    terminal = Terminal()
    script = (
        "import os, signal, sys, time\n"
        "print('tty', sys.stdout.isatty(), os.get_terminal_size(1).columns > 0, flush=True)\n"
        "while True:\n"
        "    try:\n"
        "        time.sleep(0.2); print('tick', flush=True)\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', flush=True); sys.exit(5)\n"
    )
    (tmp_path / "job.py").write_text(script)
    try:
        terminal.until("$ ")
        terminal.type(
            f"{' '.join(RUN)} --dir {tmp_path / 'jobs'} -- {sys.executable} {tmp_path / 'job.py'}\n"
        )
        terminal.until("tty True")
        terminal.until("tick")
        terminal.type("\x1a")
        terminal.until("Stopped")
        terminal.type("echo back in the $SHLVL shell\n")
        terminal.until("back in the")
        terminal.type("fg\n")
        terminal.until("tick")
        terminal.type("\x03")
        terminal.until("interrupted")
        terminal.until("exit code 5")
        terminal.until("$ ")
        terminal.type("echo code $?\n")
        terminal.until("code 5")
    finally:
        terminal.close()


@pytest.mark.slow
def test_pagers_and_curses(tmp_path: Path) -> None:
    """`less` reads keys from the terminal that it writes to, curses changes the settings of that one only;
    both are stopped and gone on with, and leave the real terminal as it was."""
    terminal = Terminal()
    (tmp_path / "text").write_text("".join(f"line {number}\n" for number in range(500)))
    (tmp_path / "drawn.py").write_text(
        "import curses\n"
        "def drawn(screen):\n"
        "    screen.addstr(0, 0, 'press a key')\n"
        "    return screen.getch()\n"
        "print('key', curses.wrapper(drawn))\n"
    )
    command = f"{' '.join(RUN)} --dir {tmp_path / 'jobs'} --"
    try:
        terminal.until("$ ")
        terminal.type(f"stty rows 24 cols 80; stty -g >{tmp_path}/before\n")
        terminal.until("$ ")
        terminal.type(f"{command} less {tmp_path}/text\n")
        terminal.until("line 22")
        terminal.type(" ")
        terminal.until("line 44")
        terminal.type("\x1a")
        terminal.until("Stopped")
        terminal.type("fg\n")
        terminal.until("line 44")
        terminal.type("q")
        terminal.until("ended well")
        terminal.until("$ ")
        terminal.type(f"{command} {sys.executable} {tmp_path}/drawn.py\n")
        terminal.until("press a key")
        terminal.type("a")
        terminal.until("key 97")
        terminal.until("ended well")
        terminal.until("$ ")
        terminal.type(f"stty -g >{tmp_path}/after; echo all is $((6*7))\n")
        terminal.until("all is 42")
    finally:
        terminal.close()
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()


@pytest.mark.slow
def test_a_debugger_and_an_editor(tmp_path: Path) -> None:
    """Whoever reads keys from its standard input gets them, by lines or one by one."""
    terminal = Terminal()
    (tmp_path / "debugged.py").write_text("x = 41\nbreakpoint()\nprint('after', x)\n")
    (tmp_path / "editor.py").write_text(
        "import os, sys, termios, tty\n"
        "before = termios.tcgetattr(0)\n"
        "tty.setraw(0)\n"
        "os.write(1, b'\\x1b[2Jpress a key')\n"
        "key = os.read(0, 1)\n"
        "termios.tcsetattr(0, termios.TCSADRAIN, before)\n"
        "print('\\nkey', key.hex())\n"
    )
    command = f"{' '.join(RUN)} --dir {tmp_path / 'jobs'} -- {sys.executable} {tmp_path}"
    try:
        terminal.until("$ ")
        terminal.type(f"{command}/debugged.py\n")
        terminal.until("(Pdb)")
        terminal.type("p x + 1\n")
        terminal.until("42")
        terminal.type("c\n")
        terminal.until("after 41")
        terminal.until("ended well")
        terminal.type(f"{command}/editor.py\n")
        terminal.until("press a key")
        terminal.type("\x03")
        terminal.until("key 03")
        terminal.until("ended well")
    finally:
        terminal.close()


@pytest.mark.slow
def test_signals_that_the_parent_blocked_are_heard(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "nodedoctor", "run", "--dir", str(tmp_path), "--", "sh", "-c", "exit 7"]
    blocked = partial(signal.pthread_sigmask, signal.SIG_BLOCK, range(1, signal.SIGRTMIN - 2))
    assert subprocess.run(argv, preexec_fn=blocked, timeout=60, capture_output=True).returncode == 7


@pytest.mark.slow
def test_a_signal_while_the_watch_ends_is_not_told_as_an_error_of_the_job(tmp_path: Path) -> None:
    """The loop hears signals through a pipe that it closes; SIGCHLD does no harm to whom it is sent."""
    argv = [sys.executable, "-m", "nodedoctor", "run", "--dir", str(tmp_path), "--", "sleep", "0.3"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as job:
        while job.poll() is None:
            job.send_signal(signal.SIGCHLD)
            time.sleep(0.0002)
        assert job.stderr is not None and "wakeup" not in job.stderr.read()
    assert job.returncode == 0


PREEMPTED = "slurmstepd: error: *** JOB 9 ON n020 CANCELLED AT 2026-11-07T10:48:10 DUE TO PREEMPTION ***"
LOST = "srun: error: Node failure on n023"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("echo step 1 loss 2; exit 0", 0),
        (f"echo '{PREEMPTED}'; exit 1", 10),
        (f"echo '{LOST}'; exit 1", 11),
        ("echo 'ValueError: no such column'; exit 1", 12),
        ("exit 10", 13),  # the command's own codes mean nothing
        ("echo step 1 loss 2; exit 3", 13),  # a log without a failure: it was cut off
        ("kill -9 $$", 13),
    ],
)
def test_it_ends_with_the_code_of_the_decision(script: str, code: int, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    options = ("--decide", "--exclude", str(bad))
    done = run(tmp_path / "jobs", "sh", "-c", script, options=options)
    assert done.returncode == code, done.stderr
    assert (bad.read_text() if bad.exists() else "") == ("n023\n" if code == 11 else "")
    if code >= 10:
        word = {10: "restart: ", 11: "restart-without n023: ", 12: "stop: ", 13: "look: "}[code]
        assert f"run: {word}" in done.stderr.splitlines()[-1]
