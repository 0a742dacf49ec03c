"""The command line: what was asked for, which view shows it, and the number the process exits with.

Imports of anything that costs time stand inside the functions that need them: `--help` must be instant.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from nodedoctor import __version__

if TYPE_CHECKING:
    from nodedoctor.model import Report
    from nodedoctor.session import Request, Session


class Exit(IntEnum):
    """What scripts branch on. Nagios numbers for verdicts, sysexits(3) for the rest."""

    OK = 0
    WARN = 1
    FAIL = 2
    UNKNOWN = 3
    USAGE = 64
    BUG = 70
    OUTPUT = 74  # the report could not be written
    INTERRUPTED = 130
    TERMINATED = 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run nodedoctor; returns the exit code. Errors of use are one line on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`). Python would complain once more while flushing stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.OUTPUT
    except Exception:
        import traceback

        traceback.print_exc()
        print("nodedoctor: this is a bug in nodedoctor; the lines above belong in a report", file=sys.stderr)
        return Exit.BUG


def _dispatch(words: list[str]) -> int:
    if words and words[0] in ("list", "explain", "schema"):
        from nodedoctor import reference

        return reference.main(words)
    return diagnose(words)


class Parser(argparse.ArgumentParser):
    """argparse, exiting with our usage code: its own 2 would read as a failed node."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and how to get help; exit 64."""
        self.exit(Exit.USAGE, f"{self.prog}: {message} (see `{self.prog} --help`)\n")


def complain(message: str) -> int:
    """One line on stderr for something that was asked for and cannot be; returns the usage code."""
    from nodedoctor.report.inert import inert

    print(f"nodedoctor: {inert(message)}", file=sys.stderr)
    return Exit.USAGE


def diagnose(words: list[str]) -> int:
    """`nodedoctor [CHECK ...]`: diagnose this node, or a recorded one."""
    arguments = _parser().parse_args(words)
    from nodedoctor.expect import ExpectError
    from nodedoctor.session import Session, UsageError

    try:
        session = Session(_request(arguments))
        if arguments.record and not Path(arguments.record).absolute().parent.is_dir():
            raise UsageError(f"--record: no folder {Path(arguments.record).absolute().parent}")
    except (UsageError, ExpectError) as error:
        return complain(str(error))
    return _headless(session, arguments)


def _headless(session: Session, arguments: argparse.Namespace) -> int:
    import asyncio

    from nodedoctor import headless

    try:
        report, recording = asyncio.run(headless.run(session, progress=_may_narrate(arguments)))
    except asyncio.CancelledError:
        return Exit.TERMINATED
    code = exit_code(report, arguments.fail_on)
    if not _print(_rendered(report, arguments)):
        return Exit.OUTPUT
    if arguments.record:
        problem = asyncio.run(headless.write(arguments.record, recording))
        if problem:
            print(f"nodedoctor: {arguments.record}: {problem}", file=sys.stderr)
            return Exit.OUTPUT
    return Exit.OK if arguments.exit_zero else code


def exit_code(report: Report, fail_on: str = "fail") -> int:
    """The verdict as a number: see README, "Exit codes"."""
    from nodedoctor.model import Status

    findings = [f for result in report.results for f in result.findings if f.waived is None]
    if any(f.status is Status.FAIL for f in findings):
        return Exit.FAIL
    if any(f.broken for f in findings):
        return Exit.UNKNOWN
    if fail_on == "warn" and any(f.status is Status.WARN for f in findings):
        return Exit.WARN
    if fail_on in ("warn", "unknown") and any(f.blind for f in findings):
        return Exit.UNKNOWN
    return Exit.OK


def _rendered(report: Report, arguments: argparse.Namespace) -> str:
    if arguments.json:
        from nodedoctor.report import json

        return json.render(report) + "\n"
    import shutil

    from nodedoctor.report import text

    on_terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size((80, 24)).columns, 110) if on_terminal else 80
    colour = on_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return text.render(report, width=width, colour=colour, quiet=arguments.quiet)


def _print(text: str) -> bool:
    """Write to stdout; False, with a line on stderr, when it does not take it (a full disk)."""
    try:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"nodedoctor: cannot write the report: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return False
    return True


def _may_narrate(arguments: argparse.Namespace) -> bool:
    return not arguments.json and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _request(arguments: argparse.Namespace) -> Request:
    import shlex

    from nodedoctor.expect import expectations
    from nodedoctor.registry import Options
    from nodedoctor.session import Request

    options = Options(
        root=str(Path(arguments.root).absolute()),
        since=arguments.since,
        deep=arguments.deep,
        python=arguments.python,
        exec_prefix=tuple(shlex.split(arguments.exec)),
        expect=expectations(arguments.expect),
    )
    return Request(
        words=tuple(arguments.checks),
        tags=tuple(arguments.tag),
        options=options,
        deadline=arguments.deadline,
        replay=Path(arguments.replay) if arguments.replay else None,
        folders=tuple(Path(folder) for folder in arguments.check_folders),
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 86400:
        raise ValueError
    return value


_EPILOG = """\
examples:
  nodedoctor                       what is wrong with this node, and what to do about it
  nodedoctor driver limits.shm     one subject and one check
  nodedoctor --tag fast -q         problems only, in well under a second
  nodedoctor --json --expect gpus=8 > report.json     in a provisioning script
  nodedoctor --exec 'docker exec trainer' stack       judge the Python inside a container
  nodedoctor --record node.zip     keep what was seen; read it anywhere with --replay node.zip

also:
  nodedoctor list checks|facts|probes|knowledge       what there is
  nodedoctor explain WORD          a check, an Xid (79), an environment variable, a cause
  nodedoctor schema report|snapshot

exit codes: 0 nothing failed, 1 warnings (only with --fail-on warn), 2 something failed,
3 something could not be judged because it hung or crashed, 64 usage, 70 a bug, 74 output
could not be written, 130 interrupted. nodedoctor changes nothing on the node.
"""


def _parser() -> Parser:
    parser = Parser(
        prog="nodedoctor",
        usage="nodedoctor [options] [CHECK ...]\n       nodedoctor list | explain | schema ...",
        description="The doctor for GPU training nodes: what is sick, the evidence, the fix.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "checks",
        nargs="*",
        metavar="CHECK",
        help="a check (limits.shm) or a subject (limits); all by default",
    )
    add("--version", action="version", version=f"nodedoctor {__version__}")
    _add_selection(parser.add_argument_group("what to look at"))
    _add_node(parser.add_argument_group("where to look"))
    _add_output(parser.add_argument_group("output"))
    return parser


def _add_selection(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--tag",
        action="append",
        default=[],
        metavar="TAG",
        help="only checks with this tag (fast, nvlink, ...)",
    )
    add("--deep", action="store_true", help="also what takes minutes or imports torch (deadline 900 s)")
    add(
        "--expect",
        action="append",
        default=[],
        metavar="K=V|FILE",
        help="what this node must have, e.g. gpus=8; absence is then a failure",
    )
    add("--since", default="", metavar="24h", help="how far back logs count (default: since boot)")
    add("--checks", dest="check_folders", action="append", default=[], metavar="DIR", help="more check files")


def _add_node(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--python", default="", metavar="PATH", help="the Python that trains")
    add("--exec", default="", metavar="'CMD'", help="a prefix that reaches it, e.g. 'docker exec trainer'")
    add("--replay", default="", metavar="PATH", help="diagnose a recorded node instead of this machine")
    add("--root", default="/", metavar="DIR", help="this machine's /sys /proc /etc ... are mounted below DIR")
    add("--deadline", type=_seconds, metavar="SECONDS", help="for the whole run (default 50)")


def _add_output(group: argparse._ArgumentGroup) -> None:
    form = group.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document on stdout")
    form.add_argument("--text", action="store_true", help="readable text on stdout")
    add = group.add_argument
    add("-q", dest="quiet", action="store_true", help="only problems")
    add("--record", default="", metavar="FILE", help="keep what was seen, as a zip for --replay")
    add(
        "--fail-on",
        choices=("fail", "unknown", "warn"),
        default="fail",
        help="what makes the exit code non-zero (default: fail)",
    )
    add("--exit-zero", action="store_true", help="exit 0 whatever was found")
