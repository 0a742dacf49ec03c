"""The program in a real pseudo-terminal: when the screen opens, what it leaves behind, how it ends."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from terminal_screen import TerminalScreen
from tuidriver import FRAMES, checks, rack

from nodedoctor.demo import DEMOS as shipped
from nodedoctor.engine.session import Request, Session
from nodedoctor.report.json import document
from nodedoctor.report.json import render as rendered
from nodedoctor.tui import start

COLOUR = re.compile(rb"\x1b\[[\d;]*?(?<![\d])(?:3[0-7]|4[0-7]|9[0-7]|10[0-7]|38;|48;)[\d;]*m")


class Terminal:
    """A child on a terminal of its own, and what it has written so far."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.written = b""
        self.screen = TerminalScreen(80, 24)
        self._master = master
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, width: int, height: int) -> None:
        """Another size, with nothing but dirt on it."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen = TerminalScreen(width, height)
        self.screen.write("".join(f"\x1b[{row};1H{'#' * width}" for row in range(1, height + 1)))
        self.process.send_signal(signal.SIGWINCH)

    def wait_for(self, text: bytes) -> None:
        """Wait until it has been written or stands on the screen: only what differs is written."""
        ends = time.monotonic() + 60
        while text not in self.written and text.decode() not in self.screen.text():
            assert time.monotonic() < ends and self.read(), self.written[-2000:]

    def settle(self) -> None:
        """Read until nothing more comes for a while."""
        while select.select([self._master], [], [], 1.0)[0]:
            self.read()

    def end(self) -> int:
        while self.read():
            pass
        return self.process.wait(60)

    def read(self) -> bool:
        """Read what is there; False when the terminal has been closed."""
        if not select.select([self._master], [], [], 60)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.written += data
        self.screen.write(self._decode(data))
        return bool(data)


@contextmanager
def terminal(
    *words: str,
    env: Mapping[str, str] | None = None,
    stdout: int | None = None,
    program: Sequence[str] = (sys.executable, "-m", "nodedoctor"),
) -> Iterator[Terminal]:
    """nodedoctor on a terminal of 80x24."""
    master, slave = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "SSH_CONNECTION")}
    clean |= {"TERM": "xterm", "LINES": "24", "COLUMNS": "80", **(env or {})}
    process = subprocess.Popen(
        [*program, *words],
        stdin=slave,
        stdout=stdout or slave,
        stderr=slave,
        env=clean,
        cwd=FRAMES.parent.parent,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.mark.slow
def test_a_terminal_that_is_gone_ends_the_screen():
    """Also where it was not the controlling terminal, so that no SIGHUP comes."""
    master, slave = pty.openpty()
    program = [sys.executable, "-m", "nodedoctor", "demo", "healthy"]
    screen = subprocess.Popen(program, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                              env={**os.environ, "TERM": "xterm", "LINES": "24"})  # fmt: skip
    os.close(slave)
    shown = Terminal(screen, master)
    shown.wait_for(b"PASS")
    os.close(master)
    assert screen.wait(30) != 0


def rack_words(tmp_path: Path) -> list[str]:
    return ["--checks", str(checks(tmp_path)), "--replay", str(FRAMES / "node"), "rack"]


@pytest.mark.slow
def test_what_is_typed_or_pasted_in_one_go_arrives_where_it_belongs(tmp_path: Path):
    with terminal(*rack_words(tmp_path)) as screen:
        screen.wait_for(b"checks passed")
        screen.type("/port-7\r")
        screen.wait_for(b"[/port-7]")
        screen.type("q")
        assert screen.end() == 2


@pytest.mark.slow
def test_keys_behind_an_answer_are_no_part_of_it(tmp_path: Path):
    with terminal(*rack_words(tmp_path)) as screen:
        screen.wait_for(b"checks passed")
        screen.type("/port-7\r2/GPU3\rq")
        assert screen.end() == 2


def test_what_cannot_be_shown_opens_no_screen(tmp_path: Path):
    wrong = tmp_path / "no-such.zip"
    with terminal("--replay", str(wrong), "--tui") as screen:
        assert screen.end() == 64
        assert b"no-such.zip: No such file or directory" in screen.written and b"\x1b" not in screen.written


def test_leaving_says_the_verdict_and_what_was_copied(tmp_path: Path):
    with terminal(*rack_words(tmp_path)) as screen:
        screen.wait_for(b"18 links down")
        screen.type("c")
        screen.wait_for(b"copy one step")
        screen.type("1")
        screen.wait_for(b"\x1b]52;c;")
        screen.type("q")
        assert screen.end() == 2
        last = screen.written.rpartition(b"\x1b[?1049l")[2].decode()
    assert "FAIL  2 fail" in last and "nvidia-smi --gpu-reset -i 3" in last


def test_what_is_left_on_the_terminal_is_folded_between_words_and_commands_are_whole(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("COLUMNS", "40")
    node = FRAMES.parent / "nodes" / "container-lost-devices"
    report = document(asyncio.run(Session(Request(replay=node)).diagnosis().run()))
    text = start.last_words(start.TuiResult(report))
    sentences = [line for line in text.splitlines() if "$ " not in line]
    words = text.split()
    assert all(len(line) <= 40 for line in sentences) and "restart" in words and "could" in words
    assert "  $ sudo nvidia-ctk system create-dev-char-symlinks --create-all\n" in text


@pytest.mark.slow
def test_a_fleet_is_shown_as_it_answers_and_left_with_its_verdict(tmp_path: Path):
    report = rendered(document(asyncio.run(rack(tmp_path).diagnosis().run())))
    reports = tmp_path / "reports"
    reports.mkdir()
    for host in ("gpu-1", "gpu-2", "gpu-3"):
        (reports / f"{host}.json").write_text(report.replace("gpu-a3-017", host))
    (reports / "gpu-4.json").write_text(report[:1000])
    words = ("--failing", str(tmp_path / "bad"), "--max-failing", "4")
    with terminal("fleet", "--reports", str(reports), *words) as screen:
        screen.wait_for(b"cut off after 1000 bytes")
        screen.type("q")
        code = screen.end()
    assert code == 2 and b"4 nodes (reports): 3 fail, 1 unreadable" in screen.written
    assert (tmp_path / "bad").read_text().split() == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]


def test_nodes_that_never_answer_do_not_keep_anybody(tmp_path: Path):
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\ncase $1 in -V|-G) exit 0;; esac\nexec sleep 600\n")
    ssh.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with terminal("fleet", "--ssh", "gpu-[1-3]", env=env) as screen:
        screen.wait_for(b"waiting for gpu-[1-3]")
        screen.type("q")
        code = screen.end()
    assert code == 3 and b"3 nodes (ssh): 3 silent" in screen.written


@pytest.mark.slow
def test_json_goes_to_a_redirected_stdout_at_the_end(tmp_path: Path):
    file = os.open(tmp_path / "report.json", os.O_CREAT | os.O_WRONLY)
    with terminal("--tui", *rack_words(tmp_path), stdout=file) as screen:
        screen.wait_for(b"18 links down")
        screen.type("q")
        assert screen.end() == 2
    os.close(file)
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "fail"


@pytest.mark.slow
def test_no_color_and_terminals_without_colours_get_none(tmp_path: Path):
    for env in ({"NO_COLOR": "1"}, {"TERM": "vt100"}):
        with terminal(*rack_words(tmp_path), env=env) as screen:
            screen.wait_for(b"checks passed")
            screen.type("2")
            screen.wait_for(b"NV16")
            screen.type("q")
            screen.end()
            assert not COLOUR.search(screen.written), env
    with terminal(*rack_words(tmp_path)) as screen:
        screen.wait_for(b"checks passed")
        assert COLOUR.search(screen.written)


@pytest.mark.slow
def test_a_locale_without_utf_8_gets_ascii(tmp_path: Path):
    with terminal(*rack_words(tmp_path), env={"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}) as screen:
        screen.wait_for(b"checks passed")
        for key, shown in (("2", b"NV16"), ("?", b"ctrl+l"), ("q", b""), (":", b"Search")):
            screen.type(key)
            screen.wait_for(shown)
        screen.process.terminate()
        screen.end()
        assert screen.written.isascii()


def test_a_dumb_terminal_and_a_pipe_get_text(tmp_path: Path):
    with terminal(*rack_words(tmp_path), env={"TERM": "dumb"}) as screen:
        assert screen.end() == 2
        assert b"     check    rack.links" in screen.written and b"\x1b" not in screen.written
    with terminal("--tui", *rack_words(tmp_path), env={"TERM": "dumb"}) as screen:
        assert screen.end() == 64


@pytest.mark.slow
def test_nothing_answers_and_q_still_ends_it(tmp_path: Path):
    with terminal("--checks", str(checks(tmp_path)), "hung") as screen:
        screen.wait_for(b"waiting for hung-7")
        screen.type("jjq")
        assert screen.end() == 3
        assert b"UNKN  8 unknown" in screen.written


@pytest.mark.slow
def test_signals_end_it_and_leave_the_terminal_as_it_was(tmp_path: Path):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
        with terminal("--checks", str(checks(tmp_path)), "hung") as screen:
            screen.wait_for(b"waiting for hung-7")
            screen.process.send_signal(number)
            assert screen.end() == 128 + number
            assert b"\x1b[?1049l" in screen.written
    with terminal("--checks", str(checks(tmp_path)), "hung") as screen:
        screen.wait_for(b"waiting for hung-7")
        screen.type("\x03")
        assert screen.end() == 130


@pytest.mark.slow
def test_a_terminal_of_another_size_is_drawn_whole(tmp_path: Path):
    """Whatever it made of what it showed before: some cut, some fold, some keep old lines."""
    with terminal(*rack_words(tmp_path), env={"LINES": "", "COLUMNS": ""}) as screen:
        screen.wait_for(b"5 causes")
        for width, height in ((200, 60), (80, 24), (30, 8), (80, 24)):
            screen.settle()
            screen.resize(width, height)
            ends = time.monotonic() + 10
            while "5 causes" not in screen.screen.text() or "#" in screen.screen.text():
                assert time.monotonic() < ends and screen.read(), screen.screen.text()
        screen.type("q")
        screen.end()


def test_inside_tmux_a_copy_is_also_in_a_buffer(tmp_path: Path):
    kept = tmp_path / "kept"
    tmux = tmp_path / "tmux"
    tmux.write_text(f'#!/bin/sh\necho "$@" > {kept}.words\ncat > {kept}\n')
    tmux.chmod(0o755)
    env = {"TMUX": "/nowhere,1,0", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with terminal(*rack_words(tmp_path), env=env) as screen:
        screen.wait_for(b"checks passed")
        screen.type("c")
        screen.wait_for(b"copy one step")
        screen.type("1")
        screen.wait_for(b"sent to your terminal and tmux")
        ends = time.monotonic() + 10
        while not (kept.exists() and kept.read_text()):
            assert time.monotonic() < ends
            time.sleep(0.05)
        screen.type("q")
        screen.end()
    assert kept.read_text() == "nvidia-smi --gpu-reset -i 3"
    assert (tmp_path / "kept.words").read_text().split() == ["load-buffer", "-w", "-"]


DEMOS = {
    "driver-mismatch": (
        "driver mismatch: kernel module 580.82.07, libraries 580.95.05",
        "grep -h -A4 nvidia",
    ),
    "nvlinks-down": ("GPU 3 lost 2 NVLinks", "nvidia-smi nvlink -s -i 3"),
    "raylet-1024-files": (
        "raylet (pid 3188) has an open-files limit of 1024, 1003 open",
        "ulimit -n 1048576",
    ),
}


def test_no_demo_of_a_sick_node_is_missing_here():
    assert {*DEMOS, "healthy"} == set(shipped)


@pytest.mark.slow
@pytest.mark.parametrize("demo", DEMOS)
def test_a_sick_node_opens_on_its_cause_with_a_command_to_type_every_time(demo: str):
    headline, command = DEMOS[demo]
    firsts = set()
    for _ in range(6):
        with terminal("demo", demo) as screen:
            screen.wait_for(b"checks passed")
            screen.wait_for(command.encode())
            screen.settle()
            firsts.add(screen.screen.text())
            screen.type("q")
            screen.end()
        assert b"\x1b[?1003h" not in screen.written and b"\x1b[?1000h" not in screen.written
    (first,) = firsts
    lines = first.splitlines()
    at = next(number for number, line in enumerate(lines) if headline in line)
    assert any(f"$ {command}" in line for line in lines[at:])


@pytest.mark.slow
@pytest.mark.parametrize("demo", [*DEMOS, "healthy"])
def test_an_idle_screen_writes_nothing_and_a_move_less_than_half_a_page(demo: str):
    with terminal("demo", demo) as screen:
        screen.wait_for(b"checks passed")
        screen.settle()
        assert not select.select([screen._master], [], [], 2)[0]  # idle
        for key in "jk":
            before, shown = len(screen.written), screen.screen.text()
            screen.type(key)
            screen.settle()
            moved = len(screen.written) - before
            assert 0 < moved < 3072, (key, moved)
            assert screen.screen.text() != shown
