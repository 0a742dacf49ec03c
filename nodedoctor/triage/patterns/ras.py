"""NCCL's RAS answers, as text or JSON: ranks that do not answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nodedoctor.json_shapes import objects
from nodedoctor.json_shapes import text as text_of_key
from nodedoctor.record import record
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import LARGEST_PID, LARGEST_WORLD, NOBODY, Event, Identity, Place
from nodedoctor.triage.patterns.log_pattern import rank_number
from nodedoctor.triage.patterns.rows import read_rows
from nodedoctor.whole_numbers import signed, whole_number


@record
class RasMissing:
    """Ranks from which RAS got no data."""

    ranks: tuple[int, ...]


@record
class RasCommunicator:
    """The heading of what is wrong with one communicator: `#0-0` is the first of the largest."""

    number: str


@record
class RasSection:
    """Ranks launched different numbers of one operation; the lines below count them."""

    op: str


@record
class RasCount:
    """How many ranks launched up to which operation, 0 before the first; one apart is ordinary."""

    ranks: int
    operation: int


@record
class HangFolder:
    """Where that detector kept stacks, RAS's answers and flight recordings of the hang."""

    path: str


def _ranks_behind(match: re.Match[str]) -> RasCount | None:
    ranks = signed(match["many"]) if match["many"] else 1
    operation = signed(match["operation"]) if match["operation"] else 0
    return RasCount(ranks, operation) if ranks is not None and operation is not None else None


def _hang_reported(match: re.Match[str]) -> RasMissing | Mark:
    return RasMissing((rank_number(match["rank"]),)) if match["silent"] else Mark.LAUNCHED_FEWER


SIGNS = read_rows(
    r"""
# NVIDIA/nccl, src/ras/client_support.cc
RasMissing
    [Tt]he missing ranks?: (?P<ranks>[\d, -]+)
RAS_DEAD
    process(?:es)? (?:is|are) considered dead
RAS_PROCESS
    ^\s*Process (?P<pid>\d+) on node (?P<host>\S+) managing GPU (?P<gpu>\d+)
RasSection
    ranks have different (?P<op>\w+) operation counts
RAS_INCOMPLETE
    Missing communicator data from \d+ ranks?
_ranks_behind
    (?:(?<!\d)(?P<many>\d+) ranks|\bRank (?P<grank>\d+)) ha(?:ve|s)[ ]
    (?:launched up to operation (?P<operation>\d+)|not launched any operations)
    (?: -- GPU .{1,60}? managed by process (?P<pid>\d+) on node (?P<host>\S+))?
RAS_RANK
    ^\s*Rank (?P<grank>\d+) --[ ]
    (?:GPU .{1,60}? managed by process (?P<pid>\d+) on node (?P<host>\S+)|\[process information)
RAS_TABLE
    ^Group +Comms +Nodes +Ranks
RAS_TABLE
    ^Errors$
RasCommunicator
    ^(?P<number>#\d+-\d+) \([0-9a-f]+\) (?:MISMATCH|ERROR|INCOMPLETE)
RAS_TABLE
    ^ *\d+ +\d+ +\d+ +[\d-]+ +\d+ +\d+ +[A-Z]+ +(?:MISMATCH|ERROR|INCOMPLETE)
RAS_RUNNING
    \bRUNNING\s+OK\b
# Ray Train, python/ray/train/v2/_internal/callbacks (RAY_TRAIN_ENABLE_NV_HANG_DETECTOR)
HANG_CONFIRMED
    \bNCCLHangError: |\bNCCL hang (?:confirmed|detector): \d+ of \d+ communicators?\b
HangFolder
    (?P<path>/[^\s'",]{0,160}hang_detector[^\s'",/]{0,40})
_hang_reported
    World rank (?P<rank>\d+) \(host (?P<host>[\w.:-]{1,255}), pid (?P<pid>\d+)
    (?:, cuda:(?P<gpu>\d+))?\).{0,160}?\bis (?:behind by \d+ |(?P<silent>unresponsive))
""",
    RasMissing, RasCommunicator, RasSection, HangFolder, _ranks_behind, _hang_reported,
)  # fmt: skip


def read_document(document: dict[str, Any], place: Place) -> Iterator[Event[Any]]:
    """The events in RAS's JSON answer; parts with another layout are passed over."""
    for communicator in objects(document.get("communicators")):
        missing = [
            row
            for row in objects(communicator.get("missing_ranks"))
            if whole_number(row.get("rank"), LARGEST_WORLD - 1) is not None
        ]
        size = communicator.get("size")
        if not missing and isinstance(size, int) and communicator.get("ranks_count") == size:
            answer = f"communicator {communicator.get('hash')}: all ranks answer"
            yield Event(Mark.RAS_RUNNING, place, NOBODY, None, answer)
        for row in missing:
            yield from _ranks_missing(row, place)


def _ranks_missing(row: dict[str, Any], place: Place) -> Iterator[Event[Any]]:
    pid = whole_number(row.get("pid"), LARGEST_PID)
    who = Identity(rank=row["rank"], host=text_of_key(row, "host") or None, pid=pid)
    status = row.get("status")
    dead = isinstance(status, dict) and status.get("considered_dead") is True
    text = f"rank {who.rank} on {who.host} (process {who.pid}) does not answer"
    yield Event(RasMissing((row["rank"],)), place, who, None, text)
    yield Event(Mark.RAS_PROCESS, place, who, None, text)
    if dead:
        yield Event(Mark.RAS_DEAD, place, who, None, text + " and is considered dead")
