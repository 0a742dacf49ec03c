"""Ask the nodes that the arguments of a fleet command name, and say who is being waited for."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from typing import TYPE_CHECKING, BinaryIO

from nodedoctor.cli.console import StatusLine, columns, may_narrate

if TYPE_CHECKING:
    from nodedoctor.fleet.gather import Gathered, GatherState, Transport
    from nodedoctor.fleet.model import FleetRequest


def transport(arguments: argparse.Namespace) -> Transport:
    """The way to the nodes that was chosen."""
    if arguments.reports:
        from nodedoctor.fleet.reports.files import Reports

        return Reports(arguments.reports)
    if arguments.ssh is not None:
        from nodedoctor.fleet.transports.ssh import Ssh

        return Ssh(_node_set(arguments.ssh))
    if arguments.slurm is not None:
        from nodedoctor.fleet.transports.slurm.transport import Slurm

        return Slurm(split("--slurm", arguments.slurm))
    if arguments.kube is not None:
        from nodedoctor.fleet.transports.kube import Kube

        return Kube(arguments.kube)
    from nodedoctor.fleet.transports.ray import Ray

    return Ray(arguments.ray, arguments.python)


def _node_set(text: str) -> str:
    """A node set, from where it is written; of a file each line is looked at by itself, to name a bad one."""
    from nodedoctor.fleet.model import FleetError
    from nodedoctor.nodeset import NodeSetError, expand_nodes

    if text != "-" and not text.startswith("@"):
        return text
    try:
        node_set = _all_of(sys.stdin.buffer if text == "-" else text[1:]).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FleetError(f"--ssh {text}: {getattr(error, 'strerror', None) or error}") from None
    lines = [line.partition("#")[0] for line in node_set.split("\n")]
    for number, line in enumerate(lines, 1):
        try:
            expand_nodes(line)
        except NodeSetError as error:
            raise FleetError(f"--ssh {text}, line {number}: {error}") from None
    return "\n".join(lines)


def _all_of(source: BinaryIO | str) -> bytes:
    """What a file of names, or standard input, holds."""
    from nodedoctor import input_files

    return (
        input_files.read(source, pipes=True) if isinstance(source, str) else source.read(input_files.LARGEST)
    )


def split(option: str, text: str) -> tuple[str, ...]:
    """The value of an option as words of a shell; UsageError where it is none."""
    from nodedoctor.engine.session import UsageError

    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None


PROGRESS_AFTER_S = 2.0
"""Seconds until the line names the nodes that are being waited for."""
NAMED = 5
"""Nodes named while they are waited for."""
MKDIR_TIMEOUT_S = 10.0
"""Seconds the folder for --save may take to be made."""


async def gather_nodes(arguments: argparse.Namespace, request: FleetRequest) -> Gathered:
    """Ask the nodes, saying on a terminal who is being waited for."""
    from nodedoctor.fleet.gather import gather

    if arguments.save:
        await make_folder(arguments.save)
    line = _Progress()
    try:
        return await gather(
            transport(arguments),
            request,
            peers=arguments.peers,
            save=arguments.save,
            progress=line.progress if may_narrate(arguments) else None,
        )
    finally:
        line.erase()


async def make_folder(path: str) -> None:
    """Make the folder for --save, by a child: its file system may be dead."""
    from nodedoctor.children import child_process
    from nodedoctor.declare.registry import Command
    from nodedoctor.fleet.model import FleetError

    observation = await child_process.run("mkdir", Command(("mkdir", "-p", "--", path)), MKDIR_TIMEOUT_S)
    if not observation.answered or observation.rc:
        raise FleetError(f"--save {path}: {observation.note or 'no answer'}")


class _Progress(StatusLine):
    """Keeps one line on stderr that says how far we are and who is being waited for."""

    _told = 0.0

    def progress(self, state: GatherState) -> None:
        """Show the line; the names only after a while."""
        from nodedoctor.nodeset import fold
        from nodedoctor.report.inert import inert

        loop = asyncio.get_running_loop()
        self._told = self._told or loop.time()
        names = ""
        if loop.time() - self._told >= PROGRESS_AFTER_S and state.waiting:
            more = f" and {len(state.waiting) - NAMED} more" if len(state.waiting) > NAMED else ""
            names = f", waiting for {inert(fold(state.waiting[:NAMED]))}{more}"
        self.show(f"{state.answered}/{state.expected} nodes{names}"[: columns() - 1])
