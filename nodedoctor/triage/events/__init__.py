"""Lines into typed events: one family of signs per module, tried on the lines a fast search has found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from nodedoctor.triage.events import (
    cuda,
    exits,
    kernel,
    limits,
    nccl,
    oom,
    progress,
    ras,
    ray,
    slurm,
    store,
    watchdog,
)
from nodedoctor.triage.events.counters import Counters
from nodedoctor.triage.events.exits import ElasticBlock
from nodedoctor.triage.events.seen import unread
from nodedoctor.triage.events.sign import Sign, identified
from nodedoctor.triage.events.trace import Tracebacks
from nodedoctor.triage.model import Event, Line, Who

SIGNS: tuple[Sign, ...] = (
    *watchdog.SIGNS,
    *store.SIGNS,
    *nccl.SIGNS,
    *cuda.SIGNS,
    *oom.SIGNS,
    *limits.SIGNS,
    *exits.SIGNS,
    *ray.SIGNS,
    *ras.SIGNS,
    *kernel.SIGNS,
    *slurm.SIGNS,
    *progress.SIGNS,
)
"""Every sign of every family."""

LIFE = (progress.Step, progress.Finished, progress.LongWork, progress.Serving)
"""What does not count as trouble."""

ASIDE = (progress.RankOfPid, progress.Size, progress.Mentions)
"""What a line tells in passing: it may still be one about progress."""

_BY_NEEDLE: dict[str, list[Sign]] = {}
for _sign in SIGNS:
    for _needle in _sign.needles:
        _BY_NEEDLE.setdefault(_needle, []).append(_sign)
NEEDLES: tuple[str, ...] = (
    *(n for n in _BY_NEEDLE if len(n) > 6 or n in ("Xid", "Killed")),
    "Traceback (most recent",
)
"""Words that find every line that matters, without the short ones that ordinary lines are full of."""

_PLAIN = sorted(_BY_NEEDLE, key=len, reverse=True)


def read_events(lines: Iterable[Line]) -> Iterator[Event[Any]]:
    """Every event in a stream of lines, in the order of the lines."""
    counters = Counters()
    traces, block = Tracebacks(), ElasticBlock()
    for line in _joined(lines):
        events = list(_events(line, traces, block))
        if events and not all(isinstance(event.what, ASIDE) for event in events):
            yield from counters.flush()
            yield from events
            continue
        yield from events
        counted = progress.counter(line.text)
        if counted is not None:
            counters.read(line, _speaker(line), *counted)
    yield from counters.flush()


def _events(line: Line, traces: Tracebacks, block: ElasticBlock) -> Iterator[Event[Any]]:
    """What one line says, other than how far a counter is."""
    found = False
    for event in _signs(line):
        found = found or not isinstance(event.what, ASIDE)
        yield event
    listed = block.read(line.text)
    if listed:
        yield _listed(line, *listed)
        return
    for raised, spawned in traces.read(line):
        who = replace(line.who, rank=spawned) if spawned is not None and line.who.rank is None else line.who
        yield Event(raised, line.place, who, line.time, line.text, line.repeated, line.origin)
        found = True
    alive = None if found else progress.read(line.text) or unread(line)
    if alive is not None:
        yield Event(alive, line.place, _speaker(line), line.time, line.text, line.repeated, line.origin)


def _joined(lines: Iterable[Line]) -> Iterator[Line]:
    """Terminals break the watchdog's long line when it is copied: put its two halves together."""
    broken: Line | None = None
    for line in lines:
        if broken is not None:
            if line.text and not line.text.startswith("["):
                line = replace(broken, text=f"{broken.text}{line.text}")
            else:
                yield broken
        broken = line if "Watchdog caught" in line.text and _HALF.search(line.text) else None
        if broken is None:
            yield line
    if broken is not None:
        yield broken


_HALF = re.compile(r"Watchdog caught(?!.*(?:\)|timed out))")


def _signs(line: Line) -> Iterator[Event[Any]]:
    tried: set[int] = set()
    for needle in _PLAIN:
        if needle not in line.text:
            continue
        for sign in _BY_NEEDLE[needle]:
            if id(sign) in tried:
                continue
            tried.add(id(sign))
            said = sign.read(line.text)
            if said:
                what, match = said
                yield Event(
                    what,
                    line.place,
                    identified(line.who, match),
                    line.time,
                    line.text,
                    line.repeated,
                    line.origin,
                )


def _speaker(line: Line) -> Who:
    """Who reports progress: programs without a prefix say it in their own words, `rank=3 finished`."""
    said = _SAYS_RANK.search(line.text) if line.who.rank is None else None
    return replace(line.who, rank=int(said[1])) if said else line.who


_SAYS_RANK = re.compile(r"\b[Rr]ank[ =:]{1,2}(\d{1,6})\b")


def _listed(line: Line, what: exits.Exit, row: dict[str, str]) -> Event[Any]:
    """An entry of torchelastic's failure list, with the identity the list gives."""
    rank = re.match(r"(\d+)(?: \(local_rank: (\d+)\))?", row.get("rank", ""))
    pid = re.search(r"\(pid: (\d+)\)", row["exitcode"])
    who = Who(
        rank=int(rank[1]) if rank else line.who.rank,
        local_rank=int(rank[2]) if rank and rank[2] else None,
        host=row.get("host") or line.who.host,
        pid=int(pid[1]) if pid else None,
    )
    text = f"rank {row.get('rank', '?')} exitcode {row['exitcode']}"
    return Event(what, line.place, who, line.time, text, line.repeated)
