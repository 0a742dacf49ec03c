"""`nodedoctor [CHECK ...]`: diagnose this node or a recorded one, show it, keep what was asked to be kept.

What costs time is imported in the functions that need it: a start must be quick.
"""

from __future__ import annotations

import argparse
import sys

from nodedoctor.cli.console import (
    complain,
    emit,
    may_narrate,
    mutter,
    page_shape,
    write_stderr,
)
from nodedoctor.cli.exit_codes import Exit, exit_code
from nodedoctor.cli.request import add_hint, find_problem, make_request
from nodedoctor.errors import NodeDoctorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from nodedoctor import model
    from nodedoctor.engine.session import Request, Session
    from nodedoctor.model import Observation
    from nodedoctor.report.document import Report


def main(words: list[str]) -> int:
    """`nodedoctor [CHECK ...]`: diagnose this node, or a recorded one."""
    from nodedoctor.cli import outputs
    from nodedoctor.cli.arguments import parser

    arguments = parser().parse_args(words)
    if problem := find_problem(arguments):
        return complain(problem)
    if arguments.tui or not (
        arguments.gate
        or arguments.json
        or arguments.text
        or arguments.summary
        or arguments.quiet
        or arguments.verbose
    ):
        from nodedoctor.tui import start

        if arguments.tui and not start.possible(stdout=False):
            return complain("--tui needs a terminal on stdin and stderr, and TERM other than dumb")
        if arguments.tui or start.possible():
            return _on_screen(arguments)
    import gc

    gc.disable()  # it is over before there is anything worth looking for
    outputs.start_debug_log(arguments)
    server = None
    if not arguments.replay:
        from nodedoctor.children.fork_server import ForkServer

        server = ForkServer()  # it imports while we do
    from nodedoctor.engine.session import Session

    try:
        session = Session(make_request(arguments), server)
    except NodeDoctorError as error:
        return complain(add_hint(error, arguments))
    return _print_report(session, arguments)


def _on_screen(arguments: argparse.Namespace) -> int:
    from nodedoctor.cli import outputs
    from nodedoctor.tui import start

    def request() -> Request:
        outputs.start_debug_log(arguments)  # here, as this runs in the process that has the engine
        return make_request(arguments)

    piped = not sys.stdout.isatty()  # asked before: a terminal that hangs up is none any more
    try:
        sitting = start.sit(
            request,
            record=bool(arguments.record),
            mouse=arguments.mouse,
            may_refuse=bool(arguments.replay or arguments.checks or arguments.tag),
        )
    except NodeDoctorError as error:
        return complain(add_hint(error, arguments))
    mutter(start.last_words(sitting))
    report = _redact_report(sitting.report, sitting.observations, arguments)
    if piped:
        arguments.json = True
        if not emit(_render_report(report, arguments)):
            return Exit.OUTPUT
    return sitting.code or _write_outputs(report, sitting.recording, arguments)


def _print_report(session: Session, arguments: argparse.Namespace) -> int:
    from nodedoctor.report import json

    model_report, recording = (_diagnose_recording if arguments.replay else _diagnose_machine)(
        session, arguments
    )
    report = _redact_report(json.document(model_report), model_report.observations, arguments)
    report = _through_journal(report, arguments)
    if arguments.gate:
        from nodedoctor.report.gate import gate_of

        report = json.gated(report, gate_of(report))
    if not emit(_render_report(report, arguments)):
        return Exit.OUTPUT
    return _write_outputs(report, recording, arguments)


def _diagnose_recording(session: Session, arguments: argparse.Namespace) -> tuple[model.Report, bytes]:
    """What a recording shows, and the recording of that; all of it is known, so nothing is waited for."""
    from nodedoctor.engine.pending import run_sync

    diagnosis = session.diagnosis()
    report = run_sync(diagnosis.run())
    return report, session.recording(diagnosis) if arguments.record else b""


def _diagnose_machine(session: Session, arguments: argparse.Namespace) -> tuple[model.Report, bytes]:
    """What this machine shows, and the recording of it."""
    from nodedoctor.start_up import import_asyncio

    import_asyncio()  # only now: the first probes run by themselves meanwhile
    import asyncio

    from nodedoctor.cli import headless

    reports: list[tuple[model.Report, bytes]] = []

    async def run() -> None:
        # Not returned: asyncio.run() writes out what it returns, a whole report, as it gives back SIGINT.
        reports.append(
            await headless.run(session, progress=may_narrate(arguments), record=bool(arguments.record))
        )

    asyncio.run(run())
    return reports[0]


def _through_journal(report: Report, arguments: argparse.Namespace) -> Report:
    """The report with what earlier runs found, once a line about it is in the journal that was asked for.

    A journal that cannot be read or written costs nothing but a line on stderr.
    """
    from nodedoctor import journal

    folder = journal.folder_of(arguments.journal)
    if not folder or arguments.replay:
        return report
    import asyncio

    from nodedoctor.accept.document import rates_of
    from nodedoctor.cli import headless
    from nodedoctor.recurrence import with_recurrences

    with_serials = not arguments.redact  # then they are made up, and the next GPU may have the same

    async def exchange() -> tuple[list[Mapping[str, Any]], str]:
        entries, _ = await headless.read_journal(folder)  # the first run finds none
        command = "gate" if arguments.gate else "run"
        problem = await headless.keep_in_journal(
            folder, report, command, rates_of(report), with_serials=with_serials
        )
        return entries, problem

    entries, problem = asyncio.run(exchange())
    if problem:
        write_stderr(f"{folder}: {problem}")
    return with_recurrences(report, entries, with_serials=with_serials)


def _redact_report(
    report: Report, observations: Iterable[Observation], arguments: argparse.Namespace
) -> Report:
    """The report as it may leave the node: with --redact it has no names."""
    if not arguments.redact:
        return report
    from nodedoctor.redact import Redaction

    return Redaction.of(observations, report["node"]).report(report)


def _write_outputs(report: Report, recording: bytes, arguments: argparse.Namespace) -> int:
    """Keep the recording and the other files that were asked for, and say the verdict as a number."""
    from nodedoctor.cli import outputs

    failed = outputs.write_files({arguments.record: recording}) if arguments.record else Exit.OK
    if arguments.record and arguments.redact and not (failed or arguments.json or arguments.quiet):
        write_stderr(f"read {arguments.record} before you send it: free text in it may still contain names")
    failed = outputs.write(arguments, lambda: report) or failed
    if failed:
        return failed
    if "gate" in report:
        return report["gate"]["exit"]
    return Exit.OK if arguments.exit_zero else exit_code(report, arguments.fail_on or "fail")


def _render_report(report: Report, arguments: argparse.Namespace) -> str:
    if arguments.json:
        from nodedoctor.report import json

        return json.render(report) + "\n"
    if "gate" in report:
        from nodedoctor.report import gate

        return gate.render(report, report["gate"])
    if arguments.summary:
        from nodedoctor.report import summary

        return summary.render(report)
    from nodedoctor.report import brief, text

    view = text.render if arguments.verbose else brief.render
    width, colour = page_shape(110, piped=80)
    return view(report, width=width, colour=colour, quiet=arguments.quiet)
