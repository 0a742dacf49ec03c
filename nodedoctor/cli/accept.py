"""`nodedoctor accept`: is this node as fast as it must be? Two minutes at most, on idle GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodedoctor import input_files, journal
from nodedoctor.accept import document
from nodedoctor.accept.document import CHECKS
from nodedoctor.cli import endings, headless, outputs
from nodedoctor.cli.arguments import add_training_python, command_words, seconds
from nodedoctor.cli.console import Parser, columns, complain, emit, write_stderr
from nodedoctor.cli.exit_codes import Exit
from nodedoctor.declare.registry import Options
from nodedoctor.engine.session import Request, Session
from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import loaded
from nodedoctor.report import json as report_json
from nodedoctor.report.accept_page import accept_text, code_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from nodedoctor.report.document import Report

DEADLINE_S = 120.0
"""Seconds for all measurements; ours: what is not measured by then is named."""


def main(words: list[str]) -> int:
    """Measure, show the table, keep the rates; exits as a gate does: 0, 2, 3 or 4."""
    arguments = parser().parse_args(words)
    if problem := outputs.no_folder(arguments):
        return complain(problem)
    folder = journal.folder_of(arguments.journal)
    try:
        report = _saved_document(arguments.report) if arguments.report else _measure_node(arguments)
    except NodeDoctorError as error:
        return complain(error)
    if str(report["schema"]).startswith("nodedoctor.accept/"):
        return _show_acceptance(report, arguments)
    past = endings.run(headless.read_journal(folder))[0] if folder else []  # the first run has none
    code = _show_acceptance(
        document.make_document(report, journal.earlier_rates(past, report["started"])), arguments
    )
    if folder and not (arguments.replay or arguments.report):
        problem = endings.run(headless.keep_in_journal(folder, report, "accept", document.rates_of(report)))
        if problem:
            write_stderr(f"{folder}: {problem}")
    return code


def _show_acceptance(acceptance: Mapping[str, Any], arguments: Namespace) -> int:
    """On the screen where there is one, then as text or JSON, and as a page; returns the exit code."""
    from nodedoctor.tui import start

    outranks = 0
    if not (arguments.json or arguments.text) and start.possible():
        outranks = start.show_measured(acceptance) or 0
    if arguments.json:
        form = f"{json.dumps(acceptance, indent=1)}\n"
    else:
        form = accept_text(acceptance, min(columns(), 110))
    if not emit(form):
        return Exit.OUTPUT
    return outputs.write(arguments, lambda: acceptance) or outranks or code_of(acceptance)


def _measure_node(arguments: Namespace) -> Report:
    """The report of the measurements of this node, or of a recorded one."""
    options = Options(deep=True, python=arguments.python, exec_prefix=command_words(arguments.exec))
    replay = Path(arguments.replay) if arguments.replay else None
    session = Session(
        Request(words=CHECKS, options=options, deadline=arguments.deadline, replay=replay, preview=True)
    )
    report, _ = endings.run(headless.run(session, progress=not arguments.json))
    return report_json.document(report)


def _saved_document(path: str) -> Mapping[str, Any]:
    """The report in a file, of a run with --deep, or what `accept --json` printed."""
    from nodedoctor.cli.compare import document_of

    try:
        saved = loaded(input_files.read(path, pipes=True))
        if isinstance(saved, dict) and str(saved.get("schema")).startswith("nodedoctor.accept/"):
            return saved
    except (OSError, ValueError):  # a recorded node, or a file that document_of complains of
        pass
    return document_of(Path(path))


def parser() -> Parser:
    """The parser of `nodedoctor accept`."""
    parser = Parser(
        prog="nodedoctor accept",
        description="Measure an idle node: copies between GPUs and with the host, GPU memory, GEMM, "
        "collectives, RDMA loopback, disks (a file without a name of 1 GiB at most), the processors' memory. "
        "Each rate is compared with a floor that operators ship for this board, "
        "with its peers on this node, and with its past in the journal.",
        epilog="exit codes: 0 accepted, 2 a floor is not met or data was wrong, 3 not all was measured (GPUs "
        "in use are never loaded), 4 slower than peers, past or a usual floor",
    )
    add: Any = parser.add_argument
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    form.add_argument("--text", action="store_true", help="print readable text on stdout; open no screen")
    outputs.add(parser, "html")
    add_training_python(parser)
    add(
        "--journal",
        default="",
        metavar="DIR",
        help="compare with the journal in this directory; append to it",
    )
    add("--deadline", type=seconds, default=DEADLINE_S, metavar="SECONDS", help="time limit (default 120)")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--replay", default="", metavar="PATH", help="judge what a recorded node had measured"
    )
    source.add_argument(
        "--report",
        default="",
        metavar="FILE",
        help="judge what `nodedoctor --deep --json` measured, or show what `accept --json` printed",
    )
    return parser
