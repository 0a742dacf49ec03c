"""`nodedoctor run -- COMMAND`: arm it, start it as a shell would, watch it, and say why it hung or died."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from types import FrameType

from nodedoctor import single_file
from nodedoctor.blackbox import arguments as words_of
from nodedoctor.blackbox import decision, exec_fallback, finish, job_environment, stacks, start
from nodedoctor.blackbox.attach import pace, settings, teller
from nodedoctor.blackbox.folder import Folder, FolderProblem
from nodedoctor.blackbox.watch import Watch
from nodedoctor.children import exhaustion
from nodedoctor.cli.console import write_stderr
from nodedoctor.json_shapes import Json
from nodedoctor.probes.job.alive import lives

KILLING = 30.0
"""Seconds between SIGTERM and SIGKILL when --kill-after ends a job: as long as Slurm's KillWait."""
SIGNS = 2
"""Signs of a hang that --kill-after wants before it ends a job, of the three in samples/signs.py."""
LOOKS, LOOK_AGAIN = 2, 30.0
"""Looks for them at least, and seconds between two: a loop that polls is caught elsewhere now and then."""
DRAINING = 2.0
"""Seconds in which the pump may pass on what the command printed last; who daemonised may hold it open."""
REAPING = 5.0
"""Seconds between two looks for orphans where we are process 1."""

HEARD = (*start.FORWARDED, signal.SIGCHLD)
"""Signals that the loop hears while it follows the command."""


def main(words: list[str]) -> int:
    """Run the command; its exit code, or our end by its signal."""
    arguments = words_of.run().parse_args(words)
    command = exec_fallback.command_of(arguments)
    if not command:
        return exec_fallback.no_command()
    try:
        job = _start_job(command, arguments)
    except exec_fallback.NotStarted as problem:
        refused = problem
    except Exception as error:  # a watch that cannot begin is no reason not to train
        _say_unwatched(error, "the command is not watched")
        refused = exec_fallback.exec_command(command)
    else:
        status = _follow_job(job)
        if not arguments.decide:
            return start.die_as(status)
        return decision.end(status, job.verdict, arguments.exclude)
    write_stderr(f"run: {refused}")
    return refused.code


def _follow_job(job: StartedJob) -> int:
    """The command's wait status, whatever becomes of the watch."""
    try:
        asyncio.run(job.follow())
    except Exception as error:
        _say_unwatched(error, "the command was not watched to its end")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    status = job.wait()
    start.take_terminal()
    try:
        job.last_words(status)
    except Exception as error:
        _say_unwatched(error, "no verdict")
    return status


def _start_job(command: Sequence[str], arguments: argparse.Namespace) -> StartedJob:
    """The command, running; whatever is raised but NotStarted, it does not run yet."""
    outputs = start.outputs()
    reading, writing = os.pipe() if outputs.pumped else (-1, -1)
    folder = _folder(arguments.dir, reading)
    _close_descriptor(reading)
    environ = dict(os.environ)
    if folder is not None and not arguments.no_arm:
        environ |= _arm_job(folder, arguments)
    signal.pthread_sigmask(signal.SIG_BLOCK, start.FORWARDED)  # until follow() can hand them on
    pump = start.pump(outputs, writing if folder is not None else -1)
    _close_descriptor(writing)
    pid = start.spawn(command, environ, outputs)
    if pump is not None:
        start.begin(pump, pid)
    files = list(outputs.files)
    if folder is not None and outputs.pumped:
        files.append((str(folder.path / "logs/output.log"), 0))
    return StartedJob(pid, pump, folder, arguments, files, environ.get(job_environment.REGISTERED, ""))


def _say_unwatched(error: Exception, what: str) -> None:
    """Say what we failed at and for which limit, if that can be; where it is a bug, with its place."""
    with contextlib.suppress(Exception):
        limit = exhaustion.exhausted_resource(f"{type(error).__name__}: {error}")
        if limit is None and not isinstance(error, OSError):
            traceback.print_exc()
        write_stderr(f"run: {what}: {error if limit is None else limit.words}")


class StartedJob:
    """A command that was started, and what watches it."""

    def __init__(
        self,
        pid: int,
        pump: subprocess.Popen[bytes] | None,
        folder: Folder | None,
        arguments: argparse.Namespace,
        files: list[tuple[str, int]],
        stacks: str,
    ) -> None:
        self.pid = pid
        self._pump = pump
        self._folder = folder
        self._arguments = arguments
        self._files = files
        self._stacks = stacks
        self._began = time.monotonic()
        self._say = teller(sys.stderr)
        self.verdict: Json | None = None
        self._ended: int | None = None
        self._status: asyncio.Future[int]
        self._watch: Watch | None = None
        self._killing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    async def follow(self) -> None:
        """Until the command has ended."""
        loop = asyncio.get_running_loop()
        self._status = loop.create_future()
        loop.add_signal_handler(signal.SIGCHLD, self._child_changed)
        for number in start.FORWARDED:
            if signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup(1) means it, for the command, too
            loop.add_signal_handler(number, self._forward_signal, number)
        # Many signals at once fill the pipe that wakes the loop, which is awake then: no error of the job.
        signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
        self._child_changed()
        watching = asyncio.ensure_future(self._watch_job())
        reaping = asyncio.ensure_future(_reap_orphans(self.pid)) if os.getpid() == 1 else None
        try:
            await self._status
        finally:
            if self._guard is not None:
                self._guard.communicate(b"1")
            if self._watch is not None:
                self._watch.stop()
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            if reaping is not None:
                reaping.cancel()
            if self._watch is not None:
                await self._watch.close()
                await finish.await_recording(self._watch.recording, self._say)
            if self._stacks:
                await stacks.drop(self._stacks)
            # The loop closes what a signal is written to before it gives up hearing them; Python's word on
            # that would be in the job's output as an error of the job.
            signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
            for number in HEARD:
                loop.remove_signal_handler(number)
            signal.set_wakeup_fd(-1)

    def wait(self) -> int:
        """The command's wait status; waits for it where the watch has not."""
        if self._ended is None:
            for number in start.FORWARDED:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, self._hand_on)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
            _, self._ended = os.waitpid(self.pid, 0)
        return self._ended

    def _hand_on(self, number: int, _: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def last_words(self, status: int) -> None:
        """Close the folder and say what became of the job: one line when it ended well."""
        if self._pump is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._pump.wait(DRAINING)
        if self._folder is None:
            return
        self.verdict = finish.report_end(
            self._watch, self._folder, status, self._files, self._say, self._began
        )
        self._folder.close()

    async def _watch_job(self) -> None:
        if self._folder is None:
            return
        wanted: dict[str, object] = {
            "pids": [self.pid], "files": self._files, "stacks": self._stacks
        }  # fmt: skip
        if job := os.environ.get("SLURM_JOB_ID"):
            wanted["slurm"] = job
        if path := os.environ.get("NODEDOCTOR_HEARTBEAT"):
            wanted["heartbeat"] = os.path.abspath(path)
        arguments = self._arguments
        tell: Callable[[str], None] = self._say if os.isatty(2) else _only_hangs(self._say)
        self._watch = Watch(
            wanted, self._folder, tell, settings(arguments), pace(arguments),
            on_hang=arguments.on_hang, caught=self._plan_kill,
        )  # fmt: skip
        await self._watch.run()

    def _plan_kill(self) -> None:
        limit = self._arguments.kill_after
        if self._killing is not None:
            self._killing.cancel()
        if limit is not None:
            self._killing = asyncio.ensure_future(self._kill_job(limit))

    async def _kill_job(self, limit: words_of.KillAfter) -> None:
        """End the job a while after a hang, unless it went on or little but the time speaks for the hang."""
        watch = self._watch
        assert watch is not None
        hang, before = watch.hangs[-1], watch.hangs[-1].seen
        needed = 1 if limit.force else SIGNS
        ends = time.monotonic() + 2 * limit.seconds
        await asyncio.sleep(limit.seconds)
        for look in itertools.count(1):
            before, signs = await watch.signs(hang, before)
            if watch.hangs[-1] is not hang:  # it went on
                return
            if signs.met >= needed:
                break
            remaining = ends - time.monotonic()
            if remaining <= 0 and look >= LOOKS:
                self._say(f"the job is not ended (--kill-after {limit.seconds:g}): {signs.against}")
                return
            await asyncio.sleep(min(max(remaining, 0.0), LOOK_AGAIN))
        self._say(f"ending the job {limit.seconds:g} s after the hang was seen (--kill-after)")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        await asyncio.sleep(KILLING)
        # torchrun gives each rank a session of its own, and one that is stopped does not end by SIGTERM. The
        # command goes first: one that saw its ranks end might itself end with 0, as if all were well.
        for pid in (-self.pid, *(rank.pid for rank in watch.living)):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _forward_signal(self, number: int) -> None:
        """Hand a signal on that was sent to us; of an end that is near, keep what there is already now."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        if number in (signal.SIGTERM, signal.SIGHUP):
            self._guard = self._guard or start.guard(self.pid)
        if number in (signal.SIGTERM, signal.SIGHUP) and self._watch is not None and self._folder is not None:
            self._folder.write("run.json", finish.run_json(self._watch, self._folder, signal=number))
            if self._closing is None and not self._watch.hangs:
                self._closing = asyncio.ensure_future(finish.short(self._folder, self._files))

    def _child_changed(self) -> None:
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        except ChildProcessError:
            pid, status = self.pid, 0
        if pid == 0 or self._status.done():
            return
        if os.WIFSTOPPED(status):
            self._stop_with_it()
        elif os.WIFEXITED(status) or os.WIFSIGNALED(status):
            self._ended = status
            self._status.set_result(status)

    def _stop_with_it(self) -> None:
        """Stop as the command did, so that the shell has its terminal; go on with it when the shell says
        so."""
        start.take_terminal()
        os.killpg(os.getpgrp(), signal.SIGSTOP)
        if start.in_foreground():
            start.give_terminal(self.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)


def _only_hangs(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Where stderr is a file, the job's output has it too: only a hang and what follows it is worth a
    line."""
    heard = False

    def say_some(line: str) -> None:
        nonlocal heard
        heard = heard or line.startswith(("HANG", "PERHAPS A HANG"))
        if heard:
            tell(line)

    return say_some


def _folder(parent: str, copy: int) -> Folder | None:
    try:
        return Folder.make(parent, copy=copy if copy >= 0 else None)
    except FolderProblem as problem:
        write_stderr(f"run: {problem}; the job is started without being watched")
        return None


def _arm_job(folder: Folder, arguments: argparse.Namespace) -> dict[str, str]:
    """What is set for the job, which also goes to env.txt."""
    hook = ""
    if not arguments.no_stack_hook:
        hook = str(job_environment.HOOK)
        if single_file.path() is not None:
            folder.write("hook/sitecustomize.py", (job_environment.HOOK / "sitecustomize.py").read_bytes())
            hook = str(folder.path / "hook")
    stamp = folder.path.name.split("-")[-2] + f"-{os.getpid()}"
    armed = job_environment.arm(
        os.environ, str(folder.path), stamp=stamp, hook=hook, port=job_environment.free_port()
    )
    folder.write("env.txt", job_environment.text(armed))
    return dict(armed.variables)


async def _reap_orphans(ours: int) -> None:
    """As process 1: collect what was left to us and is dead at two looks; our own children go sooner."""
    before: set[int] = set()
    while True:
        await asyncio.sleep(REAPING)
        dead = {pid for pid in _child_pids() if pid != ours and not lives(pid)}
        for pid in dead & before:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        before = dead


def _child_pids() -> list[int]:
    with contextlib.suppress(OSError), open("/proc/self/task/1/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]
    return []


def _close_descriptor(number: int) -> None:
    if number >= 0:
        os.close(number)
