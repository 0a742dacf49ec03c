"""Passes on what a job prints, byte by byte, and gives a copy to the program that stores it.

    python -I -S pump.py COPY FROM:TO:USUAL [FROM:TO:USUAL]

FROM, TO and COPY are numbers of descriptors: FROM is the reading end of a pipe or the master of a terminal,
TO the real output, COPY a pipe (-1: none) that is never waited for: what it does not take is lost and
counted. USUAL are the settings of the terminal before the job began. A line on stdin is the number of the
job's process group; its end without one says that there is no job.

It ignores the signals of keys, as what the job still prints while it ends must arrive. It ends with the last
process that writes to FROM. When TO has lost its reader, FROM is closed, so that the job learns of it as it
would without us. Size, settings and keys of a terminal are handed on (class Terminal). For that the pump is
in the job's process group, as only the terminal's foreground group may read keys; else in one of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import termios
import time
from typing import Any

NOTICED = 0.1
"""Seconds after which it is noticed that a terminal has another size or other settings."""
UNREAD = 0.03
"""Seconds after which an unread key is passed on: a program that waits for it reads it at once."""
IGNORED = (
    signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE,
)  # fmt: skip
"""What the terminal, a shell or Slurm sends to all processes of a job."""
CHUNK = 1 << 16
"""Bytes at a time: what a pipe holds."""
LATER = 0.2
"""Seconds until the copy follows: its writer should not compete for the processor with the reader."""
SLICE = 100_000
"""Nanoseconds of processor time asked for at a time, the least there is: on a crowded node who asks for less
has its turn sooner, and no more of it in all (Linux 6.12, Documentation/scheduler/sched-eevdf.rst)."""
SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}
"""The number of sched_setattr(2), which Python has no function for."""


def main() -> None:
    """Pass on until everything has ended."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    copy = int(sys.argv[1])
    words = [word.split(":") for word in sys.argv[2:]]
    targets = {int(source): int(target) for source, target, _ in words}
    usual = {int(source): settings for source, _, settings in words if settings}
    terminals = {source: Terminal(source, targets[source], usual[source]) for source in usual}
    group = sys.stdin.readline()
    if not group:
        return
    join(int(group) if terminals else 0)
    with contextlib.suppress(Exception):
        ask_for_short_turns()
    copier = Copy(copy)
    while targets:
        dues = [copier.due, *(terminal.due for terminal in terminals.values())]
        due = min((seconds for seconds in dues if seconds is not None), default=None)
        ready = select.select(list(targets), [], [], due)[0]
        for terminal in terminals.values():
            terminal.look()
        for source in ready:
            data = taken(source)
            if data and delivered(targets[source], data):
                copier.add(data)
            else:
                if source in terminals:
                    terminals.pop(source).give_back()
                os.close(source)
                del targets[source]
        copier.give()
    copier.end()


def join(group: int) -> None:
    """Enter a process group; begin one where there is none any more."""
    for number in (group, 0):
        with contextlib.suppress(OSError):
            os.setpgid(0, number)
            return


def ask_for_short_turns() -> None:
    """Ask the scheduler for many short turns instead of few long ones; kernels before 6.12 do not listen."""
    number = SET_ATTRIBUTES.get(os.uname().machine)
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    import ctypes
    import struct

    wanted = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, os.nice(0), 0, SLICE, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, wanted, 0)


class Copy:
    """What was passed on, for the program that stores it: given a moment later, never waited for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting = bytearray()
        self.since = 0.0
        self.lost = 0
        if number >= 0:
            os.set_blocking(number, False)

    @property
    def due(self) -> float | None:
        """Seconds until something is to be given."""
        return max(0.0, self.since + LATER - time.monotonic()) if self.waiting else None

    def add(self, data: bytes) -> None:
        """Take what was passed on."""
        if self.number >= 0:
            self.since = self.since if self.waiting else time.monotonic()
            self.waiting += data

    def give(self) -> None:
        """Give what has waited long enough, or has become much."""
        if self.waiting and (len(self.waiting) >= CHUNK or not self.due):
            try:
                self.lost += len(self.waiting) - os.write(self.number, self.waiting)
            except OSError:
                self.lost += len(self.waiting)
            self.waiting.clear()

    def end(self) -> None:
        """Give the rest, and say what was lost."""
        self.since = 0.0
        self.give()
        if self.lost:
            self.add(f"\n[nodedoctor: {self.lost} bytes of output were not kept]\n".encode())
            self.since = 0.0
            self.give()


class Terminal:
    """The job's terminal in front of the real one, which looks as if it were that.

    The job's standard input is the real one, where editors and debuggers read keys and change the settings.
    But curses changes those of the terminal that it writes to, and `less` and `more` also read keys from
    that one. So as long as the job has changed its settings the real one has them, too, and a key that is
    not read there is typed at the job's.
    """

    def __init__(self, master: int, real: int, usual: str) -> None:
        self.master = master
        self.real = real
        self.usual = usual
        self.before: list[Any] | None = None
        """The settings of the real terminal while it has those of the job's."""
        self.unread: float | None = None
        self.keys = -1
        with contextlib.suppress(OSError):  # a description of its own: the job's must not become non-blocking
            self.keys = os.open(f"/proc/self/fd/{real}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)

    @property
    def due(self) -> float:
        """Seconds until the next look."""
        return NOTICED if self.before is None else UNREAD

    def look(self) -> None:
        """Pass on what has changed since the last look."""
        self.resize()
        with contextlib.suppress(OSError, termios.error):
            if os.tcgetpgrp(self.real) != os.getpgrp():  # it is the shell's now, or another job's
                self.before = None
            elif fcntl.ioctl(self.master, termios.TCGETS, bytes(64)).hex() == self.usual:
                self.give_back()
            else:
                self.set_up()
                self.type()

    def resize(self) -> None:
        """Give the job's terminal the size of the real one, and signal the programs that draw on it."""
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self.real, termios.TIOCGWINSZ, b"\0" * 8)
            if fcntl.ioctl(self.master, termios.TIOCGWINSZ, b"\0" * 8) != size:
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)
                os.killpg(os.tcgetpgrp(self.real), signal.SIGWINCH)

    def set_up(self) -> None:
        """Set the real terminal up as the job's is, which has changed the output already where it should."""
        wanted, now = termios.tcgetattr(self.master), termios.tcgetattr(self.real)
        self.before = self.before or now
        settings = [wanted[0], wanted[1] & ~termios.OPOST, now[2], wanted[3], now[4], now[5], wanted[6]]
        if settings != now:
            termios.tcsetattr(self.real, termios.TCSANOW, settings)

    def type(self) -> None:
        """Type at the job's terminal what was not read at the real one."""
        if self.keys < 0 or not select.select([self.keys], [], [], 0)[0]:
            self.unread = None
        elif self.unread is None:
            self.unread = time.monotonic()
        elif time.monotonic() - self.unread >= UNREAD:
            self.unread = None
            os.write(self.master, os.read(self.keys, 1024))

    def give_back(self) -> None:
        """Give the real terminal its settings back."""
        if self.before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.real, termios.TCSANOW, self.before)
            self.before = None


def taken(source: int) -> bytes:
    """What can be read now; nothing at the end, which a terminal's master says by an error."""
    try:
        return os.read(source, CHUNK)
    except OSError:
        return b""


def delivered(target: int, data: bytes) -> bool:
    """Write all of it, waiting for the reader as the job itself would have; False when there is no reader."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            select.select([], [target], [])
        except OSError:
            return False
    return True


if __name__ == "__main__":
    main()
