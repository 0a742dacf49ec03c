"""The ranks of a job as a matrix, hosts by ranks, a mark for each.

Neighbouring hosts that look the same share a line, so that a thousand ranks are as readable as eight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.grouping import group_by
from nodedoctor.report.ranks import CULPRIT, DIED, DONE, GRAVE, MISSING, PARTY, RUNS, UNKNOWN, Seat, names
from nodedoctor.tui.theme import LABEL, QUIET, Para

PER_LINE = 8
"""Ranks in a line where hosts are not known: GPUs of most nodes."""
WIDEST = 16
"""Ranks of one host in a line."""
_STYLES = {
    CULPRIT: "bold red",
    PARTY: "bold magenta",
    DIED: "red",
    MISSING: "bold magenta",
    DONE: "green",
    RUNS: "green",
    UNKNOWN: "",
}


def style_of(mark: str) -> str:
    """The style of a mark; what waited is calm."""
    return _STYLES.get(mark, "cyan")


def matrix(seats: Sequence[Seat]) -> Iterator[Para]:
    """A line per host with a mark per rank; alike neighbours in one."""
    lines: list[tuple[str, str, list[Seat], int]] = []
    for label, members in _rank_groups(seats):
        marks = "".join(seat.mark for seat in members)
        if lines and lines[-1][1] == marks:
            first, _, before, count = lines[-1]
            lines[-1] = (first, marks, [*before, *members], count + 1)
        else:
            lines.append((label, marks, list(members), 1))
    if len(seats) < 2:
        return
    titles = [_group_title(label, members, count) for label, _, members, count in lines]
    width = max(map(len, titles))
    for title, (_, marks, members, count) in zip(titles, lines, strict=True):
        grave = [seat for seat in members if seat.mark in GRAVE]
        gravest = min((seat.mark for seat in grave), key=GRAVE.index, default="")
        few = [seat for seat in grave if seat.mark == gravest]
        style = style_of(gravest) if grave else "cyan"
        repeat = f"  x{count}" if count > 1 else ""
        note = f"   {names(few)}: {few[0].meaning}" if 0 < len(few) <= PER_LINE and count == 1 else ""
        yield Para(f"{marks}{repeat}{note}", f"{title:<{width}}  ", style, QUIET if not grave else LABEL)


def _group_title(label: str, members: Sequence[Seat], count: int) -> str:
    if members[0].host and count > 1:
        return f"{members[0].host} .. {members[-1].host}"
    if members[0].host:
        return label
    first, last = members[0].rank, members[-1].rank
    return f"rank {first}" if first == last else f"ranks {first}-{last}"


def _rank_groups(seats: Sequence[Seat]) -> Iterator[tuple[str, list[Seat]]]:
    """The ranks of each host, or eight by eight where hosts are not known."""
    blocks = group_by(seats, lambda seat: (seat.world, seat.host, 0 if seat.host else seat.rank // PER_LINE))
    for members in sorted(blocks.values(), key=lambda block: (block[0].world, block[0].rank)):
        for start in range(0, len(members), WIDEST):
            yield members[0].host, members[start : start + WIDEST]
