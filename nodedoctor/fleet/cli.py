"""`nodedoctor fleet`: many nodes asked, judged together, and shown; see arguments.py for the words."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
from typing import TYPE_CHECKING, Any

from nodedoctor.cli.console import complain, page_shape, write_stderr
from nodedoctor.cli.exit_codes import Exit, severity_code
from nodedoctor.errors import NodeDoctorError
from nodedoctor.fleet.arguments import parser
from nodedoctor.fleet.asking import gather_nodes, make_folder, split, transport
from nodedoctor.fleet.ending import Lists, conclude

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from nodedoctor.fleet.gather import Gathered
    from nodedoctor.fleet.model import Fleet, FleetRequest

GATE_DEADLINE = 20.0
"""Seconds that a node has with --gate: its deadline and the way to it (chosen by us, no external source)."""


def main(words: list[str]) -> int:
    """Judge each node by itself and beside the others, or measure it, alone or in pairs; the exit code."""
    arguments = parser().parse_args(words)
    if arguments.pairs:
        from nodedoctor.pairs import cli as pairs

        return pairs.run(arguments)
    if arguments.accept:
        from nodedoctor.fleet import accept

        return accept.run(arguments)
    return run(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Ask the nodes, show what they said; returns the exit code."""
    from nodedoctor.cli import outputs
    from nodedoctor.fleet.document import document

    on_screen = _has_screen(arguments)  # asked before: a terminal that hangs up is none any more
    try:
        _check_arguments(arguments)
        outputs.start_debug_log(arguments)
        gathered = (
            _on_screen(arguments)
            if on_screen
            else asyncio.run(gather_nodes(arguments, _fleet_request(arguments)))
        )
    except NodeDoctorError as error:
        return complain(error)
    fleet = gathered.fleet
    too_many = _too_many(fleet, arguments)
    lists = Lists(fleet.passing, fleet.failing, too_many)
    render = None if on_screen else _render_fleet
    outranks = conclude(arguments, document(fleet), lists, render, gathered.ended_by)
    if outranks is not None:
        return outranks
    if fleet.gated and arguments.need is not None:
        return _exit_code(fleet, arguments.need)
    if too_many:
        return Exit.UNKNOWN
    return (
        _exit_code(fleet, len(fleet.nodes)) if fleet.gated else exit_code(fleet, arguments.fail_on or "fail")
    )


def _exit_code(fleet: Fleet, needed: int) -> int:
    """Whether so many nodes pass the gate."""
    passing = len(fleet.passing)
    if passing >= needed:
        return Exit.OK
    write_stderr(f"{passing} of {len(fleet.nodes)} nodes pass the gate, {needed} needed")
    return Exit.FAIL


def exit_code(fleet: Fleet, fail_on: str = "fail") -> int:
    """The verdict as a number, as for one node; a node without a report counts as broken."""
    from nodedoctor.model import Severity

    severities = {problem.counted for node in fleet.nodes for problem in node.problems}
    severities |= {node.severity for node in fleet.nodes}
    severities |= {Severity.of(oddity.status) for oddity in fleet.oddities}
    return severity_code(severities, fail_on)


def _check_arguments(arguments: argparse.Namespace) -> None:
    """Complain of what can be known to be wrong before anybody is asked."""
    from nodedoctor.cli import outputs
    from nodedoctor.engine.plugins import discover
    from nodedoctor.engine.session import UsageError, select, since_when

    if problem := outputs.no_folder(arguments, "passing", "failing", "pyz", "debug_log"):
        raise UsageError(problem)
    if arguments.redact and arguments.save:
        raise UsageError(
            "--save keeps the nodes' reports as they are, with all names: leave it or --redact out"
        )
    if problem := _written_twice(arguments) or _no_gate(arguments):
        raise UsageError(problem)
    for option, is_one in (("slurm", _is_options), ("ray", _is_address)):
        value = getattr(arguments, option)
        if value and not is_one(value):
            raise UsageError(f"--{option} {value}: put CHECK before --{option}, or write --{option}=...")
    if arguments.reports:
        live_only = (
            "checks",
            "tag",
            "expect",
            "passive",
            "deep",
            "preview",
            "peers",
            "since",
            "python",
            "exec",
        )
        used = [name for name in (*live_only, "save") if getattr(arguments, name)]
        if used:
            name = "CHECK" if used[0] == "checks" else f"--{used[0]}"
            raise UsageError(f"{name} is for nodes that are asked now; --reports are of nodes that were")
        return
    if arguments.checks or arguments.tag:
        select(discover(), arguments.checks, arguments.tag, deep=arguments.deep)
    if arguments.since:
        from nodedoctor.engine.run import utc_now

        since_when(arguments.since, utc_now())


def _no_gate(arguments: argparse.Namespace) -> str:
    """What is wrong with options beside --gate, which has its own exit codes."""
    if not arguments.gate:
        return "--need is for --gate" if arguments.need is not None else ""
    options = ("fail_on", "exit_zero", "report_only", "deep")
    used = [name for name in options if getattr(arguments, name)]
    return f"--{used[0].replace('_', '-')} has no meaning with --gate" if used else ""


def _written_twice(arguments: argparse.Namespace) -> str:
    """What is wrong where two options name one file: the later would take the place of the earlier."""
    by_path: dict[str, str] = {}
    for option in ("passing", "failing", "html", "junit"):
        if path := getattr(arguments, option):
            first = by_path.setdefault(os.path.abspath(path), option)
            if first != option:
                return f"--{first} and --{option} name the same file: {path}"
    return ""


def _is_options(text: str) -> bool:
    return text.lstrip().startswith("-")


def _is_address(text: str) -> bool:
    return text == "auto" or ":" in text


def _has_screen(arguments: argparse.Namespace) -> bool:
    from nodedoctor.tui import start

    return start.possible() and not (arguments.json or arguments.text or arguments.quiet or arguments.redact)


def _on_screen(arguments: argparse.Namespace) -> Gathered:
    """Show the nodes as they answer; the reports lie in a folder, so that each of them can be opened."""
    import tempfile

    from nodedoctor.tui import fleet

    with contextlib.ExitStack() as stack:
        if arguments.save:
            asyncio.run(make_folder(arguments.save))
        elif not arguments.reports:
            arguments.save = stack.enter_context(tempfile.TemporaryDirectory(prefix="nodedoctor-fleet-"))
        return fleet.show(
            transport(arguments), _fleet_request(arguments), peers=arguments.peers, save=arguments.save
        )


def _fleet_request(arguments: argparse.Namespace) -> FleetRequest:
    """What every node is asked. Files of expectations are read here: the nodes do not have them."""
    from nodedoctor.engine.session import DEADLINE, DEADLINE_DEEP
    from nodedoctor.expectations import expectations
    from nodedoctor.fleet.model import FleetRequest

    words = ["--json"]
    words += [f"--{flag}" for flag in ("gate", "passive", "deep", "preview") if getattr(arguments, flag)]
    for name in ("since", "python", "exec"):
        if value := getattr(arguments, name):
            words.append(f"--{name}={value}")
    words += [f"--tag={tag}" for tag in arguments.tag]
    words += [f"--expect={key}={value}" for key, value in expectations(arguments.expect).items()]
    split("--exec", arguments.exec)
    usual = DEADLINE_DEEP if arguments.deep else GATE_DEADLINE if arguments.gate else DEADLINE
    return FleetRequest(
        (*words, *arguments.checks), arguments.deadline or usual, arguments.width, arguments.pyz or None
    )


def _too_many(fleet: Fleet, arguments: argparse.Namespace) -> str:
    """Why --failing is not written although it was asked for; empty when it is."""
    from nodedoctor.fleet import ending

    if not arguments.failing or arguments.need is not None:
        return ""
    return ending.tripped(ending.causes_of(fleet), len(fleet.nodes), arguments.max_failing)


def _render_fleet(fleet_doc: Mapping[str, Any], arguments: argparse.Namespace) -> str:
    if arguments.json:
        from nodedoctor.fleet import document

        return document.render(fleet_doc) + "\n"
    from nodedoctor.fleet import text

    width, colour = page_shape(140)
    return text.render(
        fleet_doc, width=width, colour=colour, quiet=arguments.quiet, again=_asking_command(arguments)
    )


def _asking_command(arguments: argparse.Namespace) -> Callable[[str, Iterable[str]], str] | None:
    """The command that asks one node again by the way that worked; None where nodes have no names for it."""
    from nodedoctor import single_file

    if arguments.ssh is None and arguments.slurm is None:
        return None
    ours = single_file.path()
    program = ["python3", str(ours)] if ours else ["nodedoctor"]
    brought = [f"--pyz={arguments.pyz}"] if arguments.pyz else []

    def ask_again(host: str, checks: Iterable[str]) -> str:
        way = ["--ssh", host]
        if arguments.slurm is not None:
            way = [f"--slurm={f'{arguments.slurm} -w {host}'.strip()}"]
        return shlex.join([*program, "fleet", *way, *brought, *checks])

    return ask_again
