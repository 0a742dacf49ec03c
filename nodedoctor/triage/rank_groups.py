"""What the ranks of a running job do, in groups: the smallest group comes first."""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor.grouping import group_pairs
from nodedoctor.nodeset import natural_key
from nodedoctor.record import record
from nodedoctor.whole_numbers import spans


def rank_words(ranks: Iterable[int]) -> str:
    """Ranks as a person writes them: `rank 3`, `ranks 0-2, 5`."""
    numbers = sorted(ranks)
    shown = ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in spans(numbers))
    return f"rank{'s' if len(numbers) > 1 else ''} {shown}"


@record
class RankGroupActivity:
    """Ranks that do the same; `hosts` are their nodes, where several nodes were looked at."""

    doing: str
    ranks: tuple[int, ...]
    others: int = 0
    hosts: tuple[str, ...] = ()

    @property
    def who(self) -> str:
        """The ranks as a person writes them: `ranks 0-2, 5`."""
        parts = []
        if self.ranks:
            parts.append(rank_words(self.ranks))
        if self.others:
            parts.append(f"{self.others} process{'es' if self.others > 1 else ''}")
        return " and ".join(parts)

    @property
    def count(self) -> int:
        """How many processes."""
        return len(self.ranks) + self.others


def group_by_activity(observations: Iterable[tuple[int | None, str, str]]) -> list[RankGroupActivity]:
    """Ranks, their hosts, and what each does, as groups; the smallest group first."""
    groups = group_pairs((doing, (rank, host)) for rank, host, doing in observations)
    activities = [
        RankGroupActivity(
            doing,
            tuple(sorted(rank for rank, _ in members if rank is not None)),
            sum(rank is None for rank, _ in members),
            tuple(sorted({host for _, host in members if host}, key=natural_key)),
        )
        for doing, members in groups.items()
    ]
    return sorted(activities, key=lambda group: (group.count, group.ranks[:1]))
