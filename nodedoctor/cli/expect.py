"""`nodedoctor expect`: write down what this healthy node has, for `--expect FILE` on its sisters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nodedoctor import input_files
from nodedoctor.cli import endings
from nodedoctor.cli.console import Parser, complain, emit, write_stderr
from nodedoctor.cli.exit_codes import Exit, exit_code
from nodedoctor.declare.registry import Options
from nodedoctor.engine.run import Diagnosis
from nodedoctor.engine.session import Request, Session
from nodedoctor.errors import NodeDoctorError
from nodedoctor.expectations import KEYS
from nodedoctor.json_shapes import loaded, mapping, number, words
from nodedoctor.report import json
from nodedoctor.report.document import Report
from nodedoctor.report.inert import inert

SHARE = 0.9
"""Of the reference that is expected from then on. Our choice: good pairs of one fabric differ by a few
percent, and so do two runs; what is missing beyond that is worth a look."""


def main(words: list[str]) -> int:
    """Print the expectation file; exits with the verdict's code, because a sick node is no model."""
    arguments = parser().parse_args(words)
    if arguments.keys:
        width = max(map(len, KEYS))
        key_lines = "".join(f"{key:<{width}}  {about}\n" for key, about in KEYS.items())
        return Exit.OK if emit(key_lines) else Exit.OUTPUT
    if arguments.pairs:
        try:
            text, is_good = expected_of(arguments.pairs)
        except NodeDoctorError as error:
            return complain(error)
        if not emit(text):
            return Exit.OUTPUT
        if not is_good:
            write_stderr("these pairs have problems, so they cannot be the reference")
        return Exit.OK if is_good else Exit.FAIL
    options = Options(python=arguments.python)
    replay = Path(arguments.replay) if arguments.replay else None
    try:
        session = Session(Request(options=options, replay=replay))
    except NodeDoctorError as error:
        return complain(error)
    report, expected = endings.run(_run_checks(session))
    if not emit(render(report, expected)):
        return Exit.OUTPUT
    code = exit_code(report)
    if code != Exit.OK:
        write_stderr("this node has problems, so it cannot be the reference; see `nodedoctor -q`")
    return code


def render(report: Report, expected: dict[str, str]) -> str:
    """The file: one `key=value` a line in the order of the keys, each with what it means."""
    name = inert(str(report["node"].get("hostname")))
    lines = [f"# {name} on {report['started']}, verdict {report['verdict']}"]
    lines += [f"{key}={inert(expected[key])}  # {about}" for key, about in KEYS.items() if key in expected]
    return "\n".join(lines) + "\n"


async def _run_checks(session: Session) -> tuple[Report, dict[str, str]]:
    diagnosis: Diagnosis = session.diagnosis()
    return json.document(await diagnosis.run()), diagnosis.expectations()


def expected_of(path: str) -> tuple[str, bool]:
    """The file of expectations, and whether the run was well enough to be the reference.

    NodeDoctorError when the file is no document of pairs, or when no pair has a rate in it.
    """
    from nodedoctor.pairs.document import SCHEMA
    from nodedoctor.pairs.methods import METHODS

    try:
        document: Any = loaded(input_files.read(path, pipes=True))
    except OSError as error:
        raise NodeDoctorError(f"--pairs {path}: {error.strerror}") from None
    except ValueError:
        document = None
    if mapping(document).get("schema") != SCHEMA:
        raise NodeDoctorError(f"--pairs {path}: not a document of `fleet --pairs --json`")
    what = words(mapping(document.get("plan")).get("what"))
    method = next((row for name, row in METHODS.items() if name == what), None)
    reference = number(document.get("reference_gbps"))
    if method is None or not reference:
        raise NodeDoctorError(f"--pairs {path}: no pair has a rate in it")
    verdict = words(document.get("verdict"))
    nodes, started = (
        words(mapping(document.get("plan")).get("nodes")),
        words(document.get("started")),
    )
    lines = [
        inert(f"# {nodes} nodes on {started}, verdict {verdict}; {SHARE:.0%} of what a good pair had"),
        f"{method.key}={SHARE * reference / method.gbps_of_key:.3f}  # {KEYS[method.key]}",
    ]
    return "\n".join(lines) + "\n", verdict == "pass"


def parser() -> Parser:
    """The parser of `nodedoctor expect`."""
    parser = Parser(
        prog="nodedoctor expect",
        description="Write an expectation file from this healthy node, for `nodedoctor --expect FILE` on "
        "other nodes.",
    )
    parser.add_argument(
        "--keys", action="store_true", help="list all keys that can be expected, with their meaning"
    )
    parser.add_argument(
        "--python", default="", metavar="PATH", help="path of the training Python interpreter"
    )
    parser.add_argument(
        "--pairs",
        default="",
        metavar="FILE",
        help="what pairs must have, from a healthy run of `fleet --pairs --json`",
    )
    parser.add_argument(
        "--replay", default="", metavar="PATH", help="use a recorded node instead of this one"
    )
    return parser
