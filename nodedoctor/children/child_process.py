"""Run one command that may never return, without ever waiting for it longer than asked.

A child in uninterruptible sleep ignores SIGKILL, and every waiting call of the standard library would wait
with it. Here the child gets its own session and pipes, is killed, granted a moment, and then left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import shlex
import signal
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

from nodedoctor.children import exhaustion
from nodedoctor.children.kernel_state import kernel_state, slowest
from nodedoctor.children.pipes import Lines, Pipes
from nodedoctor.children.programs import environment
from nodedoctor.children.search_path import search_path
from nodedoctor.debug import Log
from nodedoctor.declare.registry import Command
from nodedoctor.model import Observation, Outcome
from nodedoctor.record import replace

_log = Log(__name__)

KILL_WAIT_S = 0.5  # seconds a killed child has to die before it counts as unkillable
EXIT_WAIT_S = 0.02  # seconds between the end of a crashing child's output and its exit
CANCEL_AGAIN_S = 0.05  # seconds between cancellations of an abandoned start (ours)
PIPE_DRAIN_S = 0.1  # seconds for the pipe to end once the child has exited: a grandchild may never close it

# Up to Python 3.11, and later where pidfd_open(2) is not there, a thread waits for each child, and complains
# on stderr when the loop ends before it.
logging.getLogger("asyncio").setLevel(logging.CRITICAL)

_ENV = "/usr/bin/env"


Protocols = TypeVar("Protocols", bound=asyncio.SubprocessProtocol)


class Forker(Protocol):
    """What starts some commands faster than a fresh interpreter: see fork_server.py.

    `mark` is a variable for the environment of all others, by which they are found when we die; `starting` is
    how many of these have begun to be started.
    """

    mark: dict[str, str]
    starting: int

    def takes(self, command: Command) -> bool:
        """Whether it can start this one."""

    async def fork(
        self, command: Command, protocol: Callable[[], Protocols]
    ) -> tuple[asyncio.SubprocessTransport, Protocols]:
        """Start it; OSError when that cannot be."""

    def watch(self, pid: int, *, has_ended: bool = False) -> None:
        """Have the session of a child that was started without it killed when we die, until it has ended."""


async def run(name: str, command: Command, timeout: float) -> Observation:
    """Run a command to its end or to the timeout, whichever comes first; never raises for a child's deeds."""
    running = await start(name, command)
    if isinstance(running, Observation):
        return running
    try:
        return await running.answer(timeout)
    finally:
        running.close()


async def start(name: str, command: Command, server: Forker | None = None) -> Running | Observation:
    """Start a command, as a fork of the server if it takes it; an Observation when it cannot be started."""
    began = time.monotonic()
    try:
        transport, pipes = await _fork_or_spawn(command, server)
    except OSError as error:
        outcome = Outcome.DENIED if isinstance(error, PermissionError) else Outcome.MISSING
        if error.errno in exhaustion.CODES:
            outcome = Outcome.CRASH
        note = f"{command.argv[0]}: {exhaustion.note_of(error)}"
        _log.debug("%s could not be started: %s", name, note)
        return Observation(name, outcome, argv=command.argv, note=note)
    _log.debug("%s started as pid %d: %s", name, transport.get_pid(), shlex.join(command.argv))
    if command.stdin is not None:
        feed(transport, command.stdin, ends=not command.tied)
    if server is not None:
        server.watch(transport.get_pid())
    return Running(name, command, transport, pipes, began, server)


async def follow(command: Command) -> AsyncIterator[str]:
    """The lines of a child that talks until its reader leaves; ends when it ends, kills it when left.

    What is not read in time is dropped, the oldest first. OSError when it cannot be started.
    """
    transport, lines = await spawn(command, Lines, talks=True)
    try:
        while (line := await lines.queue.get()) is not None:
            yield line
    finally:
        kill(transport)
        transport.close()


class Running:
    """A child that has been started: wait for its answer once, then close it."""

    def __init__(
        self,
        name: str,
        command: Command,
        transport: asyncio.SubprocessTransport,
        pipes: Pipes,
        began: float,
        server: Forker | None = None,
    ) -> None:
        self.name = name
        self.command = command
        self._transport = transport
        self._pipes = pipes
        self._began = began
        self._server = server

    async def answer(self, timeout: float) -> Observation:
        """What it printed: at its exit, at the end of its output for one that holds, else at the timeout."""
        pipes = self._pipes
        ends = {pipes.exited, pipes.ended} if self.command.hold else {pipes.exited}
        await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if pipes.exited.done():
            await asyncio.wait({pipes.ended}, timeout=PIPE_DRAIN_S)
        elif self.command.hold and pipes.ended.done():
            # A crash closes the pipe a moment before the exit is seen.
            await asyncio.wait({pipes.exited}, timeout=EXIT_WAIT_S)
        else:
            return await self._end_overdue(timeout)
        outcome, note = self._judge_exit()
        return self._make_observation(outcome, note)

    def close(self) -> None:
        """Let go of the child: kill what is left of its session and close our ends of its pipes."""
        kill(self._transport)
        if self._server is not None:
            self._server.watch(self._transport.get_pid(), has_ended=True)
        self._transport.close()

    async def _end_overdue(self, timeout: float) -> Observation:
        session = self._transport.get_pid()
        pid = slowest(session)
        where = kernel_state(pid)
        kill(self._transport)
        await asyncio.wait({self._pipes.exited}, timeout=KILL_WAIT_S)
        alive = slowest(session, least=True)
        if not (alive or self._pipes.exited.done()):  # much memory takes a moment to be given back
            await asyncio.wait({self._pipes.exited}, timeout=KILL_WAIT_S)
        if self._pipes.exited.done() and not alive:
            note = f"no answer in {timeout:.3g} s: pid {pid} was in {where}, and was killed"
            return self._make_observation(Outcome.TIMEOUT, note)
        alive = alive or session
        note = f"no answer in {timeout:.3g} s and SIGKILL had no effect: pid {alive} {kernel_state(alive)}"
        return self._make_observation(Outcome.STUCK, note)

    def _judge_exit(self) -> tuple[Outcome, str]:
        rc, errors = self._transport.get_returncode(), self._pipes.errors.text().strip()
        if rc is not None and rc < 0:
            return Outcome.CRASH, f"killed by {_signal_name(-rc)}" + (f": {errors}" if errors else "")
        if rc in (126, 127) and errors.startswith(("env:", f"{_ENV}:")):
            # env(1) could not start it: the answer is about the command, not from it.
            outcome = Outcome.DENIED if rc == 126 else Outcome.MISSING
            return outcome, "; ".join(filter(None, (errors, search_path().said())))
        if (
            rc
            and self.command.argv[0] == sys.executable
            and (ran_out := exhaustion.exhausted_resource(errors))
        ):
            errors = f"could not go on; {ran_out}\n{errors}"
        if not self._pipes.ended.done():
            errors = f"{errors}\na process it started keeps its output open".strip()
        return Outcome.OK, errors

    def _make_observation(self, outcome: Outcome, note: str) -> Observation:
        observation = Observation(
            probe=self.name,
            outcome=outcome,
            text=self._pipes.output.text(),
            rc=self._transport.get_returncode(),
            seconds=round(time.monotonic() - self._began, 3),
            note=note,
            argv=self.command.argv,
            truncated=self._pipes.output.truncated,
        )
        what = (self.name, outcome.value, observation.rc, observation.seconds, len(observation.text), note)
        _log.debug("%s: %s, exit code %s, after %.3f s, %d characters %s", *what)
        return observation


@functools.cache
def _watch_without_threads() -> None:
    """Wait for children by descriptor as Python 3.12 does, not with a thread for each.

    Threads count against the same limits as processes: where a cgroup allows few tasks none could be started.
    """
    if sys.version_info >= (3, 12):
        return
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:  # Linux before 5.3, or a sandbox
        _log.debug("children are waited for with threads: %s", error)
        return
    warnings.filterwarnings("ignore", "A loop is being detached", RuntimeWarning)  # we end before they do
    watcher = asyncio.PidfdChildWatcher()
    watcher.attach_loop(asyncio.get_running_loop())  # later loops are attached when they are set
    asyncio.set_child_watcher(watcher)


async def _fork_or_spawn(
    command: Command, server: Forker | None
) -> tuple[asyncio.SubprocessTransport, Pipes]:
    if server is not None and server.takes(command):
        try:
            return await server.fork(command, Pipes)
        except OSError as error:
            _log.debug("no fork (%s), so a fresh interpreter for %s", error, shlex.join(command.argv))
    talks = command.hold or command.stdin is not None
    if server is None:
        return await spawn(command, Pipes, talks=talks)
    command = replace(command, env={**command.env, **server.mark})
    server.starting += (
        1  # one that is cancelled stays counted: what it has started itself only the mark finds
    )
    try:
        started = await spawn(command, Pipes, talks=talks)
    except OSError:
        server.starting -= 1
        raise
    server.starting -= 1
    return started


async def spawn(
    command: Command, protocol: Callable[[], Protocols], *, talks: bool
) -> tuple[asyncio.SubprocessTransport, Protocols]:
    """A child in a session of its own, with pipes of its own; it can be killed with all it starts."""
    pipe = asyncio.subprocess.PIPE
    _watch_without_threads()
    loop = asyncio.get_running_loop()
    start = loop.subprocess_exec(
        protocol,
        *_launch_argv(command.argv),
        stdin=pipe if talks else asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        start_new_session=True,
        env={**environment(), **command.env},
    )
    starting = loop.create_task(start)
    try:
        await asyncio.wait({starting})
    except asyncio.CancelledError:
        _abandon_start(starting)
        raise
    return starting.result()


def _abandon_start(starting: asyncio.Task[tuple[asyncio.SubprocessTransport, Protocols]]) -> None:
    """End an abandoned start, and its child.

    When it is cancelled, asyncio kills the child and waits for the end of its pipes. At the end of an event
    loop it has also cancelled the task that was to connect them, so it would wait without end: it is
    cancelled again until it ends.
    """
    if not starting.done():
        starting.cancel()
        starting.get_loop().call_later(CANCEL_AGAIN_S, _abandon_start, starting)
    elif not starting.cancelled() and starting.exception() is None:
        transport, _ = starting.result()
        kill(transport)
        transport.close()


def kill(transport: asyncio.SubprocessTransport, number: int = signal.SIGKILL) -> None:
    """Send a signal to a child and all that is left of its session."""
    pid = transport.get_pid()
    with contextlib.suppress(ProcessLookupError):  # it has ended, as most have
        try:
            os.killpg(pid, number)
        except PermissionError as error:  # it has become another user's
            _log.debug("pid %d gets no signal %d: %s", pid, number, error)


def feed(transport: asyncio.SubprocessTransport, data: bytes, *, ends: bool) -> None:
    """Give a child something to read; without `ends` its stdin stays open."""
    pipe = transport.get_pipe_transport(0)
    if isinstance(pipe, asyncio.WriteTransport):
        pipe.write(data)
        if ends:
            pipe.write_eof()


def _launch_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Start foreign commands through env(1): our own exec would block us while PATH crosses a dead mount."""
    ours = argv[0] == sys.executable or not os.path.exists(_ENV)
    return argv if ours else (_ENV, *argv)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
