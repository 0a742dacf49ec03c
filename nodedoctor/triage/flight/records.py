"""The records of a flight recorder of any torch: a rank's collectives, by group.

State means different things: with NCCL `retired` but not completed is a timeout, with gloo `retired` is done.
Sends and receives share no sequence number, only their names: `nccl:send 1->2` and `nccl:recv 2<-1`, with
ranks inside the group, and nothing of gloo's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.flight.unpickle import PickleRefused
from nodedoctor.triage.model import LARGEST_WORLD
from nodedoctor.triage.patterns.stacks import is_library_file
from nodedoctor.whole_numbers import signed, whole_number

COMPLETED_KEPT = 32
"""Completed collectives kept per group: to compare what ranks did last, not their whole history."""

MEMBERS_AT_MOST = 1 << 24
"""Ranks of all groups of one dump together: a hundred groups of all ranks of the largest runs known."""
_SIZES = 64
"""Tensors of one collective, and dimensions of one tensor, that are compared."""


@record
class CollectiveRecord:
    """One recorded collective: `state` is scheduled, started or completed; `site` the job's own line."""

    seq: int
    name: str
    sizes: str
    dtypes: str
    state: str
    site: str = ""

    @property
    def signature(self) -> str:
        """What must be equal on all ranks."""
        return f"{self.name} {self.sizes} {self.dtypes}"


@dataclass(slots=True)
class GroupState:
    """How far one rank was in one group."""

    name: str
    desc: str = ""
    enqueued: int = -1
    completed: int = -1
    first: int = -1
    ops: dict[int, CollectiveRecord] = field(default_factory=dict)

    @property
    def pending(self) -> CollectiveRecord | None:
        """The oldest collective that did not finish."""
        waiting = [op for op in self.ops.values() if op.state != "completed"]
        return min(waiting, key=lambda op: op.seq, default=None)


def group_states(records: list[dict[str, Any]]) -> tuple[dict[str, GroupState], dict[str, str]]:
    """States per group name, and the group name of each per-process id."""
    groups: dict[str, GroupState] = {}
    names_by_id: dict[str, str] = {}
    for entry in reversed(records):
        if entry.get("is_p2p") is True:
            continue
        seq = sequence_number(entry)
        if seq is None:
            continue
        name, desc = _group_name(entry)
        names_by_id.setdefault(text_value(entry.get("pg_id")), name)
        state = groups.setdefault(name, GroupState(name, desc))
        _add_record(state, seq, entry)
    return groups, names_by_id


def sequence_number(entry: Mapping[str, Any]) -> int | None:
    """A collective's number in its group."""
    return signed(entry.get("collective_seq_id", entry.get("seq_id")))


def _add_record(state: GroupState, seq: int, entry: dict[str, Any]) -> None:
    profiling = text_value(entry.get("profiling_name"))
    done = entry.get("retired") is True if profiling.startswith("gloo") else entry.get("state") == "completed"
    state.enqueued = max(state.enqueued, seq)
    state.first = seq if state.first < 0 else min(state.first, seq)
    if done:
        state.completed = max(state.completed, seq)
        if len(state.ops) >= COMPLETED_KEPT and seq < state.enqueued - COMPLETED_KEPT:
            return
    if seq in state.ops:  # coalesced members share their collective's number
        return
    state.ops[seq] = CollectiveRecord(
        seq,
        profiling.partition(":")[2] or profiling,
        _flatten_sizes(entry.get("input_sizes")),
        _flatten_sizes(entry.get("input_dtypes")),
        "completed" if done else text_value(entry.get("state")) or "scheduled",
        _call_site(entry.get("frames")),
    )


def apply_status(groups: dict[str, GroupState], names_by_id: dict[str, str], status: Any) -> None:
    """The recorder's own counters: they stay true when the ring has lost the records."""
    if not isinstance(status, dict):
        return
    for key, values in list(status.items())[:4096]:
        state = groups.get(names_by_id.get(text_value(key), ""))
        if state is not None and isinstance(values, dict):
            state.enqueued = max(state.enqueued, signed(values.get("last_enqueued_collective")) or -1)
            state.completed = max(state.completed, signed(values.get("last_completed_collective")) or -1)


def members_of(config: Any, groups: Mapping[str, GroupState]) -> dict[str, tuple[int, ...]]:
    """The global ranks of each group.

    Gloo's only entry has an empty key and means the group that was made last.
    """
    members: dict[str, tuple[int, ...]] = {}
    ranks_by_id: dict[int, tuple[int, ...]] = {}  # a list that a thousand groups refer to is read once
    total = 0
    for name, row in list(config.items())[:65536] if isinstance(config, dict) else ():
        ranks = row.get("ranks") if isinstance(row, dict) else row
        if isinstance(ranks, (str, list)):
            if id(ranks) not in ranks_by_id:
                ranks_by_id[id(ranks)] = _parse_ranks(ranks)
            total += len(ranks_by_id[id(ranks)])
            if total > MEMBERS_AT_MOST:
                raise PickleRefused(f"its groups name more than {MEMBERS_AT_MOST} ranks")
            members[text_value(name)] = ranks_by_id[id(ranks)]
    if "" in members and len(groups) == 1:
        members.setdefault(next(iter(groups)), members[""])
    return members


def _group_name(entry: dict[str, Any]) -> tuple[str, str]:
    group = entry.get("process_group")
    if isinstance(group, (tuple, list)) and len(group) == 2:
        return text_value(group[0]), text_value(group[1])
    return text_value(entry.get("pg_name", entry.get("pg_id"))), ""


def _parse_ranks(value: str | list[Any]) -> tuple[int, ...]:
    """Global ranks of a group, text up to torch 2.10; without numbers beyond any job's."""
    numbers = re.findall(r"\d+", value) if isinstance(value, str) else value
    ranks = (whole_number(rank, LARGEST_WORLD - 1) for rank in numbers)
    return tuple(rank for rank in ranks if rank is not None)


def _call_site(frames: Any) -> str:
    """The innermost frame of the job's own code."""
    if not isinstance(frames, (list, tuple)):
        return ""
    for frame in frames[:64]:
        if isinstance(frame, dict) and not is_library_file(text_value(frame.get("filename"))):
            return " ".join(
                (
                    text_value(frame.get("name")),
                    f"{text_value(frame.get('filename'))}:{text_value(frame.get('line'))}",
                )
            )
    return ""


def _flatten_sizes(value: Any) -> str:
    """Sizes or types of tensors, as Python prints them. Two levels: lists can hold themselves."""
    if not isinstance(value, (list, tuple)) or not value:
        return ""
    rows = [
        [_format_cell(cell) for cell in row[:_SIZES]] if isinstance(row, (list, tuple)) else _format_cell(row)
        for row in value[:_SIZES]
    ]
    return str(rows)[:200]


def _format_cell(value: Any) -> int | str | None:
    return value[:40] if isinstance(value, str) else signed(value)


def text_value(value: Any) -> str:
    """A name or a number of a record as text; '' for anything else."""
    if isinstance(value, str):
        return value[:500]
    number = signed(value)
    return "" if number is None else str(number)


_NAME = re.compile(r"\b(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")
MOST_OPEN = 64
"""Open transfers kept per rank: a pipeline has a few per neighbour."""


@record
class Transfer:
    """One open send or receive; `mine` and `peer` are ranks inside the group."""

    kind: str
    mine: int
    peer: int
    group: str

    def peer_in(self, members: Mapping[str, tuple[int, ...]]) -> int | None:
        """The peer's global rank; None when the group's ranks are unknown."""
        ranks = members.get(self.group, ())
        return ranks[self.peer] if self.peer < len(ranks) else None


def open_transfers(records: Iterable[dict[str, Any]]) -> tuple[Transfer, ...]:
    """Transfers behind the last record of their group that completed.

    Those before it are no evidence: batched transfers keep the state they were recorded with, and only the
    record of their batch completes.
    """
    waiting: dict[str, list[Transfer]] = {}
    for entry in records:
        name, _ = _group_name(entry)
        if entry.get("state") == "completed":
            waiting.pop(name, None)
            continue
        match = _NAME.search(text_value(entry.get("profiling_name"))) if entry.get("is_p2p") is True else None
        if match is not None:
            waiting.setdefault(name, []).append(Transfer(match[1], int(match[2]), int(match[3]), name))
    return tuple(transfer for group in waiting.values() for transfer in group[:MOST_OPEN])
