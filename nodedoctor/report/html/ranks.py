"""The ranks of a job as a grid, a row per host: where it began, who waited, who is not in the logs."""

from __future__ import annotations

from collections.abc import Sequence

from nodedoctor.report.html.markup import Markup, each_piece, element
from nodedoctor.report.ranks import CULPRIT, DIED, MISSING, PARTY, UNKNOWN, Seat

MOST = 4096
"""Ranks drawn one by one; of a larger job they are listed as ranges only."""
_TONES = {CULPRIT: "fail", DIED: "fail", PARTY: "warn", MISSING: "missing", UNKNOWN: "seen"}


def grids(seats: Sequence[Seat]) -> Markup:
    """A grid per world, a row per host; nothing for one rank, or where all look alike."""
    if not 1 < len(seats) <= MOST or all(seat.mark in (MISSING, UNKNOWN) for seat in seats):
        return Markup()
    several = len({seat.world for seat in seats}) > 1
    groups: dict[tuple[str, str], list[Seat]] = {}
    for seat in sorted(seats, key=lambda seat: (seat.world, seat.host, seat.rank)):
        groups.setdefault((seat.world if several else "", seat.host), []).append(seat)
    return each_piece(
        element(
            "div",
            element("p", " ".join(filter(None, title)), class_="probe") if any(title) else None,
            *map(_cell, members),
            class_="ranks",
        )
        for title, members in groups.items()
    )


def _cell(seat: Seat) -> Markup:
    mark = "" if seat.mark == UNKNOWN else seat.mark
    return element("span", f"{seat.rank}{mark}", class_=f"rank {_TONES.get(seat.mark, 'waited')}")
