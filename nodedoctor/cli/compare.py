"""`nodedoctor compare BEFORE AFTER`: two reports or recorded nodes read, compared and shown."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodedoctor import input_files
from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import loaded
from nodedoctor.report.comparison import Comparison, compare, heading
from nodedoctor.report.document import Report
from nodedoctor.report.saved import damage, read

if TYPE_CHECKING:
    from argparse import Namespace

    from nodedoctor.cli.console import Parser


class CompareError(NodeDoctorError):
    """Why something cannot be compared, in one line."""


def read_report(data: bytes, name: str) -> Report:
    """A saved report from its bytes; CompareError when they hold something else."""
    try:
        document = loaded(data)
    except ValueError:
        raise CompareError(f"{name}: neither a recorded node nor a JSON report") from None
    return report_of(document, name)


def report_of(document: Any, name: str) -> Report:
    """A report of a JSON value; CompareError when it is something else, or damaged."""
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith(
        "nodedoctor.report/1"
    ):
        raise CompareError(f"{name}: not a report (no schema nodedoctor.report/1)")
    if wrong := damage(document):
        raise CompareError(f"{name}: a damaged report: {wrong}")
    return read(document)


def document_of(path: Path) -> Report:
    """The report in a file, or the diagnosis of a recorded node; CompareError when it is neither."""
    if not os.path.isdir(path) and path.suffix != ".zip":
        try:
            return read_report(input_files.read(path, pipes=True), str(path))
        except OSError as error:
            raise CompareError(f"{path}: {error.strerror}") from None
        except CompareError as error:
            from nodedoctor.intake.hint import read_instead

            hint = read_instead(str(path))
            raise CompareError(f"{path}: not a report: {hint}" if hint else str(error)) from None
    import asyncio

    from nodedoctor.engine.session import Request, Session, UsageError
    from nodedoctor.report import json as report_json

    async def diagnosed() -> Report:
        return report_json.document(await Session(Request(replay=path)).diagnosis().run())

    try:
        return asyncio.run(diagnosed())
    except UsageError as error:
        raise CompareError(str(error)) from None


def main(words: Sequence[str]) -> int:
    """`nodedoctor compare BEFORE AFTER`: 0 nothing got worse, 2 something did."""
    from nodedoctor.cli import outputs
    from nodedoctor.cli.console import complain, emit
    from nodedoctor.cli.exit_codes import Exit

    arguments = parser().parse_args(list(words))
    if problem := outputs.no_folder(arguments):
        return complain(problem)
    try:
        old_report, new_report = document_of(arguments.before), document_of(arguments.after)
    except NodeDoctorError as error:
        return complain(error)
    comparison = compare(old_report, new_report)
    names = heading(old_report), heading(new_report)
    if not emit(_render_comparison(arguments, comparison, old_report, new_report)):
        return Exit.OUTPUT
    if arguments.html:
        from nodedoctor.report import html

        page = html.render_comparison(comparison, *names)
        if failed := outputs.write_files({arguments.html: page.encode()}):
            return failed
    return Exit.FAIL if comparison.worse else Exit.OK


def _render_comparison(arguments: Namespace, comparison: Comparison, *reports: Report) -> str:
    """What goes to stdout; colours only on a terminal."""
    from nodedoctor.cli.console import page_shape
    from nodedoctor.report import comparison_views

    if arguments.json:
        return json.dumps(comparison_views.document(comparison, *reports), indent=1) + "\n"
    width, colour = page_shape(140)
    return comparison_views.render(comparison, *map(heading, reports), width=width, colour=colour)


def parser() -> Parser:
    """The parser of `nodedoctor compare`."""
    from nodedoctor.cli import outputs
    from nodedoctor.cli.console import Parser

    parser = Parser(
        prog="nodedoctor compare",
        description="What changed between two reports or recorded nodes.",
        allow_abbrev=True,
    )
    parser.add_argument(
        "before", type=Path, metavar="BEFORE", help="a JSON report (also .gz), a recorded node"
    )
    parser.add_argument(
        "after", type=Path, metavar="AFTER", help="the same, from a later time or another node"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document on stdout")
    form.add_argument("--text", action="store_true", help="readable text on stdout (the default)")
    outputs.add(parser, "html")
    return parser
