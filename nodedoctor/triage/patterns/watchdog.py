"""PyTorch's NCCL watchdog, heartbeat monitor and desync report, torch 1.13 to 2.15."""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.model import CollectiveCall, ProcessGroup
from nodedoctor.triage.patterns.log_pattern import bounded_integer
from nodedoctor.triage.patterns.rows import read_rows
from nodedoctor.whole_numbers import signed

GROUP = (
    r"\[PG (?:ID )?(?P<pgid>[^\s\]]+)"
    r"(?: PG GUID (?P<guid>[^\s(\]]+)(?:\((?P<desc>[^)]*)\))?)? Rank (?P<grank>\d+)\]"
)
"""`[PG 0 Rank 1]` in torch 2.3 and 2.4, `[PG ID 0 PG GUID 0(default_pg) Rank 1]` from 2.5."""

AT_EXIT = "destroy_process_group() was not called before program exit"
"""The warning of a process group when its program ends (`~ProcessGroupNCCL`), be it by an exception."""

_GROUP = re.compile(GROUP)
_ANNOUNCED = re.compile(r"Watchdog caught collective operation timeout|Watchdog caught(?: [a-z ]{1,27})?$")
"""The watchdog's announcement, also where the log is cut within it."""
_WORK = re.compile(r"\w{0,32}Work[A-Z]{2,6}\(([^)]*(?:\(ms\)=\d+[^)]*)?)")


@record
class TimedOut:
    """A rank waited in a collective until the group's timeout: nearly always a victim."""

    work: CollectiveCall = CollectiveCall()
    ran_ms: int | None = None
    fresh: bool = False
    """The first announcement, not the exception text that repeats it."""


@record
class CollectiveFailed:
    """A collective ended with an error of NCCL, not with a timeout."""

    work: CollectiveCall = CollectiveCall()


@record
class CollectiveStatus:
    """How far one rank was in one group."""

    group: ProcessGroup
    enqueued: int | None
    stuck: int | None
    completed: int | None = None


@record
class WatchdogStuck:
    """The watchdog was stuck in a CUDA or NCCL call, or waited for the GIL."""

    seconds_stuck: int | None = None
    of_server: bool = False
    """An inference server's, which ends ranks that finish no step."""


@record
class DesyncMissing:
    """The desync report names ranks that never joined: the most trusted line there is."""

    ranks: tuple[int, ...]


@record
class DesyncJoined:
    """Ranks that entered a collective and did not leave it, the furthest behind."""

    ranks: tuple[int, ...]
    seq: int


@record
class ProcessAborting:
    """The watchdog takes the process down; says nothing about why."""

    reason: str


def group_of(text: str) -> ProcessGroup:
    """The process group a line names."""
    match = _GROUP.search(text)
    return ProcessGroup(match["guid"] or match["pgid"], match["desc"] or "") if match else ProcessGroup()


def collective_of(text: str) -> CollectiveCall | None:
    """The collective in `WorkNCCL(SeqNum=3, OpType=ALLREDUCE, ...)`, whichever of its fields are there."""
    if not _WORK.search(text):
        return None

    def field(name: str) -> str | None:
        match = re.search(rf"\b{name}=(-?\w+)(?=[,)])", text)  # at the end of a line it may be cut
        return match[1] if match else None

    timeout = re.search(r"Timeout\(ms\)=(\d+)(?=[,)])", text)
    return CollectiveCall(
        op=field("OpType") or "",
        seq=signed(field("SeqNum")),
        numel_in=signed(field("NumelIn")),
        numel_out=signed(field("NumelOut")),
        timeout_ms=signed(timeout[1]) if timeout else None,
        group=group_of(text),
    )


def _timed_out(match: re.Match[str]) -> TimedOut | CollectiveFailed | None:
    text = match.string
    work = collective_of(text)
    if "raised the following async exception" in text:
        return CollectiveFailed(work) if work else None
    if work is None:
        if not _ANNOUNCED.search(text):
            return None
        work = CollectiveCall(group=group_of(text))
    elif not re.search(r"time[d ]*\s?out|Timeout|ran for", text):
        return None
    ran = re.search(r"ran for (\d+) ?(?:milliseconds|ms)", text)
    fresh = "watchdog thread terminated" not in text and "what():" not in text
    return TimedOut(work, signed(ran[1]) if ran else work.timeout_ms, fresh)


def _group_status(match: re.Match[str]) -> CollectiveStatus:
    text = match.string
    stuck = re.search(r"at (?:NCCL )?work(?: sequence id)?: (-?\d+)", text)
    completed = re.search(r"last completed (?:NCCL )?work: (-?\d+)", text)
    return CollectiveStatus(
        group_of(text),
        signed(match["enqueued"]),
        signed(stuck[1]) if stuck else None,
        signed(completed[1]) if completed else None,
    )


def _aborting(match: re.Match[str]) -> TimedOut | CollectiveFailed:
    """torch 2.15's default backend names rank and group, and neither the collective nor its number."""
    work = CollectiveCall(group=ProcessGroup(match["group"] or ""))
    if re.search(r"time[d ]*\s?out", match["why"]):
        return TimedOut(work, None, fresh=True)
    return CollectiveFailed(work)


def _async_error(match: re.Match[str]) -> CollectiveFailed:
    return CollectiveFailed(CollectiveCall(group=ProcessGroup(match["group"] or "")))


def _lagging(match: re.Match[str]) -> TimedOut:
    return TimedOut(CollectiveCall(match["op"], bounded_integer(match["seq"])))


_ROWS = r"""
# torch (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, debug.h, TraceUtils.h)
_aborting
    (?:\[TC\]\[rank=\d+\]\[name=(?P<group>[^\]]{0,80})\] )?
    Aborting process on rank (?P<rank>\d{1,7}) due to (?P<why>.*)
_async_error
    ^(?:\[TC\]\[rank=(?P<rank>\d{1,7})\]\[name=(?P<group>[^\]]{0,80})\] )?.*?
    nccl hit async error:? *.*
ProcessAborting  reason=its own watchdog takes the process down
    ^(?:\[Rank (?P<grank>\d+)\] )?.*(?:taking the entire process down
    |\bSome NCCL operations have failed or timed out)
_timed_out
    (?:(?:\s{0,8}what\(\): .{0,240}?)?(?:\[Rank|\brank) (?P<grank>\d+)\]? )?
    (?:.{0,40}Watchdog caught|.{0,200}Work[A-Z]{2,6}\()
_group_status
    (?:<GROUP>.*?)?[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d+)
DUMP_REQUESTED
    (?:<GROUP>.*?)?due to a collective timeout from +(?:rank \d+|this local rank)
WatchdogStuck
    (?:watchdog got stuck for (?P<seconds_stuck>\d+) seconds|Heartbeat monitor timed out)
GIL_HELD
    Could not acquire GIL within \d+ ms
DesyncMissing
    To our best knowledge, (?:ranks? )?
    (?:\[?(?P<ranks>[\d, ]+)\]? are the lagging|the lagging/dead)(?P<ranks2>.*)
DesyncMissing
    \[(?P<ranks>[\d, ]+)\] finished collective #\d+, but didn't join
DesyncJoined
    \[(?P<ranks>[\d, ]+)\] joined but didn't finish collective #(?P<seq>\d+)
_lagging
    \[(?P<rank>\d{1,7})\] Timeout at collective: (?P<op>\w{2,40}), #(?P<seq>\d+)
COMMUNICATOR_DESTROYED
    ^(?:Rank (?P<grank>\d+)\] )?.*(?:Watchdog joined, destroying NCCL comm|destroy_process_group entered)
PROGRAM_ENDED
    (?:<GROUP> )?Warning: WARNING: (?:<AT_EXIT>|process group has NOT been destroyed before)
ProcessAborting
    (?:<GROUP> |\[Rank \d+\] )?(?:Process group|NCCL) watchdog thread terminated with exception:[ ]
    (?P<reason>.*)
"""

SIGNS = read_rows(
    _ROWS.replace("<GROUP>", GROUP).replace("<AT_EXIT>", re.escape(AT_EXIT)),
    ProcessAborting, WatchdogStuck, DesyncMissing, DesyncJoined,
    _aborting, _async_error, _timed_out, _group_status, _lagging,
)  # fmt: skip
