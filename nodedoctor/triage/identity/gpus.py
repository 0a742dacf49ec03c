"""Ranks by GPU: NCCL tells the rank and PCI bus of each process, the kernel the bus of what failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.triage.events.cuda import GpuFull
from nodedoctor.triage.events.nccl import Communicator
from nodedoctor.triage.events.system.exits import ProcessExit
from nodedoctor.triage.events.trace import CutShort, ExceptionRaised
from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.model import Event


def rank_communicators(events: Sequence[Event[Any]]) -> list[Event[Any]]:
    """The events, those of the largest communicator with its ranks: these are global ones."""
    largest = max((event.what.ranks for event in events if isinstance(event.what, Communicator)), default=0)

    def is_global(event: Event[Any]) -> bool:
        what = event.what
        return isinstance(what, Communicator) and what.ranks == largest and event.who.rank is None

    return [
        replace(event, who=replace(event.who, rank=event.what.rank)) if is_global(event) else event
        for event in events
    ]


class BusTable:
    """Which rank used the GPU on a PCI bus of a host."""

    def __init__(self, events: Iterable[Event[Any]]) -> None:
        self._ranks = {
            (short_host(event.who.host), event.what.bus): event.who.rank
            for event in events
            if isinstance(event.what, Communicator) and event.what.bus and event.who.rank is not None
        }

    def rank_on(self, host: str | None, bus: int) -> int | None:
        """The rank on a GPU; a kernel's log without a host is of the only one that has a GPU on that bus."""
        if host is not None:
            return self._ranks.get((short_host(host), bus))
        ranks = [rank for (_, bus_number), rank in self._ranks.items() if bus_number == bus]
        return ranks[0] if len(ranks) == 1 else None


class GpuTable:
    """The ranks of a single node by the GPUs of their numbers."""

    def __init__(self, events: Sequence[Event[Any]]) -> None:
        failures = [e.who for e in events if isinstance(e.what, (ProcessExit, ExceptionRaised, CutShort))]
        ranks = (who.rank if who.rank is not None else who.local_rank for who in failures)
        self._failed_ranks = {rank for rank in ranks if rank is not None}
        full = [
            event.who for event in events if isinstance(event.what, GpuFull) and event.who.gpu is not None
        ]
        ranked = [who for who in full if who.rank is not None]
        same = all(who.gpu == who.rank for who in ranked)
        self._gpu_is_rank = bool(ranked) and same and len({who.gpu for who in full}) > 1

    def rank_on(self, gpu: int | None) -> int | None:
        """The rank of a process that says only which GPU it used.

        It is that of the GPU's number where several tell of GPUs and those with a rank are on the one of
        their number, and where the rank of this number failed. Each rank of a node takes the GPU of its own
        number, or sees no other than its own: that is GPU 0 to all of them, so that a 0 counts only where
        rank 0 alone failed.
        """
        failed = gpu in self._failed_ranks and (gpu != 0 or self._failed_ranks == {0})
        return gpu if self._gpu_is_rank or failed else None
