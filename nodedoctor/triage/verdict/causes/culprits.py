"""Whose an error is: by the line's own words, else by who was seen to fail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from nodedoctor.triage.describe import blameable_identities, distinct_ranks
from nodedoctor.triage.model import Event, Identity
from nodedoctor.triage.patterns.exits import SIGTERM, PeersTerminated, ProcessExit
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.secondary_errors import OF_LAUNCHERS, is_forwarded, is_secondary
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline import Timeline
from nodedoctor.triage.verdict.causes.first_exits import never_joined, people_of


def find_culprits(story: Timeline, events: Iterable[Event[Any]]) -> tuple[Identity, ...]:
    """Who said these things of himself: by rank, else as those that failed, else by process or GPU.

    Engines repeat what a worker raised: they count only where no worker is heard itself.
    """
    events = tuple(events)
    events = tuple(event for event in events if not is_forwarded(event.text)) or events
    people = [event.who for event in events]
    known = tuple(distinct_ranks(people)) or _all_of_a_node(story, events) or sole_failure(story)
    if not known and all(who.pid is None for who in people):
        known = _all_that_failed(story, events) or _that_never_came(story, events)
    return known or blameable_identities(*people)


def independent_failures(story: Timeline, events: list[Event[Any]]) -> list[Event[Any]]:
    """The events of ranks that failed by themselves, not as a consequence of the first one giving up."""
    return [event for event in events if not story.late(event)] or events


def sole_failure(story: Timeline) -> tuple[Identity, ...]:
    """The only rank, or process, that was seen to fail by itself: who an error line without a rank is of."""
    exits = story.of(ProcessExit)
    if len(exits) == 1 and "local_rank: " in exits[0].text:
        return ()  # torchelastic's first notice: its list, which names the others that failed, is missing
    alone = blameable_identities(
        *(who for event in exits if event.what.signal != SIGTERM for who in people_of(event))
    )
    return alone if len(alone) == 1 and story.sources == 1 else ()


def shows_who_failed(event: Event[Any]) -> bool:
    """True for the exceptions with which launchers, Ray and checkpoints show who failed."""
    return isinstance(event.what, ExceptionRaised) and (
        event.what.type.endswith((*OF_LAUNCHERS, "CheckpointException"))
        or "RayTaskError(" in event.text
        or "processes exited with non-zero status" in event.what.message
    )


def _all_that_failed(story: Timeline, said: Sequence[Event[Any]]) -> tuple[Identity, ...]:
    """The ranks that ended with a code, where as many said the same; the only rank of a job that has one.

    All ranks are started with the same words: where as many cannot begin with them, or fail in the same
    place with the same message, these are all. Where more said it than ended, the others said it just before
    their launcher ended them. Where what ended are launchers with ranks of their own, it is their nodes.
    """
    if story.sources > 1:
        return ()
    told = {event.place for event in said}
    raised = [event for event in story.of(ExceptionRaised) if event.place in told]
    said = raised if _is_one_error(raised) else said
    times = len(said)
    same = _is_one_error(said)
    unbegun = all(isinstance(event.what, Symptom) and event.what.name == "not-begun" for event in said)
    all_said = (same or unbegun or _times_raised(story, said)) and story.expected == times
    if story.expected == 1 or (story.expected and all_said):
        return tuple(Identity(rank=rank) for rank in range(story.expected))
    exits = [event for event in story.of(ProcessExit) if not event.what.helper]
    people = [who for event in exits for who in people_of(event)]
    ended = distinct_ranks(people) or [
        Identity(host=host) for host in sorted({who.host for who in people if who.host})
    ]
    coded = all(event.what.signal is None for event in exits)
    each = len(ended) == times > 1 or (same and 0 < len(ended) < times)
    return tuple(ended) if coded and (each or _at_once(story, said, exits, len(ended))) else ()


def _all_of_a_node(story: Timeline, said: Sequence[Event[Any]]) -> tuple[Identity, ...]:
    """All ranks of a launcher where as many said the same as it had processes.

    Those are the ones that ended by themselves, and the ones that it ended then. Its ranks follow each other.
    """
    exits = [event for event in story.of(ProcessExit) if not event.what.helper]
    listed = distinct_ranks(event.who for event in exits)
    sent_home = {event.who.pid for event in story.of(PeersTerminated) if "Sending process" in event.text} - {
        None
    }
    count = len({who.pid for who in listed} | sent_home)
    firsts = {
        who.rank - who.local_rank for who in listed if who.rank is not None and who.local_rank is not None
    }
    one_node = len({who.host for who in listed} - {None}) < 2 and story.sources == 1
    ended = all(event.what.signal in (None, SIGTERM) for event in exits)
    if not (one_node and ended and len(firsts) == 1) or count < 2 or _times_raised(story, said) != count:
        return ()
    first = firsts.pop()
    return tuple(listed) if len(listed) == count else tuple(Identity(rank=first + n) for n in range(count))


def _times_raised(story: Timeline, said: Sequence[Event[Any]]) -> int:
    """How often the same was raised; 0 where it was not the same, apart from numbers in it.

    What one process logs and then raises is not the same: that is told twice by one.
    """
    told = {event.place for event in said}
    raised = [event.what for event in story.of(ExceptionRaised) if event.place in told]
    kinds = {(one.type, _NUMBER.sub("#", one.message), one.logged, one.later) for one in raised}
    return len(raised) if len(kinds) == 1 else 0


def _at_once(
    story: Timeline, said: Sequence[Event[Any]], exits: Iterable[Event[ProcessExit]], ended: int
) -> bool:
    """True where all ranks ended in the same second and nobody raised anything else.

    What ranks without a name print at the same time is mixed, so that no traceback is left whole and fewer
    exceptions are read than were raised.
    """
    moments = {event.what.at for event in exits if event.what.at}
    types = {event.what.type for event in story.of(ExceptionRaised) if not shows_who_failed(event)}
    all_ended = ended > len(said) and ended == (story.expected or ended) and ended > 1
    mixed = all(isinstance(event.what, ExceptionRaised) and not event.what.frames for event in said)
    return all_ended and mixed and len(moments) == len(types) == 1


def _that_never_came(story: Timeline, said: Sequence[Event[Any]]) -> tuple[Identity, ...]:
    """Those that the others waited for at the start, if they are as many as the errors of nobody."""
    absent = never_joined(story)
    own = [
        event
        for event in story.of(ExceptionRaised)
        if event.who.rank is None and not is_secondary(event.what)
    ]
    return absent if len(absent) == len(own) and {e.place for e in own} <= {e.place for e in said} else ()


def _is_one_error(said: Sequence[Event[Any]]) -> bool:
    """True for several errors of one kind: exceptions from one place, or lines with the same words.

    A line into which another process wrote has the beginning of them.
    """
    words = [event.what.words for event in said if isinstance(event.what, Symptom)]
    begin = min(words, key=len, default="")
    if begin and len(words) == len(said) > 1:
        return all(one.startswith(begin) for one in words)
    raised = [event.what for event in said if isinstance(event.what, ExceptionRaised) and event.what.frames]
    kinds = {(one.type, one.frames, _NUMBER.sub("#", one.message)) for one in raised}
    return len(kinds) == 1 < len(said) == len(raised)


_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
"""Each process has its own objects, devices and files."""
