"""The ranks of a job as a grid: who is guilty, who only waited, and of whom nothing was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.json_shapes import as_list, objects, words
from nodedoctor.report.html.markup import Markup, each_piece, element, join_pieces

MOST = 4096
"""Ranks drawn one by one; of a larger job the guilty and the waiting are listed as ranges."""

_KINDS = (
    ("culprits", "x", "guilty", "fail"),
    ("parties", "?", "one of these is guilty", "warn"),
    ("victims", "~", "only waited", "waited"),
    ("missing", "-", "nothing was read of it", "missing"),
)
_MARKS = {kind: (sign, tone) for kind, sign, _, tone in _KINDS}

Seat = tuple[str, str, int]
"""World, host and rank."""


def grids(document: Mapping[str, Any]) -> Markup:
    """A grid per world, a row per host, and the guilty in words."""
    kinds = dict(_rank_marks(document))
    if not {"culprits", "parties", "victims"} & set(kinds.values()):
        return Markup()
    shown = _draw_matrix(kinds) if len(kinds) <= MOST else Markup()
    return join_pieces(_kinds_in_words(kinds), shown)


def _rank_marks(document: Mapping[str, Any]) -> Iterator[tuple[Seat, str]]:
    """Every rank with what it was, in order; the gravest kind is the one that counts."""
    kinds: dict[Seat, str] = {}
    for kind in ("culprits", "parties", "victims"):
        for who in objects(document.get(kind)):
            rank = _rank(who.get("rank"))
            if rank is not None:
                seat = words(who.get("world")) or "default", words(who.get("host")), rank
                kinds.setdefault(seat, kind)
    told = document.get("coverage")
    coverage = told if isinstance(told, dict) else {}
    worlds = {world for world, _, _ in kinds}
    if (
        len(worlds) < 2
    ):  # ranks of several worlds have the same numbers, and coverage does not tell them apart
        world = next(iter(worlds), "default")
        have = {rank for _, _, rank in kinds}
        others = [
            ("", as_list(coverage.get("ranks_seen"))),
            ("missing", as_list(coverage.get("ranks_missing"))),
        ]
        for kind, ranks in others:
            for rank in map(_rank, ranks):
                if rank is not None and rank not in have:
                    have.add(rank)
                    kinds[world, "", rank] = kind
    yield from sorted(kinds.items())


def _rank(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 24 else None


def _kinds_in_words(kinds: Mapping[Seat, str]) -> Markup:
    """Each kind in words, with the ranks as ranges: what a screen reader reads and people copy."""
    said = []
    for kind, sign, meaning, tone in _KINDS:
        seats = [seat for seat in kinds if kinds[seat] == kind]
        if seats:
            legend = element("span", sign, class_=f"rank {tone}")
            said.append(element("li", legend, " ", element("strong", meaning), ": ", _names(seats)))
    return element("ul", each_piece(said), class_="legendlist")


def _names(seats: list[Seat]) -> str:
    """Ranks by world and host, as ranges."""
    groups: dict[tuple[str, str], list[int]] = {}
    for world, host, rank in seats:
        groups.setdefault((world, host), []).append(rank)
    several = len({world for world, _ in groups}) > 1
    return "; ".join(
        f"{f'{world} ' if several else ''}rank {ranges(ranks)}" + (f" on {host}" if host else "")
        for (world, host), ranks in groups.items()
    )


def ranges(numbers: list[int]) -> str:
    """`0-2, 5`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _draw_matrix(kinds: Mapping[Seat, str]) -> Markup:
    if len(kinds) < 2:
        return Markup()
    groups: dict[tuple[str, str], list[Markup]] = {}
    several = len({world for world, _, _ in kinds}) > 1
    for (world, host, rank), kind in kinds.items():
        sign, tone = _MARKS.get(kind, ("", "seen"))
        title = (world if several else "", host)
        groups.setdefault(title, []).append(element("span", f"{rank}{sign}", class_=f"rank {tone}"))
    return each_piece(
        element(
            "div",
            element("p", " ".join(filter(None, title)), class_="probe") if any(title) else None,
            *cells,
            class_="ranks",
        )
        for title, cells in groups.items()
    )
