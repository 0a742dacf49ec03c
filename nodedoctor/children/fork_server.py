"""Our own programs as forks of one warm interpreter: 2 ms each instead of the 10 to 40 of a fresh one.

A run asks some twenty of them, and most of their time went into starting Python and importing json and re
twenty times. The interpreter that forks them, `probes/fork_server.py`, touches nothing of the node and can
import while we do. A fork is a child like any other: its own session, its own pipes, left behind when it
cannot be killed. Where the server does not answer, programs are started one by one as ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from nodedoctor.children.child_process import environment
from nodedoctor.children.programs import child
from nodedoctor.debug import Log
from nodedoctor.declare.registry import Command

_log = Log(__name__)

FORK_TIMEOUT_S = 2.0  # seconds the server has to start a fork before programs are started without it
CHUNK = 1 << 18  # bytes read from a pipe at once
MARK = "NODEDOCTOR_RUN"
"""The variable by which the server finds what a run has started, when that has died without a word."""

Pipes = TypeVar("Pipes", bound=asyncio.SubprocessProtocol)


class ForkServer:
    """Starts our programs, `asked` so far; `close()` it when no more are to be started."""

    def __init__(self) -> None:
        """Start the interpreter; no event loop is needed yet."""
        self.asked = 0
        self._children: dict[str, Fork] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._usable = True
        self.mark = {MARK: f"{os.getpid()}-{time.monotonic_ns()}"}
        with theirs:
            try:
                self._process = subprocess.Popen(
                    child("fork_server", packages=True),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    env={**environment(), **self.mark},
                )
            except OSError as error:  # no more processes
                self._usable = False
                _log.debug("no fork server: %s", error)

    def takes(self, command: Command) -> bool:
        """Whether this is a program of ours that only talks: none with an environment or input of its own."""
        ours = command.argv[:3] == (sys.executable, "-I", "-S") and "-c" not in command.argv[3:4]
        return self._usable and ours and not (command.hold or command.env or command.stdin is not None)

    async def fork(self, command: Command, protocol: Callable[[], Pipes]) -> tuple[Fork, Pipes]:
        """Start a program; OSError when that cannot be."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.add_reader(self._socket, self._hear)
        made = protocol()
        fork = Fork(made, loop)
        self.asked += 1
        number = str(self.asked)
        self._children[number] = fork
        try:
            fork.ask(self._socket, number, command.argv)
            await asyncio.wait({fork.started}, timeout=FORK_TIMEOUT_S)
            if not fork.started.done():
                _log.debug("the fork server has not answered in %.3g s and is given up", FORK_TIMEOUT_S)
                self.close()
            fork.started.result()
        except BaseException:
            self._children.pop(number, None)
            fork.close()
            raise
        return fork, made

    def watch(self, pid: int, *, ended: bool = False) -> None:
        """Have the session of a child killed when we die without a word, until it has ended."""
        if self._usable:
            try:
                self._socket.send(f"{'forget' if ended else 'watch'}\0{pid}".encode())
            except OSError as error:
                _log.debug("the fork server was not told to watch pid %d: %s", pid, error)

    def close(self) -> None:
        """Let the interpreter end; programs that run go on, but nobody hears of their end."""
        if not self._usable:
            return
        self._usable = False
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self._socket.close()
        for fork in self._children.values():
            fork.lost()
        self._process.kill()
        try:
            self._process.wait(0.1)
        except subprocess.TimeoutExpired:
            _log.debug("the fork server, pid %d, has not ended yet and is left behind", self._process.pid)

    def _hear(self) -> None:
        """Take what the server says: started, ended or failed, which program, and a number."""
        with contextlib.suppress(BlockingIOError):  # nothing more for now
            while said := self._said():
                what, number, value = said.decode("ascii").split()
                fork = self._children.get(number)
                if fork is None:  # it was given up
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
            self.close()

    def _said(self) -> bytes:
        try:
            return self._socket.recv(256)
        except ConnectionError as error:
            _log.debug("the fork server is gone: %s", error)
            return b""


class Fork(asyncio.SubprocessTransport):
    """One program that the server has forked."""

    def __init__(self, protocol: asyncio.SubprocessProtocol, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.started: asyncio.Future[int] = loop.create_future()
        self._protocol = protocol
        self._loop = loop
        self._returncode: int | None = None
        self._orphaned = False
        self._pipes: dict[int, int] = {}

    def ask(self, server: socket.socket, number: str, argv: tuple[str, ...]) -> None:
        """Send the server the program's words and its ends of two pipes; we listen at ours."""
        ends = []
        try:
            for fd in (1, 2):
                self._pipes[fd], end = os.pipe()
                ends.append(end)
                self._loop.add_reader(self._pipes[fd], self._read, fd)
            words = b"\0".join(map(os.fsencode, (number, *argv[1:])))
            socket.send_fds(server, [words], ends)
        finally:
            for end in ends:
                os.close(end)

    def begins(self, pid: int) -> None:
        """It has a session of its own and can be killed."""
        if not self.started.done():
            self.started.set_result(pid)

    def fails(self, error: int) -> None:
        """It could not be started."""
        if not self.started.done():
            self.started.set_exception(OSError(error, os.strerror(error)))

    def ends(self, returncode: int) -> None:
        """It has exited."""
        self._returncode = returncode
        self._protocol.process_exited()

    def lost(self) -> None:
        """Nobody will hear of its exit, so the end of its output stands for it."""
        self.fails(errno.EPIPE)
        self._orphaned = self._returncode is None
        if self._orphaned and 1 not in self._pipes:
            self._protocol.process_exited()

    def get_pid(self) -> int:
        """Its process, which is also its session."""
        return self.started.result()

    def get_returncode(self) -> int | None:
        """As of `subprocess`; None while it runs."""
        return self._returncode

    def close(self) -> None:
        """Close our ends of its pipes."""
        for fd in tuple(self._pipes):
            self._end(fd)

    def _read(self, fd: int) -> None:
        if data := os.read(self._pipes[fd], CHUNK):
            self._protocol.pipe_data_received(fd, data)
        else:
            self._end(fd)
            self._protocol.pipe_connection_lost(fd, None)
            if self._orphaned and fd == 1:
                self._protocol.process_exited()

    def _end(self, fd: int) -> None:
        pipe = self._pipes.pop(fd)
        self._loop.remove_reader(pipe)
        os.close(pipe)
