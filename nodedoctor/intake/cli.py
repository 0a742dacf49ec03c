"""`nodedoctor read PATH...`: mailed and pasted outputs, recognised by content and judged."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nodedoctor.cli.console import (
    Parser,
    complain,
    emit,
    page_shape,
    write_stderr,
)
from nodedoctor.cli.exit_codes import Exit, exit_code, outcome_code
from nodedoctor.errors import NodeDoctorError

if TYPE_CHECKING:
    from nodedoctor.intake.inputs import At
    from nodedoctor.intake.judge import Reading

_EPILOG = """\
examples:
  nodedoctor read paste.txt                    nvidia-smi, dmesg, ibstat, env ... in one file, as pasted
  wl-paste | nodedoctor read -                 the same from the clipboard
  nodedoctor read nvidia-bug-report.log.gz     a bug report, section by section
  nodedoctor read sosreport.tar.xz train.log   a node and a job, judged together
  nodedoctor read node1/ node2/                the bundles of several nodes, side by side

exit codes: the worst of what was judged: 0 nothing failed, 2 something failed, 3 not judged or nothing
recognised, 64 usage or a path that cannot be read.
"""
_WORST = (Exit.FAIL, Exit.UNKNOWN, Exit.WARN, Exit.OK)


def main(words: list[str]) -> int:
    """Run read; returns the exit code."""
    from nodedoctor.cli import outputs

    arguments = parser().parse_args(words)
    if problem := outputs.no_folder(arguments, "record", "debug_log"):
        return complain(problem)
    if not arguments.paths:
        return complain("read: expected files, folders or - (see `nodedoctor read --help`)")
    outputs.start_debug_log(arguments)
    from nodedoctor.intake.inputs import standard_input
    from nodedoctor.intake.reader_process import read_in_fork

    try:
        stdin = standard_input() if "-" in arguments.paths else b""
        result, code, recordings = read_in_fork(lambda at: _read_and_judge(arguments, stdin, at))
    except NodeDoctorError as error:
        return complain(error)
    if not emit(_render_result(result, arguments)):
        return Exit.OUTPUT
    return _write_recording(recordings, arguments) or code


def _read_and_judge(
    arguments: argparse.Namespace, stdin: bytes, at: At
) -> tuple[dict[str, Any], int, list[bytes]]:
    """The document, the exit code, and the recordings of the nodes."""
    from nodedoctor.intake import document
    from nodedoctor.intake.judge import read

    reading = read(
        arguments.paths, redact=arguments.redact, record=bool(arguments.record), stdin=stdin, at=at
    )
    result = document.document(reading)
    if arguments.redact:
        result = _redact_document(result, reading)
    return result, worst(reading), [node.recording for node in reading.nodes if node.recording]


def worst(reading: Reading) -> int:
    """The worst of what was judged; UNKNOWN where nothing was."""
    from nodedoctor.intake.document import is_judged

    codes = [exit_code(node.report) for node in reading.nodes if is_judged(node.report)]
    if reading.triage is not None:
        codes.append(outcome_code(str(reading.triage.get("outcome"))))
    return next((code for code in _WORST if code in codes), Exit.UNKNOWN)


def _write_recording(recordings: list[bytes], arguments: argparse.Namespace) -> int:
    """Keep what was understood of a node as a recording."""
    from nodedoctor.cli import outputs

    if not arguments.record:
        return Exit.OK
    if len(recordings) != 1:
        write_stderr(f"--record: {len(recordings)} nodes were read; a recording is of one")
        return Exit.USAGE
    failed = outputs.write_files({arguments.record: recordings[0]})
    if arguments.redact and not failed:
        write_stderr(f"read {arguments.record} before you send it: free text in it may still contain names")
    return failed


def _redact_document(result: dict[str, Any], reading: Reading) -> dict[str, Any]:
    """The document without names. Of several nodes each has its own replacements for them."""
    from nodedoctor.intake.document import of_fleet
    from nodedoctor.redact import Redaction
    from nodedoctor.redact.documents import redacted_nodes, redacted_triage

    alone = result["report"]
    redaction = Redaction.of(
        (item for node in reading.nodes for item in node.observations), alone["node"] if alone else {}
    )
    fleet = redacted_nodes(result["fleet"]) if result["fleet"] else None
    fields = {key: redaction.document(result[key]) for key in ("headline", "unrecognised", "notes", "shows")}
    recognised = [
        {
            **redaction.document(item),
            "node": redaction.document({"host": item["node"]})["host"] if alone else None,
        }
        for item in result["recognised"]
    ]
    return {
        **result,
        **fields,
        **({"headline": of_fleet(fleet)} if fleet else {}),
        "recognised": recognised,
        "report": redaction.report(alone) if alone else None,
        "fleet": fleet,
        "triage": redacted_triage(result["triage"]) if result["triage"] else None,
    }


def _render_result(result: dict[str, Any], arguments: argparse.Namespace) -> str:
    from nodedoctor.intake import document, page

    if arguments.json:
        return document.render(result)
    width, colour = page_shape(110)
    return page.render(result, width=width, colour=colour, verbose=arguments.verbose)


def parser() -> Parser:
    """The parser of `nodedoctor read`."""
    from nodedoctor.cli import outputs

    command = Parser(
        prog="nodedoctor read",
        description="Judge what was mailed or pasted: outputs of tools, bug reports, sosreports, mails, "
        "job logs, recordings. Each is recognised by its content.",
        epilog=_EPILOG,
    )
    add = command.add_argument
    add("paths", nargs="*", metavar="PATH", help="files, folders, archives, in any mix; - is standard input")
    add("--record", default="", metavar="FILE", help="write what was understood of the node as a recording")
    add("--redact", action="store_true", help="in all outputs, stand-ins for names, addresses and serials")
    add("--json", action="store_true", help="one JSON document on stdout")
    add("-v", "--verbose", action="store_true", help="list everything, also what could not be judged")
    outputs.add_debug_log(command)
    return command
