"""Start our other programs as forks of this interpreter, which has imported what they need.

    python -I -S fork_server.py [DESCRIPTOR FOLDER...]
                                    (standard input is a socket to nodedoctor/children/fork_server.py)

First of all a fork tells by the descriptor which of the folders only root can write (host/path_folders.py):
nodedoctor waits for that before it asks for anything.

A message is a number, the arguments of `python`, joined by NUL, and the two descriptors for the program's
stdout and stderr; `environ` with variables of all programs to come; or `watch` or `forget` with the session
of a child that nodedoctor started itself. Answers:
`started NUMBER PID` once it has a session of its own, `ended NUMBER STATUS` (of wait(2)), `failed NUMBER
ERRNO`. Ends when nodedoctor does, and kills what still runs: the sessions it knows, and then whatever has the
mark of this run in its environment, as a child that nodedoctor started in its last moment was not announced.
What cannot be killed is left behind.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from _socket import CMSG_SPACE, socket  # the module socket takes 4 ms more

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, TextIO

    Asked = tuple[str, list[str], tuple[int, int]]

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "nodedoctor.probes"
USUAL = (
    "host.environment",
    "host.files_each",
    "host.files",
    "stack.find_python",
    "kernel.kernel_log",
    "network.net",
    "host.processes",
)
LARGEST = 1 << 20
MARK = "NODEDOCTOR_RUN"
"""The variable in the environment of everything that a run starts."""
FIRST_S, NEXT_S = 10, 2
"""Seconds for a look at the first folder of PATH and for each further one, as who asks waits for them."""
LOOKS = (0.0, 0.3, 2.0)
"""Seconds before each look for what has the mark: a child that is being started has it in a moment."""


def main() -> None:
    """Serve until the other end of the socket is closed."""
    sys.path.append(HERE.rpartition("/nodedoctor/")[0] + "/")
    __import__(PACKAGE)
    sys.path.pop()
    if sys.argv[1:]:
        look_at_folders(int(sys.argv[1]), sys.argv[2:])
    prepare()
    asker = socket(fileno=0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    numbers: dict[int, str] = {}
    others: set[int] = set()  # sessions of nodedoctor's own children
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == woken:
                os.read(woken, 4096)
                report_ends(asker, numbers)
                continue
            request = receive(asker)
            if request is None:
                signal.set_wakeup_fd(-1)
                end_all([*numbers, *others])
                os._exit(0)
            number, words, outputs = request
            if number == "environ":
                for word in words:
                    name, _, value = word.partition("=")
                    os.environ[name] = value
            elif number == "watch":
                others.add(int(words[0]))
            elif number == "forget":
                others.discard(int(words[0]))
            else:
                start(asker, (number, words, outputs), numbers)


def look_at_folders(telling: int, folders: list[str]) -> None:
    """Fork a look at folders, one of which may be on a dead mount."""
    if os.fork() == 0:
        try:
            os.setsid()
            signal.alarm(FIRST_S + NEXT_S * len(folders))
            have_outputs(telling, telling)
            run([f"{HERE}/host/path_folders.py", *folders])
        finally:
            os._exit(0)
    os.close(telling)


def prepare() -> None:
    """Import the usual programs and so what they need; our packages' folders are for those that ask only."""
    folders = list(sys.path)
    for name in USUAL:
        try:
            __import__(f"{PACKAGE}.{name}")
        except (ImportError, SystemExit):  # psutil is missing: the program itself will say so
            continue
    sys.path[:] = folders
    gc.freeze()  # what is shared stays shared
    gc.disable()


def receive(asker: socket) -> Asked | None:
    """The next message: its number, the words, the descriptors; None when the asker is gone."""
    try:
        data, ancillary, _, _ = asker.recvmsg(LARGEST, CMSG_SPACE(8))
    except ConnectionError:  # it died before it had read all that was sent
        return None
    if not data:
        return None
    number, *words = os.fsdecode(data).split("\0")
    if not ancillary:
        return number, words, (-1, -1)
    out, err = (int.from_bytes(ancillary[0][2][at : at + 4], sys.byteorder) for at in (0, 4))
    return number, words, (out, err)


def end_all(sessions: list[int]) -> None:
    """Nodedoctor has ended, however that was: nothing it started shall outlive it."""
    for pid in sessions:
        end(os.killpg, pid)
        end(os.kill, pid)  # a fork that has no session of its own yet
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(10)  # the environment of a process whose memory is locked is waited for
    for seconds in LOOKS:
        time.sleep(seconds)
        for pid in marked(os.environ.get(MARK, "")):
            end(os.kill, pid)


def end(kill: Callable[[int, int], None], pid: int) -> None:
    """Send SIGKILL."""
    try:
        kill(pid, signal.SIGKILL)
    except OSError:  # it has ended, or has become another user's
        return


def marked(mark: str) -> list[int]:
    """The processes with this mark, but ourselves: also those that left their session."""
    wanted, pids = f"{MARK}={mark}".encode(), []
    for entry in os.listdir("/proc") if mark else ():
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    pids.append(int(entry))
        except OSError:  # it has ended, or is another user's
            continue
    return pids


def tell(asker: socket, text: str) -> None:
    """Say something; who has ended does not hear it, which the next message tells."""
    try:
        asker.send(text.encode())
    except OSError:
        return


def start(asker: socket, request: Asked, numbers: dict[int, str]) -> None:
    """Fork one program."""
    number, words, outputs = request
    try:
        pid = os.fork()
    except OSError as error:  # no more processes
        tell(asker, f"failed {number} {error.errno}")
    else:
        if pid == 0:
            become(asker, number, words, outputs)
        numbers[pid] = number
    for fd in outputs:
        os.close(fd)


def report_ends(asker: socket, numbers: dict[int, str]) -> None:
    """Tell of every program that has ended."""
    while numbers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid in numbers:
            tell(asker, f"ended {numbers.pop(pid)} {status}")


def become(asker: socket, number: str, words: list[str], outputs: tuple[int, int]) -> NoReturn:
    """The life of a fork: it has nothing of ours open but its own outputs."""
    code = 1
    try:
        os.setsid()
        asker.send(f"started {number} {os.getpid()}".encode())
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        have_outputs(*outputs)
        code = run(words)
    finally:
        os._exit(code)


def have_outputs(out: int, err: int) -> None:
    """Become a process that has these descriptors as its outputs, and nothing else open."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd, ours in enumerate((null, out, err)):
        os.dup2(ours, fd)
    # Made for /dev/null, which can be sought in: reconfigured, they would seek in the pipe, and fail.
    sys.stdout, sys.stderr = reopened(sys.stdout), reopened(sys.stderr)
    os.closerange(3, max(out, err, null) + 8)


def reopened(stream: TextIO) -> TextIO:
    """A new stream like this one, on what its number leads to now."""
    lines = 1 if stream.line_buffering else -1
    return open(stream.fileno(), "w", lines, stream.encoding, stream.errors, closefd=False)


def call_ourselves(file: str) -> None:
    """In ps and top, a fork that hangs goes by its program's name (the kernel keeps 15 characters)."""
    try:
        with open("/proc/self/comm", "w") as comm:
            comm.write(file.removesuffix(".py"))
    except OSError:
        pass


def run(words: list[str]) -> int:
    """Do what `python WORD...` would: the options -I -S -X, a program with a `main`, its arguments."""
    try:
        sys._xoptions.clear()  # ours
        while words[0].startswith("-"):
            if words.pop(0) == "-X":
                name, _, value = words.pop(0).partition("=")
                sys._xoptions[name] = value
        sys.argv = words
        folder, file = os.path.split(words[0])
        call_ourselves(file)
        name = file.removesuffix(".py")
        if f"{folder}/".startswith(f"{HERE}/"):  # our programs lie in folders, by what they ask about
            name = f"{PACKAGE}{folder[len(HERE) :].replace('/', '.')}.{name}"
        else:
            sys.path.insert(0, folder)
        __import__(name)
        sys.modules[name].main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    main()
