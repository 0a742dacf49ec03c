"""Open the terminal interface: probes first, then Textual, whose import takes longer than most of them.

Everything a terminal or the environment decides (colours, frame rate, characters) is decided here, before
the app exists.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodedoctor.model import Report
from nodedoctor.report.inert import inert
from nodedoctor.report.text import headline, tally
from nodedoctor.session import Session


@dataclass(frozen=True, slots=True)
class Sitting:
    """What a sitting left behind. `code` is an exit code that outranks the verdict, or None."""

    report: Report
    recording: bytes
    copied: tuple[str, ...] = ()
    code: int | None = None


def possible(*, stdout: bool = True) -> bool:
    """True when there is a terminal to draw on and to type at. Textual draws on stderr."""
    streams = (sys.stdin, sys.stderr, *((sys.stdout,) if stdout else ()))
    return (
        all(stream is not None and stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"
    )


def last_words(sitting: Sitting) -> str:
    """What stays on the terminal: the verdict, and what was copied: a terminal may have dropped it."""
    report = sitting.report
    lines = [headline(report.node), f"{report.verdict.word}  {tally(report)}"]
    return "\n".join([*lines, *_copied(sitting)]) + "\n"


def _copied(sitting: Sitting) -> list[str]:
    if not sitting.copied:
        return []
    return ["", "copied:", *(inert(line) for text in sitting.copied for line in text.split("\n"))]


def sit(session: Session, first: str = "checks", triage: Mapping[str, Any] | None = None) -> Sitting:
    """Show the session until the person leaves; `first` is the screen to begin with."""
    return asyncio.run(_sit(session, first, triage))


def show_triage(document: Mapping[str, Any]) -> int | None:
    """Show a `nodedoctor.triage/1` document; returns an exit code that outranks its verdict, or None.

    This machine is not looked at: the job may have run anywhere.
    """
    from nodedoctor.session import Request

    session = Session(Request())
    session.checks = ()
    sitting = sit(session, "triage", document)
    said = f"{document.get('cause')} ({document.get('confidence')}): {document.get('headline')}"
    print("\n".join([inert(said), *_copied(sitting)]), file=sys.stderr)
    return sitting.code


def watch(words: list[str]) -> int:
    """`nodedoctor watch`: the Live screen, with what can be checked without putting load on anything."""
    from nodedoctor.console import Exit, Parser, complain
    from nodedoctor.session import Request

    parser = Parser(
        prog="nodedoctor watch", description="Live load of GPUs, ports and host; marks the straggler."
    )
    parser.parse_args(words)
    if not possible():
        return complain("watch needs a terminal; for scripts there is `nodedoctor --json`")
    return sit(Session(Request(tags=("fast",))), "live").code or Exit.OK


async def _sit(session: Session, first: str, triage: Mapping[str, Any] | None) -> Sitting:
    from nodedoctor.tui.rounds import Rounds

    rounds = Rounds(session)
    rounds.start()
    await asyncio.sleep(FIRST_CHILDREN)
    prepare_environment()
    from nodedoctor.tui.app import NodeDoctor

    app = NodeDoctor(rounds, ascii=not speaks_utf8(), first=first, triage=triage)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, app.exit, None, 128 + number)
    try:
        await app.run_async()
    finally:
        report, recording = rounds.report(), rounds.recording()
        await rounds.close()
    code = BUG if app.return_code == CRASHED else app.return_code
    return Sitting(report, recording, tuple(app.copied), code or None)


CRASHED = 1  # what Textual returns after an exception of ours, whose traceback it has printed
BUG = 70
FIRST_CHILDREN = 0.01
"""Seconds the event loop gets to start children before the import keeps it busy."""


def prepare_environment() -> None:
    """Settings that Textual reads while it is imported."""
    os.environ["TEXTUAL_ANIMATIONS"] = "none"
    os.environ["TEXTUAL_SMOOTH_SCROLL"] = "0"
    os.environ["TEXTUAL_THEME"] = "ansi-dark"
    if "SSH_CONNECTION" in os.environ:
        os.environ.setdefault("TEXTUAL_FPS", "15")


def speaks_utf8() -> bool:
    """Whether drawn characters may be used. What a locale cannot write becomes one `?` a cell."""
    stream = sys.__stderr__
    if not isinstance(stream, io.TextIOWrapper):
        return False
    stream.reconfigure(errors="replace")
    return (stream.encoding or "").lower().replace("-", "") == "utf8"
