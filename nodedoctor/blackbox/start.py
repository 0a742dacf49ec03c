"""Starts a command as a shell would, and is between it and the terminal without being noticed.

The command gets a process group of its own in our session, which becomes the terminal's foreground group:
what is typed reaches it directly. Of its outputs a regular file is inherited; a terminal or a pipe is put
behind a pump (probes/job/pump.py), a terminal's in the shape of another terminal of the same size.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import stat
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from dataclasses import field

from nodedoctor.blackbox.exec_fallback import NOT_STARTED, become, not_started
from nodedoctor.children.programs import child
from nodedoctor.record import record

FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGQUIT)


@record
class Outputs:
    """What the command gets as 1 and 2; `pumped` are the ends that the pump reads, and where they go to.

    `files` are regular files that the command writes to itself, with their size before it began, and `usual`
    the settings that the command finds its terminals in, by the end that is read.
    """

    given: Mapping[int, int]
    pumped: tuple[tuple[int, int], ...] = ()
    files: tuple[tuple[str, int], ...] = ()
    usual: Mapping[int, str] = field(default_factory=dict)


def outputs() -> Outputs:
    """Decide for stdout and stderr; where both are one file, the command gets one, so that order is kept."""
    descriptors: dict[int, int] = {}
    pumped: list[tuple[int, int]] = []
    files: dict[str, int] = {}
    number_of: dict[tuple[int, int, int], int] = {}
    for number in (1, 2):
        try:
            about = os.fstat(number)
        except OSError:
            continue
        is_terminal = os.isatty(number)
        if not (is_terminal or stat.S_ISFIFO(about.st_mode) or stat.S_ISSOCK(about.st_mode)):
            descriptors[number] = number
            if stat.S_ISREG(about.st_mode):
                with contextlib.suppress(OSError):
                    files[os.readlink(f"/proc/self/fd/{number}")] = about.st_size
            continue
        key = (about.st_dev, about.st_ino, about.st_rdev)
        if key in number_of:
            descriptors[number] = descriptors[number_of[key]]
            continue
        number_of[key] = number
        source, descriptors[number] = _open_terminal(number) if is_terminal else os.pipe()
        pumped.append((source, number))
    terminals = (source for source, target in pumped if os.isatty(target))
    usual = {source: fcntl.ioctl(source, termios.TCGETS, bytes(64)).hex() for source in terminals}
    return Outputs(descriptors, tuple(pumped), tuple(files.items()), usual)


def pump(outputs: Outputs, copy: int) -> subprocess.Popen[bytes] | None:
    """Start the pump for what needs one; `copy` is the writing end of the keeper's pipe, -1 for none.

    It is there before the command, which could not do without it, and waits on its stdin for the number of
    the command's process group. The ends it reads are closed here: once it closes them too, the command
    learns that there is no reader.
    """
    if not outputs.pumped:
        return None
    routes = [f"{source}:{target}:{outputs.usual.get(source, '')}" for source, target in outputs.pumped]
    numbers = {number for way in outputs.pumped for number in way} | ({copy} - {-1})
    pump = subprocess.Popen(
        child("job/pump", str(copy), *routes),
        stdin=subprocess.PIPE,
        pass_fds=tuple(numbers - {1, 2}),
    )
    for source, _ in outputs.pumped:
        os.close(source)
    return pump


def begin(pump: subprocess.Popen[bytes], group: int) -> None:
    """Tell the pump the command's process group, for which it waits."""
    assert pump.stdin is not None
    with contextlib.suppress(OSError), pump.stdin:
        pump.stdin.write(f"{group}\n".encode())


def spawn(command: Sequence[str], environ: Mapping[str, str], outputs: Outputs) -> int:
    """Start the command; its pid. NotStarted when there is no such command, OSError when nothing starts."""
    reading, writing = os.pipe()
    foreground = in_foreground()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os.setpgid(0, 0)
            if foreground:
                _give_terminal(os.getpid())
            for number, source in outputs.given.items():
                os.dup2(source, number)
            become(command, environ)
        except OSError as error:
            os.write(writing, struct.pack("i", error.errno or errno.ENOEXEC))
        finally:
            os._exit(NOT_STARTED)
    os.close(writing)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    if foreground:
        _give_terminal(pid)
    for number, source in outputs.given.items():
        if source != number and source not in (1, 2):
            with contextlib.suppress(OSError):
                os.close(source)
    with open(reading, "rb") as pipe:
        errno_bytes = pipe.read(4)
    if errno_bytes:
        os.waitpid(pid, 0)
        take_terminal()
        raise not_started(command[0], struct.unpack("i", errno_bytes)[0])
    return pid


def guard(group: int) -> subprocess.Popen[bytes] | None:
    """Start what ends the command if we are killed; None where nothing can be started any more."""
    try:
        return subprocess.Popen(
            child("job/guard", str(group)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None


def in_foreground() -> bool:
    """True when we have the terminal: a job of the shell in the background has not."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def take_terminal() -> None:
    """Make our own group the foreground again, if the command's is."""
    with contextlib.suppress(OSError):
        _give_terminal(os.getpgrp())


def give_terminal(group: int) -> None:
    """Make the command's group the foreground."""
    with contextlib.suppress(OSError):
        _give_terminal(group)


def die_as(status: int) -> int:
    """End as the command did: by its signal, or by the exit code that is returned."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left its own
        with contextlib.suppress(OSError):  # SIGKILL can only be sent
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return 128 + number
    return os.WEXITSTATUS(status)


def _give_terminal(group: int) -> None:
    """tcsetpgrp(3) from the background would stop us: SIGTTOU is ignored meanwhile."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(0, group)
    finally:
        signal.signal(signal.SIGTTOU, before)


def _open_terminal(like: int) -> tuple[int, int]:
    """A terminal of the same size and settings, but that changes nothing in what passes through: the real
    one does that."""
    master, slave = os.openpty()
    with contextlib.suppress(termios.error):
        attributes = termios.tcgetattr(like)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
    with contextlib.suppress(OSError):
        fcntl.ioctl(slave, termios.TIOCSWINSZ, fcntl.ioctl(like, termios.TIOCGWINSZ, b"\0" * 8))
    return master, slave
