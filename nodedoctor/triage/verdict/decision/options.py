"""The words of a command line about a decision, and what becomes of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from nodedoctor.cli.exit_codes import Exit
from nodedoctor.triage.timeline.node_reports import NodeFaults, read_node
from nodedoctor.triage.verdict.decision import witnesses

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
    return [read_node(path) for path in (*arguments.node, *witnesses.reports_in(arguments.reports))]


def code_of(decision: str) -> int:
    """The exit code of a decision; of one that is not known, that of a look."""
    return _CODES.get(decision, Exit.LOOK)


def write_exclude(path: str, hosts: Sequence[str]) -> str:
    """Add nodes to the list at `path`, if there is one; why that could not be done."""
    from nodedoctor.cli import outputs

    if not path:
        return ""
    try:
        data = witnesses.exclude_list(path, hosts)
    except OSError as error:
        return f"{path}: {error.strerror}"
    return "the nodes to leave out are not written" if outputs.write_files({path: data}, {path}) else ""
