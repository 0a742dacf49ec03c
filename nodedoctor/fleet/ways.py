"""The ways to the nodes that the command line names: reports, ssh, Slurm, Kubernetes, Ray."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from nodedoctor.fleet.gather import Transport


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
        told = _all_of(sys.stdin.buffer if text == "-" else text[1:]).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FleetError(f"--ssh {text}: {getattr(error, 'strerror', None) or error}") from None
    lines = [line.partition("#")[0] for line in told.split("\n")]
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
