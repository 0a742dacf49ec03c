"""Passes on what a job prints, byte by byte, and gives a copy to whoever keeps it.

    python -I -S pump.py COPY FROM:TO [FROM:TO]

All are numbers of descriptors. FROM is the reading end of a pipe or the master of a terminal, TO the real
output, COPY a pipe (-1: none) that is never waited for: what it does not take at once is lost and counted.

A process group of its own, never the terminal's foreground: Ctrl-C is for the job, and what the job still
prints while it ends must arrive. The size of the real terminal is handed on too. It ends with the last
process that writes to FROM. When nobody reads TO any
more, FROM is closed, so that the job learns of it as it would without us.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import termios

RESIZE = 0.5
"""Seconds after which a terminal that changed its size is noticed: the signal goes to its foreground
group."""
CHUNK = 1 << 16
"""Bytes at a time: what a pipe holds."""


def main() -> None:
    """Pass on until everything has ended."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGTTOU,
    signal.SIGTSTP,
                   signal.SIGPIPE):  # fmt: skip
        signal.signal(number, signal.SIG_IGN)
    os.setpgid(0, 0)
    copy = int(sys.argv[1])
    pairs = (word.split(":") for word in sys.argv[2:])
    ways = {int(source): int(target) for source, target in pairs}
    if copy >= 0:
        os.set_blocking(copy, False)
    lost = 0
    terminals = {source: target for source, target in ways.items() if os.isatty(source)}
    while ways:
        ready = select.select(list(ways), [], [], RESIZE if terminals else None)[0]
        for source in terminals.keys() & ways.keys():
            resize(source, terminals[source])
        for source in ready:
            data = taken(source)
            if data and delivered(ways[source], data):
                lost += copied(copy, data)
            else:
                os.close(source)
                del ways[source]
    if lost and copy >= 0:
        with contextlib.suppress(OSError):
            os.set_blocking(copy, False)
            os.write(copy, f"\n[nodedoctor: {lost} bytes of output were not kept]\n".encode())


def resize(master: int, real: int) -> None:
    """Give the job's terminal the size of the real one, and tell whoever draws on it."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(real, termios.TIOCGWINSZ, b"\0" * 8)
        if fcntl.ioctl(master, termios.TIOCGWINSZ, b"\0" * 8) != size:
            fcntl.ioctl(master, termios.TIOCSWINSZ, size)
            os.killpg(os.tcgetpgrp(real), signal.SIGWINCH)


def taken(source: int) -> bytes:
    """What can be read now; nothing at the end, which a terminal's master says by an error."""
    try:
        return os.read(source, CHUNK)
    except OSError:
        return b""


def delivered(target: int, data: bytes) -> bool:
    """Write all of it, waiting for the reader as the job itself would have; False when nobody reads."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            select.select([], [target], [])
        except OSError:
            return False
    return True


def copied(copy: int, data: bytes) -> int:
    """Give the copy away; the bytes that nobody took."""
    if copy < 0:
        return 0
    try:
        return len(data) - os.write(copy, data)
    except OSError:
        return len(data)


if __name__ == "__main__":
    main()
