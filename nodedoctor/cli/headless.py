"""A run without a screen: to the end, interruptible, saying what it waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from nodedoctor import journal
from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.cli.console import StatusLine
from nodedoctor.cli.endings import ended_by_signals
from nodedoctor.declare.registry import Command
from nodedoctor.engine.run import Diagnosis
from nodedoctor.engine.session import Session
from nodedoctor.json_shapes import Json
from nodedoctor.model import Report

PROGRESS_AFTER_S = 2.0
"""Seconds until a line says what is being waited for."""
WRITE_TIMEOUT_S = 10.0
"""Seconds an output file may take: it may lie on a dead file system, and the report is already out."""


async def run(session: Session, *, progress: bool = False, record: bool = False) -> tuple[Report, bytes]:
    """Run the session's checks; returns the report and, if wanted, the recording of what was seen."""
    diagnosis = session.diagnosis()
    narrator = asyncio.create_task(_show_progress(diagnosis)) if progress else None
    try:
        with ended_by_signals():
            report = await diagnosis.run()
    finally:
        if narrator:
            narrator.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await narrator
        session.close()
    return report, session.recording(diagnosis) if record else b""


async def write(path: str, data: bytes, *, shared: bool = False) -> str:
    """Write a file through a child, as its file system may be dead; returns what went wrong, or nothing.

    A new file is for its owner alone, or with `shared` as the umask has it.
    """
    words = (path, "shared") if shared else (path,)
    writer = Command(child("host/write", *words), stdin=data)
    answer = await child_process.run("write", writer, WRITE_TIMEOUT_S)
    return "" if answer.answered and answer.rc == 0 else answer.note or answer.outcome.value


async def keep_in_journal(
    folder: str,
    report: Mapping[str, Any],
    command: str,
    rates: Mapping[str, float],
    *,
    with_serials: bool = True,
) -> str:
    """Append a run to the journal in a folder; returns what went wrong, or nothing."""
    entry = journal.entry_of(report, command, rates, with_serials=with_serials)
    writer = journal.append_command(folder, entry)
    answer = await child_process.run("journal", writer, journal.LIMIT_S)
    return (
        ""
        if answer.answered and answer.rc == 0
        else answer.text.strip() or answer.note or answer.outcome.value
    )


async def read_journal(folder: str) -> tuple[list[Json], str]:
    """The entries of the journal in a folder, and what went wrong."""
    answer = await child_process.run("journal", journal.read_command(folder), journal.LIMIT_S)
    if answer.answered and answer.rc == 0:
        return journal.entries_of(answer.text), ""
    return [], answer.text.strip() or answer.note or answer.outcome.value


async def _show_progress(diagnosis: Diagnosis) -> None:
    """After a while, keep one line on stderr that names the probes still running."""
    line = StatusLine()
    try:
        await asyncio.sleep(PROGRESS_AFTER_S)
        while True:
            waiting = diagnosis.source.waiting_for()
            oldest = sorted(waiting.items(), key=lambda item: -item[1])[:3]
            names = ", ".join(f"{name} {age:.0f} s" for name, age in oldest)
            line.show(f"waiting for {names}" if names else "")
            await asyncio.sleep(1)
    finally:
        line.erase()
