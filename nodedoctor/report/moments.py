"""What happened when: what many ranks report within seconds of each other is one moment."""

from __future__ import annotations

from nodedoctor.grouping import group_by
from nodedoctor.json_shapes import Json, as_list, objects, whole_number, words
from nodedoctor.record import record
from nodedoctor.report.ranks import is_span, ranges
from nodedoctor.whole_numbers import spans


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
    grouped = [_read_moment(item) for item in objects(document.get("moments"))]
    if grouped:
        return grouped
    groups = group_by(objects(document.get("timeline")), lambda item: words(item.get("event")))
    for event, items in groups.items():
        times = [time for item in items if (time := words(item.get("time")))]
        numbers = sorted({rank for item in items if (rank := whole_number(item, "rank")) is not None})
        runs = tuple((first, last) for first, last in spans(numbers))
        grouped.append(Moment(event, times[0] if times else "", times[-1] if times else "", runs, len(items)))
    return grouped


def _read_moment(item: Json) -> Moment:
    return Moment(
        words(item.get("event")),
        words(item.get("first")),
        words(item.get("last")),
        tuple((first, last) for first, last in filter(is_span, as_list(item.get("ranks")))),
        whole_number(item, "count") or 1,
        words(item.get("source")),
        whole_number(item, "line"),
    )
