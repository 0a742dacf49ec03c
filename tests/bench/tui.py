"""What the terminal interface costs: time to the first useful text, bytes to the terminal, time to leave.

Runs the real program in a pseudo-terminal: on a recorded node, and on this machine with eight probes that
never answer.
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
from dataclasses import dataclass
from pathlib import Path

CHECKS = Path(__file__).parent.parent / "frames" / "checks"
WIDE, SMALL = (140, 40), (80, 24)
RUNS = 7
WATCHED = 3.0  # seconds over which bytes are counted


@dataclass(frozen=True, slots=True)
class Sitting:
    """One sitting: seconds to the first useful text and to the end after q; bytes painted, and per second."""

    first: float
    painted: int
    per_second: float
    leaving: float


def sit(words: list[str], size: tuple[int, int], useful: bytes, watched: float = 0.0) -> Sitting:
    """Run nodedoctor on a terminal until something useful stands there, watch it, press q."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "LINES", "COLUMNS")}
    argv = [sys.executable, "-m", "nodedoctor", *words]
    began = time.monotonic()
    process = subprocess.Popen(
        argv,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**env, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(slave)
    written = b""
    while useful not in written:
        written += os.read(master, 65536)
    first = time.monotonic() - began
    painted = len(written) + _read_for(master, 1.0)
    per_second = _read_for(master, watched) / watched if watched else 0.0
    os.write(master, b"q")
    asked = time.monotonic()
    _read_for(master, 10.0)
    process.wait()
    leaving = time.monotonic() - asked
    os.close(master)
    return Sitting(first, painted, per_second, leaving)


def _read_for(master: int, seconds: float) -> int:
    """How many bytes come within some seconds, or until the end."""
    count, ends = 0, time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if not select.select([master], [], [], left)[0]:
            break
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        count += len(data)
    return count


def main() -> None:
    """Print a few lines."""
    folder = Path(tempfile.mkdtemp())
    checks = shutil.copytree(CHECKS, folder / "checks", ignore=shutil.ignore_patterns("__pycache__"))
    hung = ["--checks", str(checks), "hung"]
    demo = ["demo", "nvlinks-down"]
    for size in (WIDE, SMALL):
        name = f"{size[0]}x{size[1]}"
        live = statistics.median(sit(hung, size, b"hung.driver-7").first for _ in range(RUNS))
        recorded = statistics.median(sit(demo, size, b"nvlink.links").first for _ in range(RUNS))
        idle, running = sit(demo, size, b"nvlink.links", WATCHED), sit(hung, size, b"hung.driver-7", WATCHED)
        print(
            f"tui {name:<8} first useful text {live:.3f} s, with results {recorded:.3f} s (median of {RUNS})"
        )
        print(
            f"tui {name:<8} {idle.painted / 1000:.0f} KB painted, idle {idle.per_second:.0f} B/s,"
            f" eight hung probes {running.per_second:.0f} B/s, left in {running.leaving:.2f} s"
        )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
