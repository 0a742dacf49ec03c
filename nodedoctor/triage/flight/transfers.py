"""Sends and receives between two ranks: they share no sequence number, only their names.

The recorder writes `nccl:send 1->2` and `nccl:recv 2<-1` with ranks inside the group, and nothing of gloo's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.flight.records import text_value

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
    state: str

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
        group = entry.get("process_group")
        pair = isinstance(group, (tuple, list)) and len(group) == 2
        name = (
            text_value(group[0]) if pair and group else text_value(entry.get("pg_name", entry.get("pg_id")))
        )
        if entry.get("state") == "completed":
            waiting.pop(name, None)
            continue
        match = _NAME.search(text_value(entry.get("profiling_name"))) if entry.get("is_p2p") is True else None
        if match is not None:
            state = text_value(entry.get("state"))[:20] or "scheduled"
            open_transfer = Transfer(match[1], int(match[2]), int(match[3]), name, state)
            waiting.setdefault(name, []).append(open_transfer)
    return tuple(transfer for group in waiting.values() for transfer in group[:MOST_OPEN])
