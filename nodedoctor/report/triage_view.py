"""What every view of a triage document says of what was read: other runs, other jobs, what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nodedoctor.json_shapes import Json, as_list, mapping, objects, whole_number, words
from nodedoctor.record import record
from nodedoctor.whole_numbers import spans

CALM = ("clean", "recovered")
"""Outcomes without a failure."""
UNSURE = (*CALM, "nothing")
"""Outcomes that have no cause, and so no confidence in one."""

_MINUTE = len("11-21 08:00")


def earlier(document: Json) -> Iterator[tuple[str, str, str]]:
    """Each run before the judged one: what it ended of, in a sentence, and where that stands."""
    for run in objects(document.get("earlier")):
        first = next(iter(objects(run.get("evidence"))), {})
        line = words(first.get("line"))
        where = words(first.get("source")) + (f":{line}" if line else "")
        calm = words(run.get("outcome")) in CALM
        yield "no failure" if calm else words(run.get("cause")), words(run.get("headline")), where


def jobs(document: Json) -> Iterator[tuple[str, str, bool]]:
    """Each job where there are several: its id, what is known of it, and whether it was judged."""
    found = objects(document.get("jobs"))
    for job in found if len(found) > 1 else ():
        hosts = [words(host) for host in as_list(job.get("hosts"))]
        ranks = words(job.get("world"))
        first, last = words(job.get("first")), words(job.get("last"))
        known = (
            f"{', '.join(hosts[:4])}{f' and {len(hosts) - 4} more' if len(hosts) > 4 else ''}",
            f"{ranks} ranks" if ranks else "",
            f"{first[:_MINUTE]} to {last[:_MINUTE]}" if first and last else "",
            "no failure" if words(job.get("outcome")) in CALM else words(job.get("cause")),
        )
        yield words(job.get("id")), "; ".join(filter(None, known)), job.get("judged") is True


def also_seen(document: Json) -> Iterator[tuple[str, str]]:
    """Each error that decided nothing: its line, and what became of it with the reason."""
    for error in objects(document.get("also_seen")):
        yield words(error.get("text")).strip(), fate_of(error)


def fate_of(error: Json) -> str:
    """What became of an error that decided nothing, and why."""
    count = whole_number(error, "count") or 1
    times = f" (first of {count} that are alike)" if count > 1 else ""
    return f"{words(error.get('fate'))}: {words(error.get('reason'))}{times}"


@record
class Moment:
    """What one rank, or many within seconds of each other, reported: when, who, and where the first did."""

    event: str
    first: str
    last: str
    ranks: tuple[tuple[int, int], ...]
    count: int
    source: str = ""
    line: int | None = None

    @property
    def who(self) -> str:
        """`rank 41`, `ranks 0-40, 42-63`; empty where no rank is known."""
        several = len(self.ranks) > 1 or any(first < last for first, last in self.ranks)
        return f"rank{'s' if several else ''} {ranges(self.ranks)}" if self.ranks else ""


def moments(document: Json) -> list[Moment]:
    """The whole timeline in groups; of a document without them, what its timeline lists, by kind of event."""
    found = [_moment(item) for item in objects(document.get("moments"))]
    if found:
        return found
    groups: dict[str, list[Json]] = {}
    for item in objects(document.get("timeline")):
        groups.setdefault(words(item.get("event")), []).append(item)
    for event, items in groups.items():
        times = [time for item in items if (time := words(item.get("time")))]
        numbers = sorted({rank for item in items if (rank := whole_number(item, "rank")) is not None})
        runs = tuple((first, last) for first, last in spans(numbers))
        found.append(Moment(event, times[0] if times else "", times[-1] if times else "", runs, len(items)))
    return found


def _moment(item: Json) -> Moment:
    return Moment(
        words(item.get("event")),
        words(item.get("first")),
        words(item.get("last")),
        tuple((first, last) for first, last in filter(is_span, as_list(item.get("ranks")))),
        whole_number(item, "count") or 1,
        words(item.get("source")),
        whole_number(item, "line"),
    )


def ranges(pairs: Iterable[Sequence[int]]) -> str:
    """Ranges as `0-40, 42-63`."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


def missing(document: Json) -> str:
    """The ranks that nothing was read from, as `8-15, 17`."""
    coverage = mapping(document.get("coverage"))
    pairs = [pair for pair in as_list(coverage.get("ranks_missing_spans")) if is_span(pair)]
    pairs = pairs or spans(rank for rank in as_list(coverage.get("ranks_missing")) if isinstance(rank, int))
    return ranges(pairs[:32]) + (f" and {len(pairs) - 32} more ranges" if len(pairs) > 32 else "")


def unheard(document: Json) -> str:
    """That no line of some ranks was read; '' where there are none. Others may well speak of them."""
    absent = missing(document)
    return f"no line of rank{'' if absent.isdecimal() else 's'} {absent} was read" if absent else ""


def unread(document: Json) -> int:
    """How many lines, members of archives and envelopes could not be opened."""
    return whole_number(document, "unread_lines") or 0


def earlier_failures(document: Json) -> int:
    """How many failures stand before the judged run."""
    return (whole_number(document, "incidents") or 0) - (words(document.get("outcome")) not in UNSURE)


def is_span(value: object) -> bool:
    """Whether a JSON value is a range `[first, last]`."""
    pair = as_list(value)
    return len(pair) == 2 and all(isinstance(rank, int) and not isinstance(rank, bool) for rank in pair)
