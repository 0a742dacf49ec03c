"""Open the terminal interface: the engine first, then Textual, which is imported while probes run.

Everything a terminal or the environment decides (colours, frame rate, characters) is decided here, before
the app exists. Imports that take time come after the fork of the engine.
"""

from __future__ import annotations

import gc
import io
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nodedoctor.model import Observation, Status
from nodedoctor.record import record
from nodedoctor.start_up import STARTED_S, collect_from_now, import_asyncio
from nodedoctor.tui.state import Nothing, RequestRefused, empty_report

if TYPE_CHECKING:
    from nodedoctor.engine.session import Request
    from nodedoctor.report.document import Report
    from nodedoctor.tui.app import NodeDoctor


@record
class TuiResult:
    """What a sitting left behind. `code` is an exit code that outranks the verdict, or None.

    `observations` are what the report was made of.
    """

    report: Report
    observations: tuple[Observation, ...] = ()
    recording: bytes = b""
    copied: tuple[str, ...] = ()
    code: int | None = None


def possible(*, stdout: bool = True) -> bool:
    """True when there is a terminal to draw on and to type at. Textual draws on stderr."""
    streams = (sys.stdin, sys.stderr, *((sys.stdout,) if stdout else ()))
    return (
        all(stream is not None and stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"
    )


def last_words(sitting: TuiResult) -> str:
    """What stays on the terminal: what is wrong and what to type first, the verdict, what was copied."""
    from nodedoctor.report.page import cause_line, first_command, headline, tally

    report = sitting.report
    lines = []
    for cause in report["causes"][:LAST_CAUSES]:
        command = first_command(cause)
        lines += [*wrapped(cause_line(cause)), *([f"  $ {command}"] if command else [])]
    lines += wrapped(headline(report["node"]))
    lines += wrapped(f"{Status(report['verdict']).word}  {tally(report)}")
    return "\n".join([*lines, *copied(sitting.copied)]) + "\n"


def wrapped(text: str) -> list[str]:
    """A sentence in lines of the terminal, which would cut it in the middle of a word."""
    import textwrap

    from nodedoctor.cli.console import columns

    return textwrap.wrap(text, columns(), subsequent_indent="    ", break_on_hyphens=False)


def copied(texts: Sequence[str]) -> list[str]:
    """Lines with what was copied, which a terminal may have dropped."""
    if not texts:
        return []
    from nodedoctor.report.inert import inert

    return ["", "copied:", *(inert(line) for text in texts for line in text.split("\n"))]


def sit(
    make_request: Callable[[], Request],
    first: str = "checks",
    *,
    record: bool = False,
    mouse: bool = False,
    may_refuse: bool = False,
) -> TuiResult:
    """Show a run until the person leaves; `first` is the screen to begin with.

    Refused when it cannot be run. With `record` the sitting holds the recording of what was seen. With
    `may_refuse` (a file or a name was given, which may be wrong) the screen opens once the engine has begun.
    """
    gc.disable()
    pid, line = _fork_engine(make_request)
    import_asyncio()
    import asyncio

    app_class = load_app()
    if refusal := _read_refusal(line, REFUSAL_S if may_refuse else 0.0):
        os.waitpid(pid, 0)
        raise RequestRefused(refusal)
    return asyncio.run(_run_screen(app_class, pid, line, first, record, mouse))


def show_triage(document: Mapping[str, Any], again: Sequence[str] = ()) -> int | None:
    """Show a `nodedoctor.triage/1` document; returns an exit code that outranks its verdict, or None.

    `again` are the words of `nodedoctor triage` that make it once more, where it can be made once more.

    This machine is not looked at: the job may have run anywhere.
    """
    import asyncio

    from nodedoctor.cli.console import mutter
    from nodedoctor.report.inert import inert

    app = load_app()(Nothing(), ascii=not speaks_utf8(), triage=document, triage_again=again)
    asyncio.run(run_app(app))
    headline, sure = document.get("headline"), document.get("confidence")
    text = inert(f"{headline} ({sure} confidence)" if sure else str(headline))
    mutter("\n".join([*wrapped(text), *copied(app.copied), ""]))
    return code_of(app)


def show_measured(document: Mapping[str, Any]) -> int | None:
    """Show a document of pairs or of `accept`; returns an exit code that outranks its verdict, or None."""
    import asyncio

    from nodedoctor.cli.console import mutter

    app = load_app()(Nothing(), ascii=not speaks_utf8(), measured=document)
    asyncio.run(run_app(app))
    mutter("\n".join(["", *copied(app.copied)]))
    return code_of(app)


def watch() -> int:
    """`nodedoctor watch`: the Live screen, with what can be checked without putting load on anything."""
    from nodedoctor.cli.console import complain
    from nodedoctor.cli.exit_codes import Exit

    if not possible():
        return complain(
            "watch needs a terminal; to watch a job, name it: --job PID; scripts have `nodedoctor --json`"
        )

    def make_request() -> Request:
        from nodedoctor.engine.session import Request

        return Request(tags=("fast",))

    return sit(make_request, "live").code or Exit.OK


def _fork_engine(make_request: Callable[[], Request]) -> tuple[int, socket.socket]:
    """Start the engine, as early as can be: before loops, threads and imports that only one needs."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    try:
        ours.close()
        from nodedoctor.tui.process.engine import serve

        serve(make_request, theirs)
    finally:
        os._exit(0)


def _read_refusal(line: socket.socket, seconds: float) -> str:
    """Why the engine does not begin, if it says so by now: an error must not end a screen that was opened."""
    import select

    from nodedoctor.tui.process.wire import refusal

    ready, _, _ = select.select([line], [], [], seconds)
    return refusal(line.recv(LONGEST_REFUSAL, socket.MSG_PEEK)) if ready else ""


async def _run_screen(
    app_class: type[NodeDoctor], pid: int, line: socket.socket, first: str, record: bool, mouse: bool
) -> TuiResult:
    import asyncio

    from nodedoctor.tui.process.remote import Remote

    engine = Remote(pid, line)
    await engine.begin()
    app = app_class(engine, ascii=not speaks_utf8(), first=first, mouse=mouse)
    try:
        await run_app(app)
        recording = await asyncio.wait_for(engine.recording(), RECORDING) if record and engine.latest else b""
    finally:
        await engine.close()
    if app.refused:
        raise RequestRefused(app.refused)
    if engine.latest is None:
        return TuiResult(empty_report(), code=code_of(app) or INTERRUPTED)
    latest = engine.latest
    return TuiResult(
        latest.report, tuple(latest.answers.values()), recording, tuple(app.copied), code_of(app)
    )


async def run_app(app: NodeDoctor) -> None:
    """Run the app until the person or a signal ends it."""
    import asyncio
    import signal

    from nodedoctor.cli.endings import on_ending

    asyncio.get_running_loop().call_later(STARTED_S, collect_from_now)

    def stop(number: int) -> None:
        app.ended_by = app.ended_by or number
        _end_at_last(128 + app.ended_by)
        app.exit(None, 128 + number)

    with on_ending(stop, signal.SIGINT):
        watcher = asyncio.ensure_future(_hung_up(stop))
        try:
            await app.run_async(mouse=False)
        finally:
            watcher.cancel()


async def _hung_up(stop: Callable[[int], None]) -> None:
    """End the screen when its terminal is gone and was not the controlling one, whose end sends SIGHUP.

    Textual would read its end in a loop, on a whole core.
    """
    import asyncio
    import select
    import signal

    terminal = select.poll()
    terminal.register(0, 0)  # POLLHUP and POLLERR are always reported
    while not terminal.poll(0):
        await asyncio.sleep(TERMINAL_S)
    stop(signal.SIGHUP)


def _end_at_last(code: int) -> None:
    """A screen whose terminal is gone may hang: end the process when it takes too long."""
    import threading

    last = threading.Timer(LAST_MOMENTS, os._exit, (code,))
    last.daemon = True
    last.start()


def load_app() -> type[NodeDoctor]:
    """The app, imported once the environment is as Textual shall find it."""
    gc.disable()
    prepare_environment()
    from nodedoctor.cli.console import has_colours

    if not has_colours():
        os.environ["NO_COLOR"] = "1"  # which Textual obeys; it knows nothing of terminfo
    from nodedoctor.tui.app import NodeDoctor

    return NodeDoctor


def code_of(app: NodeDoctor) -> int | None:
    """An exit code that outranks the verdict, or None; a terminal that is gone crashes Textual."""
    if app.ended_by:
        return 128 + app.ended_by
    return BUG if app.return_code == CRASHED else app.return_code or None


CRASHED = 1  # what Textual returns after an exception of ours, whose traceback it has printed
BUG = 70
INTERRUPTED = 130  # left before there was anything to say
TERMINAL_S = 1.0  # seconds between two looks at whether there still is a terminal
LAST_MOMENTS = 3.0  # seconds to put the terminal in order and end the engine's children after a signal
LAST_CAUSES = 5  # causes that stay on the terminal
REFUSAL_S = 3.0  # seconds that the engine may take to begin before the screen opens without it
LONGEST_REFUSAL = 1 << 16  # bytes of the message; a longer one is shown by the screen
RECORDING = 10.0  # seconds that packing what was seen may take


def prepare_environment() -> None:
    """Settings that Textual reads while it is imported."""
    os.environ["TEXTUAL_ANIMATIONS"] = "none"
    os.environ["TEXTUAL_SMOOTH_SCROLL"] = "0"
    os.environ["TEXTUAL_THEME"] = "ansi-dark"
    far = "SSH_CONNECTION" in os.environ
    # Milliseconds until an escape is a key of its own and no arrow; Textual waits for 100.
    os.environ.setdefault("ESCDELAY", "50" if far else "25")
    if far:
        os.environ.setdefault("TEXTUAL_FPS", "15")


def speaks_utf8() -> bool:
    """Whether drawn characters may be used. What a locale cannot write becomes one `?` a cell."""
    stream = sys.__stderr__
    if not isinstance(stream, io.TextIOWrapper):
        return False
    stream.reconfigure(errors="replace")
    return (stream.encoding or "").lower().replace("-", "") == "utf8"
