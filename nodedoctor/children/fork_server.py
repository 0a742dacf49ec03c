"""Our own programs as forks of one warm interpreter: 2 ms each instead of the 10 to 40 of a fresh one.

A run asks some twenty of them, and most of their time went into starting Python and importing json and re
twenty times. The interpreter that forks them, `probes/fork_server.py`, touches nothing of the node and can
import while we do, looks at the folders of PATH (search_path.py), and can begin with what will be asked
before there is an event loop. A fork is a child like any other: its own session, its own pipes, left behind
when it cannot be killed. Where the server does not answer, programs are started one by one as ever.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from nodedoctor.children import search_path
from nodedoctor.children.programs import LOCALE, child, environment
from nodedoctor.debug import Log
from nodedoctor.declare.registry import Command

if TYPE_CHECKING:
    import asyncio

    from nodedoctor.children.forked import Fork

_log = Log(__name__)

FORK_TIMEOUT_S = 2.0  # seconds the server has to start a fork before programs are started without it
MARK = "NODEDOCTOR_RUN"
"""The variable by which the server finds what a run has started, when that has died without a word."""

Pipes = TypeVar("Pipes", bound="asyncio.SubprocessProtocol")


class ForkServer:
    """Starts our programs, `asked` so far; `close()` it when no more are to be started."""

    def __init__(self) -> None:
        """Start the interpreter; no event loop is needed yet."""
        self.asked = 0
        self.starting = 0
        self._children: dict[str, Fork] = {}
        self._ahead: dict[tuple[str, ...], tuple[str, dict[int, int]]] = {}
        self._early: dict[str, list[tuple[str, str]]] = {}
        self._told = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._usable = True
        self.mark = {MARK: f"{os.getpid()}-{time.monotonic_ns()}"}
        folders, telling = search_path.look_for_us()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    child("fork_server", *((str(telling), *folders) if folders else ()), packages=True),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    pass_fds=(telling,) if folders else (),
                    env={**os.environ, **LOCALE, **self.mark},
                )
            except OSError as error:  # no more processes
                self._usable = False
                _log.debug("no fork server: %s", error)
            finally:
                if folders:
                    os.close(telling)

    def takes(self, command: Command) -> bool:
        """Whether this is a program of ours that only talks: none with an environment or input of its own."""
        ours = command.argv[:3] == (sys.executable, "-I", "-S") and "-c" not in command.argv[3:4]
        return self._usable and ours and not (command.hold or command.env or command.stdin is not None)

    async def fork(self, command: Command, protocol: Callable[[], Pipes]) -> tuple[Fork, Pipes]:
        """Start a program; OSError when that cannot be."""
        import asyncio

        from nodedoctor.children.forked import Fork

        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.add_reader(self._socket, self._read_messages)
        child_pipes = protocol()
        is_running = command.argv in self._ahead
        number, pipes = self._ahead.pop(command.argv) if is_running else self._request_fork(command.argv)
        fork = self._children[number] = Fork(child_pipes, loop, pipes)
        try:
            for what, value in self._early.pop(number, ()):
                self._take_message(what, number, value)
            await asyncio.wait({fork.started}, timeout=FORK_TIMEOUT_S)
            if not fork.started.done():
                _log.debug("the fork server has not answered in %.3g s and is given up", FORK_TIMEOUT_S)
                self.close()
            fork.started.result()
        except BaseException:
            self._children.pop(number, None)
            fork.close()
            raise
        return fork, child_pipes

    def ahead(self, command: Command) -> None:
        """Start a program that will be asked for: fork() then hands over what it has said by then."""
        if self.takes(command) and command.argv not in self._ahead:
            try:
                number, pipes = self._request_fork(command.argv)
            except OSError as error:
                _log.debug("not begun ahead: %s", error)
                return
            self._ahead[command.argv] = number, pipes
            self._early[number] = []

    def _request_fork(self, argv: tuple[str, ...]) -> tuple[str, dict[int, int]]:
        """Send the server a program's words and its ends of two pipes; its number, and our ends."""
        if not self._told:
            variables = environment().items()
            changed = (f"{name}={value}" for name, value in variables if os.environ.get(name) != value)
            self._socket.send(b"\0".join(map(os.fsencode, ("environ", *changed))))
            self._told = True
        self.asked += 1
        number, pipes, ends = str(self.asked), {}, []
        try:
            for fd in (1, 2):
                pipes[fd], end = os.pipe()
                ends.append(end)
            words = b"\0".join(map(os.fsencode, (number, *argv[1:])))
            socket.send_fds(self._socket, [words], ends)
        except BaseException:
            ends += pipes.values()
            raise
        finally:
            for end in ends:
                os.close(end)
        return number, pipes

    def watch(self, pid: int, *, has_ended: bool = False) -> None:
        """Have the session of a child killed when we die without a word, until it has ended."""
        if self._usable:
            try:
                self._socket.send(f"{'forget' if has_ended else 'watch'}\0{pid}".encode())
            except OSError as error:
                _log.debug("the fork server was not told to watch pid %d: %s", pid, error)

    def close(self) -> None:
        """Let the interpreter end; programs that run go on, but their end is not reported."""
        if not self._usable:
            return
        self._usable = False
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self._socket.close()
        for fork in self._children.values():
            fork.lost()
        for _, pipes in self._ahead.values():
            for pipe in pipes.values():
                os.close(pipe)
        if self._ahead or self.starting:
            return  # the closed socket has the server end these, and itself
        self._process.kill()
        try:
            self._process.wait(0.1)
        except subprocess.TimeoutExpired:
            _log.debug("the fork server, pid %d, has not ended yet and is left behind", self._process.pid)

    def _read_messages(self) -> None:
        """Take what the server says: started, ended or failed, which program, and a number."""
        with contextlib.suppress(BlockingIOError):  # nothing more for now
            while message := self._receive():
                self._take_message(*message.decode("ascii").split())
            self.close()

    def _take_message(self, what: str, number: str, value: str) -> None:
        fork = self._children.get(number)
        if number in self._early:
            self._early[number].append((what, value))
        elif fork is None:  # it was given up
            if what == "started":
                with contextlib.suppress(OSError):  # it has ended
                    os.killpg(int(value), signal.SIGKILL)
        elif what == "started":
            fork.begins(int(value))
        elif what == "ended":
            fork.ends(os.waitstatus_to_exitcode(int(value)))
            del self._children[number]
        else:
            fork.fails(int(value))

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(256)
        except ConnectionError as error:
            _log.debug("the fork server is gone: %s", error)
            return b""
