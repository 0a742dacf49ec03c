"""`nodedoctor watch --job|--slurm|--ray`: watch a job that runs already, say what is seen, keep it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from nodedoctor.blackbox import finish, stacks
from nodedoctor.blackbox.folder import Folder
from nodedoctor.blackbox.samples.sampler import SLOW
from nodedoctor.blackbox.samples.suspected_hang import ProgressSettings
from nodedoctor.blackbox.watch import Watch
from nodedoctor.cli.console import complain
from nodedoctor.cli.endings import on_ending
from nodedoctor.cli.exit_codes import Exit
from nodedoctor.errors import NodeDoctorError
from nodedoctor.probes.job.alive import lives


def main(words: list[str]) -> int:
    """Run watch; returns the exit code. Without a job it is the screen."""
    from nodedoctor.blackbox import arguments as words_of

    arguments = words_of.watch().parse_args(words)
    wanted = which(arguments)
    if wanted is None:
        from nodedoctor.tui import start

        return start.watch()
    if arguments.job and not lives(arguments.job):
        return complain(f"--job {arguments.job}: there is no such process")
    try:
        folder = Folder.make(arguments.dir)
    except NodeDoctorError as error:
        return complain(error)
    return asyncio.run(_watch_job(arguments, wanted, folder))


def which(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """What the sampler is to look for; None when no job was named."""
    if arguments.job:
        wanted: dict[str, Any] = {"pids": [arguments.job]}
    elif arguments.slurm:
        wanted = {"slurm": arguments.slurm}
    elif arguments.ray:
        wanted = {"ray": True}
    else:
        return None
    if path := os.environ.get("NODEDOCTOR_HEARTBEAT"):
        wanted["heartbeat"] = os.path.abspath(path)
    return wanted


def settings(arguments: argparse.Namespace) -> ProgressSettings:
    """What was asked for about hangs."""
    return ProgressSettings(arguments.hang_after, arguments.start_grace, arguments.progress)


def pace(arguments: argparse.Namespace) -> float:
    """Seconds between two looks: a short silence is only seen by looking often."""
    return min(SLOW, max(0.5, arguments.hang_after / 4)) if arguments.hang_after else SLOW


def teller(stream: Any) -> Callable[[str], None]:
    """Says lines with the time of day in front; where they cannot be written nothing else changes."""
    from nodedoctor.report.inert import inert

    def say(line: str) -> None:
        clock = time.strftime("%H:%M:%S ") if not line.startswith(" ") else " " * 9
        try:
            stream.write(f"nodedoctor {clock}{inert(line)}\n")
            stream.flush()
        except (OSError, ValueError):
            pass

    return say


async def _watch_job(arguments: argparse.Namespace, wanted: dict[str, Any], folder: Folder) -> int:
    report = teller(sys.stdout)
    watch = Watch(wanted, folder, report, settings(arguments), pace(arguments), on_hang=arguments.on_hang)
    ended_by = 0
    task = asyncio.ensure_future(watch.run())

    def end(number: int) -> None:
        nonlocal ended_by
        ended_by = number
        watch.stop()
        task.cancel()

    with on_ending(end, signal.SIGINT):
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        finally:
            await watch.close()
        if not watch.appeared:
            report("no longer waiting" if ended_by else "nothing of the job came: no verdict")
        else:
            report("no longer watching; the job goes on" if ended_by else "the job has ended")
        failed = await finish.attached(watch, folder, report, has_ended=watch.appeared and not ended_by)
        await finish.await_recording(watch.recording, report)
        if stack_folder := stacks.folder_of(watch.met):
            await stacks.drop(stack_folder)
        folder.close()
    if ended_by and not watch.hangs:
        return 128 + ended_by
    if not watch.appeared:
        return Exit.UNKNOWN
    return Exit.FAIL if failed else Exit.OK
