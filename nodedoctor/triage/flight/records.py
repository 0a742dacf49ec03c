"""The records of a flight recorder of any torch: what a rank enqueued, finished and left open, by group.

State means different things: with NCCL `retired` but not completed is a timeout, with gloo `retired` is done.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodedoctor.record import record

COMPLETED_KEPT = 32
"""Completed collectives kept per group: to compare what ranks did last, not their whole history."""

_LIBRARY = re.compile(r"site-packages|dist-packages|/torch/|lib/python|typing_extensions|<frozen")


@record
class Op:
    """One recorded collective: `state` is scheduled, started or completed; `site` the job's own line."""

    seq: int
    name: str
    sizes: str
    dtypes: str
    state: str
    created_ns: int
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
    ops: dict[int, Op] = field(default_factory=dict)

    @property
    def pending(self) -> Op | None:
        """The oldest collective that did not finish."""
        waiting = [op for op in self.ops.values() if op.state != "completed"]
        return min(waiting, key=lambda op: op.seq, default=None)


def states(records: list[dict[str, Any]]) -> tuple[dict[str, GroupState], dict[str, str]]:
    """States per group name, and which name each per-process group id stands for."""
    groups: dict[str, GroupState] = {}
    local: dict[str, str] = {}
    for entry in reversed(records):
        if entry.get("is_p2p") is True:
            continue
        seq = integer(entry.get("collective_seq_id", entry.get("seq_id")))
        if seq is None:
            continue
        name, desc = _group_name(entry)
        local.setdefault(str(entry.get("pg_id")), name)
        state = groups.setdefault(name, GroupState(name, desc))
        _take(state, seq, entry)
    return groups, local


def _take(state: GroupState, seq: int, entry: dict[str, Any]) -> None:
    profiling = str(entry.get("profiling_name", ""))
    done = entry.get("retired") is True if profiling.startswith("gloo") else entry.get("state") == "completed"
    state.enqueued = max(state.enqueued, seq)
    state.first = seq if state.first < 0 else min(state.first, seq)
    if done:
        state.completed = max(state.completed, seq)
        if len(state.ops) >= COMPLETED_KEPT and seq < state.enqueued - COMPLETED_KEPT:
            return
    if seq in state.ops:  # coalesced members share their collective's number
        return
    state.ops[seq] = Op(
        seq,
        profiling.partition(":")[2] or profiling,
        _flat(entry.get("input_sizes")),
        _flat(entry.get("input_dtypes")),
        "completed" if done else str(entry.get("state", "scheduled")),
        integer(entry.get("time_created_ns")) or 1000 * (integer(entry.get("time_created_us")) or 0),
        _site(entry.get("frames")),
    )


def apply_status(groups: dict[str, GroupState], local: dict[str, str], status: Any) -> None:
    """The recorder's own counters: they stay true when the ring has lost the records."""
    if not isinstance(status, dict):
        return
    for key, values in list(status.items())[:4096]:
        state = groups.get(local.get(str(key), ""))
        if state is not None and isinstance(values, dict):
            state.enqueued = max(state.enqueued, integer(values.get("last_enqueued_collective")) or -1)
            state.completed = max(state.completed, integer(values.get("last_completed_collective")) or -1)


def members_of(config: Any, groups: Mapping[str, GroupState]) -> dict[str, tuple[int, ...]]:
    """The global ranks of each group; gloo's only entry is keyed by nothing and means the last group made."""
    members: dict[str, tuple[int, ...]] = {}
    for name, row in list(config.items())[:65536] if isinstance(config, dict) else ():
        ranks = row.get("ranks") if isinstance(row, dict) else row
        if isinstance(ranks, str):
            members[str(name)] = tuple(int(digits) for digits in re.findall(r"\d{1,7}", ranks))
        elif isinstance(ranks, list):
            members[str(name)] = tuple(rank for rank in ranks if isinstance(rank, int))
    if "" in members and len(groups) == 1:
        members.setdefault(next(iter(groups)), members[""])
    return members


def _group_name(entry: dict[str, Any]) -> tuple[str, str]:
    group = entry.get("process_group")
    if isinstance(group, (tuple, list)) and len(group) == 2:
        return str(group[0]), str(group[1])
    return str(entry.get("pg_name", entry.get("pg_id", ""))), ""


def _site(frames: Any) -> str:
    """The innermost frame of the job's own code."""
    if not isinstance(frames, (list, tuple)):
        return ""
    for frame in frames[:64]:
        if isinstance(frame, dict) and not _LIBRARY.search(str(frame.get("filename", ""))):
            return f"{frame.get('name')} {frame.get('filename')}:{frame.get('line')}"
    return ""


def _flat(value: Any) -> str:
    return str(value)[:200] if isinstance(value, (list, tuple)) and value else ""


def integer(value: Any) -> int | None:
    """A whole number: JSON dumps write some counters as text. None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value) else None
