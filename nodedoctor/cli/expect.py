"""`nodedoctor expect`: write down what this healthy node has, for `--expect FILE` on its sisters."""

from __future__ import annotations

from pathlib import Path

from nodedoctor.cli import endings
from nodedoctor.cli.console import Parser, complain, emit, write_stderr
from nodedoctor.cli.exit_codes import Exit, exit_code
from nodedoctor.declare.registry import Options
from nodedoctor.engine.run import Diagnosis
from nodedoctor.engine.session import Request, Session
from nodedoctor.errors import NodeDoctorError
from nodedoctor.expectations import KEYS
from nodedoctor.report import json
from nodedoctor.report.document import Report
from nodedoctor.report.inert import inert


def main(words: list[str]) -> int:
    """Print the expectation file; exits with the verdict's code, because a sick node is no model."""
    arguments = parser().parse_args(words)
    if arguments.keys:
        width = max(map(len, KEYS))
        listed = "".join(f"{key:<{width}}  {about}\n" for key, about in KEYS.items())
        return Exit.OK if emit(listed) else Exit.OUTPUT
    if arguments.pairs:
        from nodedoctor.pairs.expected import expected_of

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


def parser() -> Parser:
    """The parser of `nodedoctor expect`."""
    made = Parser(
        prog="nodedoctor expect",
        description="Write an expectation file from this healthy node, for `nodedoctor --expect FILE` on "
        "other nodes.",
        allow_abbrev=False,
    )
    made.add_argument(
        "--keys", action="store_true", help="list all keys that can be expected, with their meaning"
    )
    made.add_argument("--python", default="", metavar="PATH", help="path of the training Python interpreter")
    made.add_argument(
        "--pairs",
        default="",
        metavar="FILE",
        help="what pairs must have, from a healthy run of `fleet --pairs --json`",
    )
    made.add_argument("--replay", default="", metavar="PATH", help="use a recorded node instead of this one")
    return made
