"""What the terminal interface costs, beside the smallest app that Textual can run.

Runs the real program in a pseudo-terminal: on a recorded node, and on this machine with eight probes that
never answer. Times depend on the machine, so they are also given as ratios: the app beside it runs in turn.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from timing import as_installed, family, mib

CHECKS = Path(__file__).parent.parent / "frames" / "checks"
WIDE, SMALL = (140, 40), (80, 24)
RUNS = 7
KEYS = 20
GONE = 0.5  # seconds in which what a program has started ends, too, and does not slow the next one
WATCHED = 3.0  # seconds over which bytes are counted
QUIET = 0.5  # seconds without output after which a picture counts as whole
BETWEEN = 0.15  # seconds without output between two keys
LONGEST = 60.0  # seconds that anything may take
MINIMAL = """
from textual.app import App
from textual.widgets import Static
class Minimal(App):
    BINDINGS = [("q", "quit", "")]
    def compose(self):
        yield Static("useful")
Minimal().run()
"""


class Sitting:
    """One program on a terminal of its own."""

    def __init__(self, argv: list[str], size: tuple[int, int]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        size_and_colour = ("NO_COLOR", "LINES", "COLUMNS")
        env = {key: value for key, value in as_installed().items() if key not in size_and_colour}
        self._began = time.monotonic()
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**env, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(slave)

    def first(self, useful: bytes) -> float:
        """Seconds until some text has come."""
        written = b""
        while useful not in written and time.monotonic() < self._began + LONGEST:
            written += os.read(self._master, 65536)
        return time.monotonic() - self._began

    def settle(self, quiet: float = QUIET) -> int:
        """Bytes that come until nothing comes for a while."""
        count, ends = 0, time.monotonic() + LONGEST
        while time.monotonic() < ends and select.select([self._master], [], [], quiet)[0]:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                break
            if not data:
                break
            count += len(data)
        return count

    def key(self, key: str) -> float:
        """Seconds from a key to the first byte of its picture, once the one before it is drawn.

        Two keys that cancel each other before either is drawn have no picture.
        """
        while select.select([self._master], [], [], BETWEEN)[0]:
            os.read(self._master, 65536)
        pressed = time.monotonic()
        os.write(self._master, key.encode())
        select.select([self._master], [], [], LONGEST)
        return time.monotonic() - pressed

    def bytes_of(self, key: str) -> int:
        """Bytes that a key costs."""
        os.write(self._master, key.encode())
        return self.settle()

    def per_second(self) -> float:
        """Bytes a second while nobody does anything."""
        count, ends = 0, time.monotonic() + WATCHED
        while (left := ends - time.monotonic()) > 0:
            if select.select([self._master], [], [], left)[0]:
                count += len(os.read(self._master, 65536))
        return count / WATCHED

    def resident(self) -> float:
        """MiB of memory of it and its children, what they share counted once."""
        return mib(family(self.process.pid))

    def leave(self) -> float:
        """Seconds from q to the end."""
        asked = time.monotonic()
        os.write(self._master, b"q")
        self.settle(LONGEST)
        self.process.wait()
        return time.monotonic() - asked

    def close(self) -> None:
        """End it, however it stands."""
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextmanager
def sitting(argv: list[str], size: tuple[int, int]) -> Iterator[Sitting]:
    """A sitting that is ended in any case."""
    one = Sitting(argv, size)
    try:
        yield one
    finally:
        one.close()


def firsts(programs: dict[str, tuple[list[str], bytes]], size: tuple[int, int]) -> dict[str, float]:
    """Median seconds to the first useful text of each program, which run in turn after one warm-up of all."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(RUNS + 1):
        for name, (argv, useful) in programs.items():
            with sitting(argv, size) as one:
                seconds[name].append(one.first(useful))
            time.sleep(GONE)
    return {name: statistics.median(found[1:]) for name, found in seconds.items()}


def main() -> None:
    """Print a few lines for each size of terminal."""
    folder = Path(tempfile.mkdtemp())
    checks = shutil.copytree(CHECKS, folder / "checks", ignore=shutil.ignore_patterns("__pycache__"))
    ours = [sys.executable, "-m", "nodedoctor"]
    hung = [*ours, "--checks", str(checks), "hung"]
    demo = [*ours, "demo", "nvlinks-down"]
    for size in (WIDE, SMALL):
        name = f"tui {size[0]}x{size[1]:<4}"
        minimal = ([sys.executable, "-c", MINIMAL], b"useful")
        programs = {"minimal": minimal, "live": (ours, b"running"), "demo": (demo, b"NVLinks")}
        found = firsts({**programs, "hung": (hung, b"hung-7")}, size)
        base = found["minimal"]
        print(
            f"{name} first useful text: minimal app {base:.3f} s, live {found['live'] / base:.2f} times that,"
        )
        print(f"{name}   a demo with its results {found['demo'] / base:.2f} times (median of {RUNS}),")
        print(f"{name}   live with a folder of checks, each tried apart, {found['hung'] / base:.2f} times")
        with sitting(demo, size) as one:
            one.first(b"checks passed")
            painted = one.settle()
            moves = {key: one.bytes_of(key) for key in "jk"}
            print(
                f"{name} bytes: {painted} after the first results, j {moves['j']}, k {moves['k']},"
                f" idle {one.per_second():.0f}/s; {one.resident():.0f} MiB; left in {one.leave():.2f} s"
            )
        with sitting(hung, size) as one:
            one.first(b"hung-7")
            one.settle(0.3)
            keys = sorted(one.key("jk"[number % 2]) for number in range(KEYS))
            print(
                f"{name} eight hung probes: key to picture {statistics.median(keys) * 1e3:.0f} ms,"
                f" slowest of {KEYS} {keys[-1] * 1e3:.0f} ms; {one.per_second():.0f} B/s;"
                f" left in {one.leave():.2f} s"
            )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
