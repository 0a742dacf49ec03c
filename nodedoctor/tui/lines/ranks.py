"""The ranks of a job as a matrix, hosts by ranks, and in groups: who died, waited in what, is missing.

Neighbouring hosts that look the same share a line, so that a thousand ranks are as readable as eight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.json_shapes import Json, as_list, mapping, objects, words
from nodedoctor.record import record
from nodedoctor.report import triage_view
from nodedoctor.report.inert import inert
from nodedoctor.tui.theme import LABEL, QUIET, Para
from nodedoctor.whole_numbers import spans

PER_LINE = 8
"""Ranks in a line where hosts are not known: GPUs of most nodes."""
WIDEST = 16
"""Ranks of one host in a line."""
MOST = 4096
_LETTERS = "abcdefghijklmnopqrstuvwyz"
_GUILTY, _PARTY, _DIED, _MISSING, _DONE, _RUNS, _OTHER = "X", "!", "x", "?", "=", "+", "."
_ABSENT = "-"
_STATES = {"died": _DIED, "missing": _MISSING, "finished": _DONE, "running": _RUNS, "waited": "waited"}
_STYLES = {
    _GUILTY: "bold red",
    _PARTY: "bold magenta",
    _DIED: "red",
    _MISSING: "bold magenta",
    _DONE: "green",
    _RUNS: "green",
    _OTHER: "",
}
_ORDER = _GUILTY + _PARTY + _DIED + _MISSING
_MEANING = {
    _GUILTY: "look here",
    _PARTY: "one of these",
    _DIED: "exited or raised an error",
    _MISSING: "nothing was read",
    _DONE: "finished",
    _RUNS: "made progress to the last line",
    _OTHER: "state not known",
}


@record
class Seat:
    """One rank: its world and host as far as known, its mark, and what the mark stands for."""

    world: str
    host: str
    rank: int
    mark: str
    meaning: str
    detail: str = ""


def rank_marks(document: Json) -> list[Seat]:
    """Every rank of the document that is known or missing, marked. Of any shape; what is odd is left out."""
    found = {(seat.world, seat.rank): seat for seat in _describe_rank(document)}
    for kind, mark in (("victims", "waited"), ("parties", _PARTY), ("culprits", _GUILTY)):
        for who in objects(document.get(kind)):
            rank, world = _rank(who.get("rank")), words(who.get("world")) or "default"
            if rank is None:
                continue
            host = inert(words(who.get("host")))
            old = found.get((world, rank)) or Seat(inert(world), host, rank, "waited", "waited")
            new = replace(old, host=old.host or host)
            if mark in _MEANING:
                died = _MEANING[_DIED] if old.mark == _DIED else ""
                new = replace(new, mark=mark, meaning=_MEANING[mark], detail=old.detail or died)
            found[world, rank] = new
    missing = as_list(mapping(document.get("coverage")).get("ranks_missing"))
    worlds = {world for world, _ in found} or {"default"}
    if len(worlds) == 1:
        (world,) = worlds
        for rank in map(_rank, missing[:MOST]):
            if rank is not None and (world, rank) not in found:
                found[world, rank] = Seat(inert(world), "", rank, _MISSING, _MEANING[_MISSING])
    return _lettered([found[key] for key in sorted(found)][:MOST])


def groups(made: Sequence[Seat]) -> list[tuple[str, str, str, list[Seat]]]:
    """Mark, style, meaning and the ranks it is true of; the guilty first, those that waited last."""
    found: dict[tuple[str, str], list[Seat]] = {}
    for seat in made:
        found.setdefault((seat.mark, seat.meaning), []).append(seat)
    order = sorted(found, key=lambda key: (_ORDER.find(key[0]) % (len(_ORDER) + 1), key[0]))
    return [(mark, _STYLES.get(mark, "cyan"), meaning, found[mark, meaning]) for mark, meaning in order]


def alone(made: Sequence[Seat], members: Sequence[Seat]) -> list[Seat]:
    """All ranks, of which only these are marked: each stays in its place."""
    shown = {(seat.world, seat.rank) for seat in members}
    return [seat if (seat.world, seat.rank) in shown else replace(seat, mark=_ABSENT) for seat in made]


def names(members: Sequence[Seat]) -> str:
    """`rank 41 on gpu-005`, `ranks 0-40, 42-63`."""
    runs = spans(sorted({seat.rank for seat in members}))
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    hosts = sorted({seat.host for seat in members if seat.host})
    worlds = {seat.world for seat in members} - {"default", ""}
    world = f" of {', '.join(sorted(worlds))}" if worlds else ""
    place = f" on {', '.join(hosts)}" if 0 < len(hosts) <= 2 else f" on {len(hosts)} hosts" if hosts else ""
    return f"rank{'s'[: len(members) > 1]} {text}{world}{place}"


def matrix(made: Sequence[Seat]) -> Iterator[Para]:
    """A line per host with a mark per rank; alike neighbours in one."""
    lines: list[tuple[str, str, list[Seat], int]] = []
    for label, members in _lines(made):
        marks = "".join(seat.mark for seat in members)
        if lines and lines[-1][1] == marks:
            first, _, before, count = lines[-1]
            lines[-1] = (first, marks, [*before, *members], count + 1)
        else:
            lines.append((label, marks, list(members), 1))
    if len(made) < 2:
        return
    titles = [_title(label, members, count) for label, _, members, count in lines]
    width = max(map(len, titles))
    for title, (_, marks, members, count) in zip(titles, lines, strict=True):
        odd = [seat for seat in members if seat.mark in _ORDER]
        style = _STYLES[min(odd, key=lambda seat: _ORDER.index(seat.mark)).mark] if odd else "cyan"
        said = f"  x{count}" if count > 1 else ""
        few = f"   {names(odd)}: {odd[0].meaning}" if 0 < len(odd) <= PER_LINE and count == 1 else ""
        yield Para(f"{marks}{said}{few}", f"{title:<{width}}  ", style, QUIET if not odd else LABEL)


def _title(label: str, members: Sequence[Seat], count: int) -> str:
    if members[0].host and count > 1:
        return f"{members[0].host} .. {members[-1].host}"
    if members[0].host:
        return label
    first, last = members[0].rank, members[-1].rank
    return f"rank {first}" if first == last else f"ranks {first}-{last}"


def _lines(made: Sequence[Seat]) -> Iterator[tuple[str, list[Seat]]]:
    """The ranks of each host, or eight by eight where hosts are not known."""
    known: dict[tuple[str, str], list[Seat]] = {}
    unknown: dict[tuple[str, int], list[Seat]] = {}
    for seat in made:
        if seat.host:
            known.setdefault((seat.world, seat.host), []).append(seat)
        else:
            unknown.setdefault((seat.world, seat.rank // PER_LINE), []).append(seat)
    blocks = [(members[0].host, members) for members in known.values()]
    blocks += [("", members) for members in unknown.values()]
    for label, members in sorted(blocks, key=lambda block: (block[1][0].world, block[1][0].rank)):
        for start in range(0, len(members), WIDEST):
            yield label, members[start : start + WIDEST]


def _describe_rank(document: Json) -> Iterator[Seat]:
    doing = _doing(document)
    for state in objects(document.get("ranks"))[:MOST]:
        rank = _rank(state.get("rank"))
        if rank is None:
            continue
        kind = words(state.get("state"))
        mark = _STATES.get(kind, _OTHER)
        meaning, op, event = _MEANING.get(mark, "waited"), words(state.get("op")), words(state.get("event"))
        if mark == "waited" and op:
            number = f" number {state['seq']}" if _rank(state.get("seq")) is not None else ""
            meaning = f"waited in {op}{number}"
        if mark in (_OTHER, _RUNS) and rank in doing:
            mark, meaning = "waited", doing[rank]
        detail = event.replace("_", " ") if mark == _DIED else ""
        world = words(state.get("world")) or "default"
        yield Seat(inert(world), inert(words(state.get("host"))), rank, mark, inert(meaning), inert(detail))


def _doing(document: Json) -> dict[int, str]:
    """What each rank of a job that still runs does, by its stack."""
    found: dict[int, str] = {}
    for standing in objects(document.get("standings")):
        for first, last in filter(triage_view.is_span, as_list(standing.get("ranks"))):
            found |= dict.fromkeys(
                range(max(first, 0), min(last, first + MOST) + 1), words(standing.get("doing"))
            )
    return found


def _lettered(made: list[Seat]) -> list[Seat]:
    """A letter for each thing that ranks waited in."""
    waits: Mapping[str, str] = {
        meaning: _LETTERS[min(at, len(_LETTERS) - 1)]
        for at, meaning in enumerate(dict.fromkeys(s.meaning for s in made if s.mark == "waited"))
    }
    return [replace(s, mark=waits[s.meaning]) if s.mark == "waited" else s for s in made]


def _rank(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32 else None
