"""A rank that stopped on the way to what the others wait in, by what each printed last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import shorten

from nodedoctor.grouping import group_by
from nodedoctor.triage.describe import describe_identities, distinct_ranks, identities_of
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Event
from nodedoctor.triage.patterns.hangs import StragglerNamed
from nodedoctor.triage.patterns.last_lines import LastLines
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes.absent import absent_rank, collective_name

FEWEST_RANKS = 3
"""Ranks that printed a line that is missing of another one, at least. Ours."""
MOST_MISSING = 4
"""One rank of so many may lack it at most: of half of them it tells what their part was. Ours."""
QUOTE_LENGTH = 80
"""Characters of a rank's last line that a headline quotes."""
_WAITS = re.compile(
    r"(?i)\bwait(?:s|ing)? (?:for|on|to acquire)\b(?! (?:the )?(?:other )?(?:ranks?|peers?)\b)"
)
"""Words of a rank that waits for something that no other rank holds."""

_STALLED = re.compile(
    r"(?i)\b(?:still|stall(?:s|ed)?|hangs?|hung|hanging|stuck|blocked|wait(?:s|ed|ing)?)\b"
    r"(?!.*\b(?:barrier|collective|all[_-]?\w{2,12}|broadcast|ranks|peers?|others)\b)"
    r".*?\b(?P<amount>\d{1,6})(?:\.\d{1,3})? ?(?P<unit>s|secs?|seconds|min|minutes)\b"
)
"""How long a rank has been at something by its own words, which is no collective."""
LONG_SHARE = 0.5
"""A rank held up for this share of the others' timeout, at least, is why they waited. Ours."""


def stalled_ranks(timeline: Timeline) -> Iterator[Candidate]:
    """A rank that says last for how long it has been held up, while others wait for it in a collective."""
    limits = [wait.work.timeout_ms / 1000 for wait in timeline.waits if wait.work.timeout_ms]
    stalled = [
        event
        for event in timeline.last_lines
        if event.who.rank is not None
        and not timeline.gave_up(event.who)
        and limits
        and _stalled_seconds(event.text) >= LONG_SHARE * min(limits)
    ]
    if len({event.who.rank for event in stalled}) == 1:
        yield _absent_by_last_line(timeline, stalled)


def stopped_for_straggler(timeline: Timeline) -> Iterator[Candidate]:
    """A rank that a monitor calls slower than all others, and for which the run was ended."""
    stops = [event for event in timeline.marked(Mark.STOPPED_ITSELF) if _OF_HEALTH.search(event.text)]
    stragglers = timeline.of_kind(StragglerNamed)
    if stops and stragglers:
        culprits = identities_of(stragglers[-1].what.ranks)
        headline = (
            f"{describe_identities(culprits)} was slower than all others, and the run was stopped for it"
        )
        evidence = (stragglers[-1], *stops[-1:])
        yield Candidate("cpu_stuck_or_slow_rank", "named", "medium", headline, evidence, culprits)


_OF_HEALTH = re.compile(r"(?i)straggl|slow|health|degrad")


def _stalled_seconds(text: str) -> float:
    """For how many seconds a line says that its process was held up; 0 where it does not."""
    match = _STALLED.search(text)
    if match is None:
        return 0.0
    return int(match["amount"]) * (60.0 if match["unit"].lower().startswith("m") else 1.0)


def _absent_by_last_line(timeline: Timeline, last: list[Event[LastLines]]) -> Candidate:
    words = shorten(last[0].text, QUOTE_LENGTH, placeholder=" ...")
    did = f'never entered {collective_name(timeline)}: its last line is "{words}"'
    evidence = (*last[:3], *(wait.event for wait in timeline.waits[:2]))
    culprits = tuple(distinct_ranks(event.who for event in last))
    return absent_rank(timeline, culprits, evidence, did, "absence", "low")


def stopped_ranks(timeline: Timeline) -> Iterator[Candidate]:
    """Ranks whose last line the others printed, too, and then one more: they did not come as far."""
    worlds = {wait.who.world for wait in timeline.waits}
    tails = group_by(
        [e for e in timeline.last_lines if e.who.rank is not None and e.who.world in worlds],
        lambda event: event.who.rank or 0,
    )
    gave_up = {event.who.rank for event in timeline.timeout_events}
    if timeline.folded or not timeline.waits or not gave_up & set(tails):
        return
    rows = [(form, rank) for rank, events in tails.items() for event in events for form in event.what.forms]
    most = max(1, len(tails) // MOST_MISSING)
    for form, printed in group_by(rows, lambda row: row[0]).items():
        printers = {rank for _, rank in printed}
        if len(printers) < FEWEST_RANKS or not 0 < len(tails) - len(printers) <= most:
            continue
        behind = set(tails) - printers
        further = [tails[rank] for rank in printers]
        last = [e for rank in sorted(behind) for e in tails[rank] if _stopped_before(e, form, further)]
        if {event.who.rank for event in last} == behind and not behind & gave_up:
            yield _absent_by_last_line(timeline, last)
            return


def _stopped_before(
    event: Event[LastLines], form: str, further: Sequence[Sequence[Event[LastLines]]]
) -> bool:
    """True where all that printed a form did so behind the last line of a rank, or it waits."""
    last = event.what.forms[-1]
    if all(any(_follows(own.what.forms, last, form) for own in events) for events in further):
        return True
    forms = {form for events in further for own in events for form in own.what.forms}
    return (
        _WAITS.search(event.text) is not None and last not in forms and not forms.isdisjoint(event.what.forms)
    )


def _follows(forms: Sequence[str], first: str, second: str) -> bool:
    """True where one form is behind another one."""
    return first in forms and second in forms[forms.index(first) :]
