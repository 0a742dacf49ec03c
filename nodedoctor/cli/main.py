"""The command line: what was asked for, which view shows it, and the number the process exits with.

Imports of anything that costs time stand inside the functions that need them: `--help` must be instant.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys

from nodedoctor.cli.console import columns, complain, drop, emit, has_colours, mutter, prepare, write_stderr
from nodedoctor.cli.exit_codes import Exit, exit_code
from nodedoctor.errors import EndedBySignal, NodeDoctorError
from nodedoctor.spelling import suggest_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from nodedoctor import model
    from nodedoctor.engine.session import Request, Session
    from nodedoctor.model import Observation
    from nodedoctor.report.document import Report


ROOM = 128 << 20
"""Bytes of address space below which we may find none; ours: twice what the largest run was seen to take."""

LEAST = 40 << 20
"""Bytes of address space below which nothing is begun: Python 3.11 itself was seen to crash with 32 MiB."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run nodedoctor; returns the exit code. Errors of use are one line on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    prepare()
    try:
        if words[:1] == ["run"]:
            return _run(words[1:])
        return _no_memory() if _room_below(LEAST) else _dispatch(words)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except EndedBySignal as ended:
        return ended.code
    except BrokenPipeError:
        drop(1)  # the reader has gone (`| head`)
        return Exit.OUTPUT
    except MemoryError:
        return _no_memory()
    except OSError as error:
        from nodedoctor.children.exhaustion import CODES, why

        if error.errno not in CODES:
            return _bug()
        _say_no_more()
        what = why(error.errno)
        write_stderr(f"cannot run: {error.strerror}; {what.words}")
        # What the caller may not use any more says nothing of the node, which is what a gate answers for.
        return Exit.FAIL if what.known and "--gate" not in words else Exit.UNKNOWN
    except Exception:
        # A module of C, a thread, even a literal of Unicode fails in its own way where it finds no room.
        return _no_memory() if _room_below(ROOM) else _bug()


def _no_memory() -> int:
    """Say so without making anything new."""
    _say_no_more()
    os.write(2, b"nodedoctor: no memory left to run in; see `ulimit -v` and the cgroup's memory.max\n")
    return Exit.BUG


def _say_no_more() -> None:
    """Python would now complain of what was begun and cannot go on: coroutines, half of an event loop."""
    sys.unraisablehook = lambda _: None
    warnings = sys.modules.get("warnings")
    if warnings is not None:
        warnings.simplefilter("ignore")


def _room_below(most: int) -> bool:
    """Whether this process may use fewer bytes of address space."""
    try:
        import resource
    except ImportError:  # which is a file to be mapped, too
        return True
    return 0 <= resource.getrlimit(resource.RLIMIT_AS)[0] < most  # -1 is no limit


def _bug() -> int:
    """Say what went wrong, inside the handler of an exception."""
    import traceback

    with contextlib.suppress(OSError):
        traceback.print_exc()
    write_stderr("this is a bug in nodedoctor; please report it with the lines above")
    return Exit.BUG


def _run(words: list[str]) -> int:
    """`nodedoctor run`, whose command is started in any case: without room for a watch, in our own place."""
    if _room_below(ROOM):
        from nodedoctor.blackbox import exec_fallback

        return exec_fallback.main(words)
    _without_ssl()
    from nodedoctor.blackbox import run

    return run.main(words)


def _without_ssl() -> None:
    """What stays beside a job for days leaves ssl out, which nothing in it uses."""
    from nodedoctor.start_up import import_asyncio

    import_asyncio()


MODULES = {
    "accept": "nodedoctor.cli.accept",
    "arm": "nodedoctor.blackbox.arm_cli",
    "compare": "nodedoctor.cli.compare",
    "completion": "nodedoctor.cli.completion.cli",
    "expect": "nodedoctor.cli.expect",
    "fleet": "nodedoctor.cli.fleet",
    "history": "nodedoctor.cli.history",
    "mcp": "nodedoctor.agent.cli",
    "read": "nodedoctor.intake.cli",
    "triage": "nodedoctor.triage.cli",
    "watch": "nodedoctor.blackbox.attach",
}
"""Subcommands, and the module whose `main` gets the words behind them."""


def _dispatch(words: list[str]) -> int:
    command, rest = (words[0], words[1:]) if words else ("", [])
    if command == "watch":
        _without_ssl()
    if command in MODULES:
        return int(importlib.import_module(MODULES[command]).main(rest))
    if command in ("list", "explain", "schema"):
        from nodedoctor.cli import reference

        return reference.main(words)
    return _demo(rest) if command == "demo" else diagnose(words)


def _demo(words: list[str]) -> int:
    """`nodedoctor demo [NAME [options]]`: list the recorded nodes that ship with us, or diagnose one."""
    from nodedoctor.demo import DEMOS, folder

    if words and words[0] in DEMOS:
        return diagnose(["--replay", str(folder(words[0])), *words[1:]])
    if words and words[0] not in ("-h", "--help"):
        hint = suggest_word(words[0], DEMOS, f"available: {', '.join(DEMOS)}")
        return complain(f"no demo {words[0]!r}; {hint}")
    width = max(map(len, DEMOS))
    lines = (f"nodedoctor demo {name:<{width}}  {about}\n" for name, about in DEMOS.items())
    return Exit.OK if emit("".join(lines)) else Exit.OUTPUT


def diagnose(words: list[str]) -> int:
    """`nodedoctor [CHECK ...]`: diagnose this node, or a recorded one."""
    from nodedoctor.cli import outputs
    from nodedoctor.cli.arguments import parser

    arguments = parser().parse_args(words)
    problem = (
        outputs.no_folder(arguments, "record", "debug_log") or _no_input(arguments) or _no_gate(arguments)
    )
    if problem:
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
        session = Session(_request(arguments), server)
    except NodeDoctorError as error:
        return complain(_with_hint(error, arguments))
    return _headless(session, arguments)


def _with_hint(error: NodeDoctorError, arguments: argparse.Namespace) -> str | NodeDoctorError:
    """The error; for another file in place of a recording, or a file in place of a check, what reads it."""
    from nodedoctor.intake.hint import describe_file

    path = next(
        (word for word in arguments.checks if f" {word!r}" in str(error) and os.path.exists(word)), ""
    )
    if path and (hint := describe_file(path, folders=True)):
        return f"{path}: not a check: {hint}"
    if not path and arguments.replay:
        hint = describe_file(arguments.replay)
        if hint and "--replay" not in hint:  # a recording that is refused is one
            return f"{arguments.replay}: not a recorded node: {hint}"
    return error


def _no_input(arguments: argparse.Namespace) -> str:
    """What is wrong with the places asked to be read, before any work is done."""
    asked = ("env_file", "python", "exec", "peers")
    if arguments.replay and (given := [name for name in asked if getattr(arguments, name)]):
        option = f"--{given[0].replace('_', '-')}"
        return f"{option} is for a node that is asked now; a recording holds what was asked then"
    if not os.path.isdir(arguments.root):
        return f"--root: no folder {arguments.root}"
    if arguments.env_file:
        from nodedoctor import input_files

        try:
            input_files.opened(arguments.env_file).close()
        except OSError as error:
            return f"--env-file {arguments.env_file}: {error.strerror}"
    return ""


def _no_gate(arguments: argparse.Namespace) -> str:
    """What is wrong with options beside --gate: it has its own exit codes, and prints one line or --json."""
    if not arguments.gate:
        return ""
    options = ("fail_on", "exit_zero", "deep", "text", "summary", "tui", "quiet", "verbose")
    given = [name for name in options if getattr(arguments, name)]
    named = {"quiet": "-q", "verbose": "-v"}
    return (
        f"{named.get(given[0], '--' + given[0].replace('_', '-'))} has no meaning with --gate"
        if given
        else ""
    )


def _on_screen(arguments: argparse.Namespace) -> int:
    from nodedoctor.cli import outputs
    from nodedoctor.tui import start

    def make_request() -> Request:
        outputs.start_debug_log(arguments)  # here, as this runs in the process that has the engine
        return _request(arguments)

    piped = not sys.stdout.isatty()  # asked before: a terminal that hangs up is none any more
    try:
        sitting = start.sit(
            make_request,
            record=bool(arguments.record),
            mouse=arguments.mouse,
            may_refuse=bool(arguments.replay or arguments.checks or arguments.tag),
        )
    except NodeDoctorError as error:
        return complain(_with_hint(error, arguments))
    mutter(start.last_words(sitting))
    report = _leaving(sitting.report, sitting.observations, arguments)
    if piped:
        arguments.json = True
        if not emit(_rendered(report, arguments)):
            return Exit.OUTPUT
    return sitting.code or _finish(report, sitting.recording, arguments)


def _headless(session: Session, arguments: argparse.Namespace) -> int:
    from nodedoctor.report import json

    found, recording = (_replayed if arguments.replay else _diagnose_machine)(session, arguments)
    report = _leaving(json.document(found), found.observations, arguments)
    report = _through_journal(report, arguments)
    if arguments.gate:
        from nodedoctor.report.gate import gate_of

        report = json.gated(report, gate_of(report))
    if not emit(_rendered(report, arguments)):
        return Exit.OUTPUT
    return _finish(report, recording, arguments)


def _replayed(session: Session, arguments: argparse.Namespace) -> tuple[model.Report, bytes]:
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

    kept: list[tuple[model.Report, bytes]] = []

    async def run() -> None:
        # Not returned: asyncio.run() writes out what it returns, a whole report, as it gives back SIGINT.
        kept.append(
            await headless.run(session, progress=_may_narrate(arguments), record=bool(arguments.record))
        )

    asyncio.run(run())
    return kept[0]


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


def _leaving(report: Report, seen: Iterable[Observation], arguments: argparse.Namespace) -> Report:
    """The report as it may leave the node: with --redact it names nobody."""
    if not arguments.redact:
        return report
    from nodedoctor.redact import Redaction

    return Redaction.of(seen, report["node"]).report(report)


def _finish(report: Report, recording: bytes, arguments: argparse.Namespace) -> int:
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


def _rendered(report: Report, arguments: argparse.Namespace) -> str:
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
    on_terminal = sys.stdout.isatty()
    width = min(columns(), 110) if on_terminal else 80
    colour = on_terminal and has_colours()
    return view(report, width=width, colour=colour, quiet=arguments.quiet)


def _may_narrate(arguments: argparse.Namespace) -> bool:
    return not arguments.json and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _peers(named: Sequence[str]) -> tuple[str, ...]:
    if not named:
        return ()
    from nodedoctor.fleet.compare.peers import neighbours

    return neighbours(named, os.uname().nodename)


def _request(arguments: argparse.Namespace) -> Request:
    from pathlib import Path

    from nodedoctor.cli.arguments import command_words
    from nodedoctor.declare.registry import Options
    from nodedoctor.engine.session import Request
    from nodedoctor.expectations import expectations

    options = Options(
        root=str(Path(arguments.root).absolute()),
        since=arguments.since,
        passive=arguments.passive or arguments.gate,
        deep=arguments.deep,
        python=arguments.python,
        exec_prefix=command_words(arguments.exec),
        env_file=os.path.abspath(arguments.env_file) if arguments.env_file else "",
        peers=_peers(arguments.peers),
        expect=expectations(arguments.expect),
    )
    return Request(
        words=tuple(arguments.checks),
        tags=tuple(arguments.tag),
        options=options,
        deadline=arguments.deadline,
        replay=Path(arguments.replay) if arguments.replay else None,
        folders=tuple(Path(folder) for folder in arguments.check_folders),
        redact=arguments.redact,
        preview=arguments.preview,
        gate=arguments.gate,
    )
