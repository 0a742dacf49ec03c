"""The words of a command line about a decision: reports of nodes, and the list of those left out."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterable, Sequence

from nodedoctor import input_files
from nodedoctor.cli.exit_codes import Exit
from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.timeline.node_reports import NodeFaults, NotANode, read_node
from nodedoctor.triage.verdict.decision.resubmit import Witness

_CODES = {
    "none": Exit.OK,
    "restart": Exit.RESTART,
    "restart-without": Exit.RESTART_WITHOUT,
    "stop": Exit.STOP,
}


def add_decision(parser: argparse.ArgumentParser) -> None:
    """Offer `--decide`, `--exclude` and `--reports`."""
    group = parser.add_argument_group("what to do with the job")
    add = group.add_argument
    add(
        "--decide",
        action="store_true",
        help="print the decision in one line and end with its exit code (with --json: in the document)",
    )
    add(
        "--exclude",
        default="",
        metavar="FILE",
        help="with --decide: add the nodes to leave out to FILE, as sbatch --exclude reads it",
    )
    add(
        "--reports",
        action="append",
        default=[],
        metavar="PATH",
        help="as --node, of many nodes: reports and folders of them, as fleet --save leaves them",
    )


def decision_problem(arguments: argparse.Namespace) -> str:
    """What is wrong with the words about a decision."""
    if arguments.decide and arguments.live is not None:
        return "triage: --decide is for a job that has ended; leave --live out"
    if arguments.exclude and not arguments.decide:
        return "triage: --exclude is written with --decide"
    if arguments.exclude and arguments.redact:
        return "triage: --exclude has the true names of nodes; leave --redact out"
    return ""


def read_nodes(arguments: argparse.Namespace) -> list[NodeFaults]:
    """The reports and recordings of nodes that were given."""
    return [read_node(path) for path in (*arguments.node, *reports_in(arguments.reports))]


def code_of(decision: str) -> int:
    """The exit code of a decision; of one that is not known, that of a look."""
    return _CODES.get(decision, Exit.LOOK)


def write_exclude(path: str, hosts: Sequence[str]) -> str:
    """Add nodes to the list at `path`, if there is one; why that could not be done."""
    from nodedoctor.cli import outputs

    if not path:
        return ""
    try:
        data = exclude_list(path, hosts)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return "the nodes to leave out are not written" if outputs.write_files({path: data}, {path}) else ""


LARGEST = 1 << 20
"""Bytes of a list of nodes; ten thousand names have 200 KB. Ours."""


def reports_in(paths: Iterable[str]) -> list[str]:
    """The reports among these files and folders, by name; NotANode for a path that is not there."""
    files: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            files.append(path)
            continue
        try:
            names = sorted(os.listdir(path))
        except OSError as error:
            raise NotANode(f"{path}: {error.strerror}") from None
        files += [os.path.join(path, name) for name in names if name.endswith(".json")]
    return files


def witness_of(nodes: Iterable[NodeFaults]) -> Witness:
    """Why no new job may start on each node, '' where one may; the stricter of two reports of one."""
    reasons: dict[str, str] = {}
    for node in nodes:
        if node.host:
            host = short_host(node.host)
            reasons[host] = reasons.get(host) or node.keeps_jobs_away
    return reasons


def exclude_list(path: str, hosts: Sequence[str]) -> bytes:
    """The list at `path` with these nodes added, one a line: its other lines stay. OSError if unreadable."""
    lines: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        lines = input_files.read(path, largest=LARGEST).decode(errors="replace").splitlines()
    return "".join(f"{line}\n" for line in dict.fromkeys((*lines, *hosts))).encode()
