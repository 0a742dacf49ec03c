"""What the kernel said since a job began about its processes or the GPUs: kept when the job hangs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from nodedoctor.blackbox.samples.sample import TICKS_PER_SECOND, RankSample
from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.json_shapes import document, text, whole_number
from nodedoctor.triage.lines.prefixes import parse_line
from nodedoctor.triage.lines.times import year_seconds
from nodedoctor.triage.model import Event, Place
from nodedoctor.triage.patterns import read_events
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.machine import KernelTaskHung, XidReported

DEADLINE = 8.0
"""Seconds for the log, which a journal on a slow disk may need."""
SLACK = 60.0
"""Seconds that the log's clock may be off: it counts from the boot, and a suspended machine's is late."""
YEAR = 366 * 86400.0
"""Seconds after which the times of `read/times.py` begin again."""
MOST = 200
"""Lines that are kept, the newest of them."""


async def lines_about(ranks: Sequence[RankSample]) -> tuple[str, ...]:
    """Those messages that name one of these processes or of their children."""
    pids = {pid for rank in ranks for pid in (rank.pid, *rank.children)}
    return tuple(line for line in await lines(ranks) if not pids.isdisjoint(_named_by(line)))


async def lines(ranks: Sequence[RankSample]) -> tuple[str, ...]:
    """Kernel messages about memory, GPUs and stalls since the first of these processes began."""
    if not ranks:
        return ()
    observation = await child_process.run("kernel-log", Command(child("kernel/kernel_log")), DEADLINE)
    answer = document(observation) or {}
    boot = whole_number(answer, "boot_epoch")
    if boot is None:
        return ()
    began = time.localtime(boot + min(rank.start for rank in ranks) / TICKS_PER_SECOND - SLACK)
    since = year_seconds(*began[1:6], None)
    relevant = (line for line in text(answer, "text").splitlines() if _is_relevant(line, since))
    return tuple(relevant)[-MOST:]


def _is_relevant(line: str, since: float) -> bool:
    """Whether a line can explain the end of a process, and is new enough; its time has no year."""
    events = _line_events(line)
    times = (event.time for event in events if isinstance(event.what, (HostOom, XidReported, KernelTaskHung)))
    return any(moment is not None and (moment - since) % YEAR < YEAR / 2 for moment in times)


def _named_by(line: str) -> set[int | None]:
    """The processes that a message names."""
    return {pid for event in _line_events(line) for pid in (event.who.pid, getattr(event.what, "pid", None))}


def _line_events(line: str) -> list[Event[Any]]:
    return list(read_events(parse_line(line, Place("kernel log", 0))))
