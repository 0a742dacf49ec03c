"""What the ranks of a running job do, grouped: the few that differ from the many stand first."""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor.record import record
from nodedoctor.whole_numbers import spans


def numbered(ranks: Iterable[int]) -> str:
    """Ranks as a person writes them: `rank 3`, `ranks 0-2, 5`."""
    found = sorted(ranks)
    shown = ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in spans(found))
    return f"rank{'s' if len(found) > 1 else ''} {shown}"


@record
class Standing:
    """Ranks that do the same."""

    doing: str
    ranks: tuple[int, ...]
    others: int = 0

    @property
    def who(self) -> str:
        """The ranks as a person writes them: `ranks 0-2, 5`."""
        told = []
        if self.ranks:
            told.append(numbered(self.ranks))
        if self.others:
            told.append(f"{self.others} process{'es' if self.others > 1 else ''}")
        return " and ".join(told)

    @property
    def count(self) -> int:
        """How many processes."""
        return len(self.ranks) + self.others


def grouped(found: Iterable[tuple[int | None, str]]) -> list[Standing]:
    """Ranks and what each does, as groups; the smallest group first."""
    ranks: dict[str, list[int]] = {}
    others: dict[str, int] = {}
    for rank, doing in found:
        if rank is None:
            others[doing] = others.get(doing, 0) + 1
        else:
            ranks.setdefault(doing, []).append(rank)
    groups = [
        Standing(doing, tuple(sorted(ranks.get(doing, ()))), others.get(doing, 0))
        for doing in {**ranks, **others}
    ]
    return sorted(groups, key=lambda group: (group.count, group.ranks[:1]))
