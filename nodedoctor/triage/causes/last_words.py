"""What a log says last, where no sign reads it: every program has words of its own for a failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten
from typing import Any

from nodedoctor.triage.causes.exceptions import SAID
from nodedoctor.triage.causes.families import family
from nodedoctor.triage.causes.guilty import shows_who_failed, sole_failure
from nodedoctor.triage.causes.who import called, distinct
from nodedoctor.triage.events.complaints import Complaint, TalkedOn
from nodedoctor.triage.events.progress import Finished
from nodedoctor.triage.events.seen import Article, UnreadTrouble
from nodedoctor.triage.events.system.exits import ProcessExit
from nodedoctor.triage.events.trace import CutShort
from nodedoctor.triage.model import Candidate, Confidence, Event
from nodedoctor.triage.story import Story


def last_words(story: Story) -> Iterator[Candidate]:
    """The first line about a failure whose kind is known, where nothing else is.

    What a program calls an error counts more than what only speaks of one. The latter is nothing long before
    the end.
    """
    talked = {event.place.source: event.place.offset for event in story.of(TalkedOn)}
    for event in sorted(complaints(story), key=_weight):
        if isinstance(event.what, Complaint) and event.place.offset < talked.get(event.place.source, 0):
            continue
        kind = family(event.text)
        if kind is None or kind.cause == "undetermined":
            continue
        culprits = tuple(distinct([event.who])) or sole_failure(story)
        said = shorten(event.text, SAID, placeholder=" ...")
        headline = f"{f'{called(culprits)}: ' if culprits else ''}{kind.says} ({said})"
        sure: Confidence = "low" if culprits else "medium"  # others may have said the same
        yield Candidate(kind.cause, "last words", sure, headline, (event,), culprits, owner=kind.owner)
        return


def _weight(event: Event[Any]) -> tuple[bool, bool]:
    """What comes first: a program's own errors, and lines that say more than one word."""
    return not isinstance(event.what, UnreadTrouble), " " not in event.text


def complaints(story: Story) -> Sequence[Event[Any]]:
    """The lines about a failure that nothing else was read from, where nothing explains the end.

    A job that went on afterwards, or came to its end, has none: then only errors by name are left.
    """
    if story.of(Article) or not all(_unexplained(event) for event in story.trouble):
        return ()
    told = story.of(UnreadTrouble)
    if story.alive:
        return sorted([*told, *_behind_the_end(story)], key=_place)
    plain = [event for event in story.of(Complaint) if not event.what.aside]
    return sorted([*told, *(plain or story.of(Complaint))], key=_place)


def _behind_the_end(story: Story) -> list[Event[Any]]:
    """What a script says behind a program that came to its end, in front of the code that it ends with."""
    done = {event.place.source: event.place.offset for event in story.of(Finished)}
    ends = {event.place.source: event.place.offset for event in story.of(ProcessExit)}
    return [
        event
        for event in story.of(Complaint)
        if done.get(event.place.source, event.place.offset)
        < event.place.offset
        < ends.get(event.place.source, 0)
    ]


def _place(event: Event[Any]) -> tuple[str, int]:
    return event.place.source, event.place.offset


def _unexplained(event: Event[Any]) -> bool:
    what = event.what
    coded = isinstance(what, ProcessExit) and what.signal is None
    return coded or isinstance(what, (UnreadTrouble, CutShort)) or shows_who_failed(event)


RULES = (last_words,)
