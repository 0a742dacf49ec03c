"""What every view of a triage document says of what was read: other runs, other jobs, what is missing."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.json_shapes import Json, listed, mapping, objects, whole, words
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
        hosts = [words(host) for host in listed(job.get("hosts"))]
        ranks = words(job.get("world"))
        first, last = words(job.get("first")), words(job.get("last"))
        known = (
            f"{', '.join(hosts[:4])}{f' and {len(hosts) - 4} more' if len(hosts) > 4 else ''}",
            f"{ranks} ranks" if ranks else "",
            f"{first[:_MINUTE]} to {last[:_MINUTE]}" if first and last else "",
            "no failure" if words(job.get("outcome")) in CALM else words(job.get("cause")),
        )
        yield words(job.get("id")), "; ".join(filter(None, known)), job.get("judged") is True


def missing(document: Json) -> str:
    """The ranks that nothing was read from, as `8-15, 17`."""
    coverage = mapping(document.get("coverage"))
    pairs = [pair for pair in listed(coverage.get("ranks_missing_spans")) if _is_span(pair)]
    pairs = pairs or spans(rank for rank in listed(coverage.get("ranks_missing")) if isinstance(rank, int))
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in pairs[:32]]
    return ", ".join(shown) + (f" and {len(pairs) - 32} more ranges" if len(pairs) > 32 else "")


def unread(document: Json) -> int:
    """How many lines, members of archives and envelopes could not be opened."""
    return whole(document, "unread_lines") or 0


def earlier_failures(document: Json) -> int:
    """How many failures stand before the judged run."""
    return (whole(document, "incidents") or 0) - (words(document.get("outcome")) not in UNSURE)


def _is_span(value: object) -> bool:
    pair = listed(value)
    return len(pair) == 2 and all(isinstance(one, int) and not isinstance(one, bool) for one in pair)
