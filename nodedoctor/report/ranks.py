"""What each rank of a job was: where it began, died, waited in what, finished, or is not in the logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.grouping import group_by
from nodedoctor.json_shapes import Json, as_list, mapping, objects, words
from nodedoctor.record import record, replace
from nodedoctor.report.inert import inert
from nodedoctor.whole_numbers import spans

MOST = 1 << 16
"""Ranks of one document that are looked at."""
_LETTERS = "abcdefghijklmnopqrstuvwyz"
CULPRIT, PARTY, DIED, MISSING, DONE, RUNS, UNKNOWN = "X", "!", "x", "?", "=", "+", "."
"""The marks of what is not waiting; what waited has a letter for each thing it waited in."""
_ABSENT = "-"
_STATES = {"died": DIED, "missing": MISSING, "finished": DONE, "running": RUNS, "waited": "waited"}
GRAVE = CULPRIT + PARTY + DIED + MISSING
"""The marks that a reader looks for, the gravest first."""
_MEANING = {
    CULPRIT: "where it began",
    PARTY: "one of these",
    DIED: "exited or raised an error",
    MISSING: "nothing was read",
    DONE: "finished",
    RUNS: "made progress to the last line",
    UNKNOWN: "state not known",
}
_EVENT_WORDS: Mapping[str, str] = {
    "unread_trouble": "an error that nothing else explains",
    "dying": "on its way out",
    "collective_status": "last collective that it finished",
    "process_exit": "exited",
    "gpu_full": "GPU memory full",
    "wrong_build": "libraries do not fit",
    "store_wait": "waited for the store",
    "peer_gone": "lost a peer",
    "mismatch": "called another collective",
    "host_oom": "host out of memory",
    "cut_short": "log cut off",
    "device_lost": "GPU lost",
    "nccl_error": "NCCL error",
    "ecc": "ECC error",
}
"""Events whose name alone says too little."""


@record
class Seat:
    """One rank: its world and host as far as known, its mark, and what the mark means."""

    world: str
    host: str
    rank: int
    mark: str
    meaning: str
    detail: str = ""


def rank_marks(document: Json) -> list[Seat]:
    """Every rank of the document that is known or missing, marked. Of any shape; what is odd is left out."""
    by_key = {(seat.world, seat.rank): seat for seat in _describe_rank(document)}
    for kind, mark in (("victims", "waited"), ("parties", PARTY), ("culprits", CULPRIT)):
        for who in objects(document.get(kind)):
            rank, world = _read_rank(who.get("rank")), words(who.get("world")) or "default"
            if rank is None:
                continue
            host = inert(words(who.get("host")))
            old = by_key.get((world, rank)) or Seat(inert(world), host, rank, "waited", "waited")
            new = replace(old, host=old.host or host)
            if mark in _MEANING:
                died = _MEANING[DIED] if old.mark == DIED else ""
                new = replace(new, mark=mark, meaning=_MEANING[mark], detail=old.detail or died)
            by_key[world, rank] = new
    coverage = mapping(document.get("coverage"))
    worlds = {world for world, _ in by_key} or {"default"}
    if len(worlds) == 1:  # coverage does not tell the ranks of several worlds apart
        (world,) = worlds
        for key, mark in (("ranks_missing", MISSING), ("ranks_seen", UNKNOWN)):
            for rank in map(_read_rank, as_list(coverage.get(key))[:MOST]):
                if rank is not None:
                    by_key.setdefault((world, rank), Seat(inert(world), "", rank, mark, _MEANING[mark]))
    return _letter_waits([by_key[key] for key in sorted(by_key)][:MOST])


def groups(seats: Sequence[Seat]) -> list[tuple[str, str, list[Seat]]]:
    """Mark, meaning and the ranks it is true of; where it began first, those that waited last."""
    by_key = group_by(seats, lambda seat: (seat.mark, seat.meaning))
    order = sorted(by_key, key=lambda key: (GRAVE.find(key[0]) % (len(GRAVE) + 1), key[0]))
    return [(mark, meaning, by_key[mark, meaning]) for mark, meaning in order]


def in_words(group: tuple[str, str, list[Seat]]) -> str:
    """A group of ranks in a line: `rank 41 on gpu-005: where it began (timed out)`."""
    _, meaning, members = group
    detail = ", ".join(sorted({seat.detail for seat in members if seat.detail}))
    return f"{names(members)}: {meaning}{f' ({detail})' if detail else ''}"


def alone(seats: Sequence[Seat], members: Sequence[Seat]) -> list[Seat]:
    """All ranks, of which only these are marked: each stays in its place."""
    shown = {(seat.world, seat.rank) for seat in members}
    return [seat if (seat.world, seat.rank) in shown else replace(seat, mark=_ABSENT) for seat in seats]


def names(members: Sequence[Seat]) -> str:
    """`rank 41 on gpu-005`, `ranks 0-40, 42-63`."""
    text = ranges(spans(sorted({seat.rank for seat in members})))
    hosts = sorted({seat.host for seat in members if seat.host})
    worlds = {seat.world for seat in members} - {"default", ""}
    world = f" of {', '.join(sorted(worlds))}" if worlds else ""
    place = f" on {', '.join(hosts)}" if 0 < len(hosts) <= 2 else f" on {len(hosts)} hosts" if hosts else ""
    return f"rank{'s'[: len(members) > 1]} {text}{world}{place}"


def _describe_rank(document: Json) -> Iterator[Seat]:
    doing = _rank_activities(document)
    for state in objects(document.get("ranks"))[:MOST]:
        rank = _read_rank(state.get("rank"))
        if rank is None:
            continue
        kind = words(state.get("state"))
        mark = _STATES.get(kind, UNKNOWN)
        meaning, op, event = _MEANING.get(mark, "waited"), words(state.get("op")), words(state.get("event"))
        if mark == "waited" and op:
            number = f" number {state['seq']}" if _read_rank(state.get("seq")) is not None else ""
            meaning = f"waited in {op}{number}"
        if mark in (UNKNOWN, RUNS) and rank in doing:
            mark, meaning = "waited", doing[rank]
        detail = event_words(event) if mark == DIED else ""
        world = words(state.get("world")) or "default"
        yield Seat(inert(world), inert(words(state.get("host"))), rank, mark, inert(meaning), inert(detail))


def _rank_activities(document: Json) -> dict[int, str]:
    """What each rank of a job that still runs does, by its stack."""
    by_key: dict[int, str] = {}
    for standing in objects(document.get("standings")):
        for first, last in filter(is_span, as_list(standing.get("ranks"))):
            by_key |= dict.fromkeys(
                range(max(first, 0), min(last, first + MOST) + 1), words(standing.get("doing"))
            )
    return by_key


def _letter_waits(seats: list[Seat]) -> list[Seat]:
    """A letter for each thing that ranks waited in."""
    waits: Mapping[str, str] = {
        meaning: _LETTERS[min(at, len(_LETTERS) - 1)]
        for at, meaning in enumerate(dict.fromkeys(s.meaning for s in seats if s.mark == "waited"))
    }
    return [replace(s, mark=waits[s.meaning]) if s.mark == "waited" else s for s in seats]


def _read_rank(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32 else None


def event_words(event: str) -> str:
    """An event's name as a person says it; the names themselves are keys for scripts."""
    return _EVENT_WORDS.get(event, event.replace("_", " "))


def ranges(pairs: Iterable[Sequence[int]]) -> str:
    """Ranges as `0-40, 42-63`."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


def is_span(value: object) -> bool:
    """Whether a JSON value is a range `[first, last]`."""
    pair = as_list(value)
    return len(pair) == 2 and all(isinstance(rank, int) and not isinstance(rank, bool) for rank in pair)
