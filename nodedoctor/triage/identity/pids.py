"""Ranks by process id: a launcher names the pid, another line its rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nodedoctor.triage.events.progress import PidRoster
from nodedoctor.triage.identity.world import is_address, short_host
from nodedoctor.triage.model import Event, Identity

ANY, ADDRESS, NAME = "any place", "any address", "any name"


class ProcessTable:
    """Ranks by process id and place, two of each at most: only a single one is of use.

    A place is a host, "" where none is named, or ANY, ADDRESS and NAME for all, all with an address and all
    with a name.
    """

    def __init__(self, events: Iterable[Event[Any]]) -> None:
        self._ranks: dict[tuple[int, str], set[int]] = {}
        events = list(events)
        for event in events:
            if event.who.pid is not None and event.who.rank is not None:
                self._add(event.who.pid, short_host(event.who.host), event.who.rank)
        for event in events:
            if isinstance(event.what, PidRoster):
                self._add_roster(event.what)

    def rank_of(self, who: Identity) -> int | None:
        """The rank of a process, when only one fits: containers on several hosts give the same process ids.

        Two hosts differ by their names, or by their addresses; an address and a name may be of the same one.
        """
        if who.pid is None:
            return None
        host = short_host(who.host)
        places = (host, "", NAME if is_address(host) else ADDRESS) if host else (ANY,)
        ranks = set().union(*(self._ranks.get((who.pid, place), ()) for place in places))
        return ranks.pop() if len(ranks) == 1 else None

    def _add(self, pid: int, host: str, rank: int) -> None:
        places = (host, ANY, ADDRESS if is_address(host) else NAME) if host else ("", ANY)
        for place in places:
            ranks = self._ranks.setdefault((pid, place), set())
            if len(ranks) < 2:
                ranks.add(rank)

    def _add_roster(self, roster: PidRoster) -> None:
        """A list of process ids is in the order of ranks where two or more that are known agree."""
        ranks = {pid: rank for rank, pid in enumerate(roster.pids)}
        sure = [pid for pid in ranks if (pid, ANY) in self._ranks]
        if len(sure) > 1 and all(self._ranks[pid, ANY] == {ranks[pid]} for pid in sure):
            for pid in ranks.keys() - set(sure):
                self._add(pid, "", ranks[pid])
