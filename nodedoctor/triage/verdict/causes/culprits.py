"""Whose an error is: by its own line, else by who was seen to fail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.grouping import group_by
from nodedoctor.triage.describe import blameable_identities, distinct_ranks, identities_of, nodes_of
from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.model import Event, Identity
from nodedoctor.triage.patterns.exits import SIGTERM, PeersTerminated, ProcessExit
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.secondary_errors import (
    OF_LAUNCHERS,
    is_about_connection,
    is_forwarded,
    is_secondary,
)
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes.absent import ranks_without_timeout
from nodedoctor.triage.verdict.causes.first_exits import never_joined, people_of


def find_culprits(timeline: Timeline, events: Iterable[Event[Any]]) -> tuple[Identity, ...]:
    """The processes that errors are of: by rank, by exit, else by pid or GPU.

    Engines repeat what a worker raised: they count only where no worker reports it itself.
    """
    events = tuple(events)
    events = tuple(event for event in events if not _is_repeated(event)) or events
    people = [event.who for event in events]
    culprits = tuple(distinct_ranks(people)) or _whole_node(timeline, events)
    culprits = culprits or _without_unanswered(timeline, sole_failure(timeline))
    if not culprits and all(who.pid is None for who in people):
        culprits = _failed_ranks(timeline, events) or _absent_ranks(timeline, events)
    culprits = culprits or blameable_identities(*people)
    hosts = {who.host for who in people}
    is_one_of_several = len(hosts) == 1 and bool({e.who.host for e in timeline.events} - hosts - {None})
    return culprits or (tuple(Identity(host=host) for host in hosts if host) if is_one_of_several else ())


def ranks_by_node(timeline: Timeline) -> dict[str, list[Identity]]:
    """The ranks that are known to be on each node."""
    hosts = timeline.rank_hosts
    return {
        node: [Identity(rank=rank, host=hosts[rank]) for rank in ranks]
        for node, ranks in group_by(sorted(hosts), lambda rank: short_host(hosts[rank])).items()
    }


def nodes_with_ranks(timeline: Timeline, people: Sequence[Identity]) -> tuple[Identity, ...]:
    """The ranks of one node that report a fault of it; those of nodes with one rank each; else the nodes."""
    nodes, reporters = nodes_of(people), tuple(distinct_ranks(people))
    if any(who.rank is not None for who in nodes):
        return nodes
    if len(nodes) == 1 and len(reporters) > 1:
        return tuple(replace(who, host=nodes[0].host) for who in reporters)
    ranks = ranks_by_node(timeline)
    on_nodes = [ranks.get(short_host(who.host or ""), ()) for who in nodes]
    if len(ranks) > 1 and all(len(of_node) == 1 for of_node in ranks.values()) and all(on_nodes):
        return tuple(who for of_node in on_nodes for who in of_node)
    return nodes


def _is_repeated(event: Event[Any]) -> bool:
    """True for what a worker raised in another one's words; a service that names the worker is no engine."""
    names_worker = isinstance(event.what, Symptom) and event.what.of_another and event.who.rank is not None
    return not names_worker and is_forwarded(event.text)


def independent_failures(timeline: Timeline, events: list[Event[Any]]) -> list[Event[Any]]:
    """The events of ranks that failed by themselves, before the first one gave up."""
    return [event for event in events if not timeline.late(event)] or events


def sole_failure(timeline: Timeline) -> tuple[Identity, ...]:
    """The only rank or process that failed by itself: errors without a rank are its.

    Ranks that waited for it abort themselves in the end.
    """
    waited = timeline.waiting_ranks - {None}
    exits = [e for e in timeline.of_kind(ProcessExit) if not (e.what.signal == 6 and e.who.rank in waited)]
    if len(exits) == 1 and exits[0].what.agent:
        return ()  # torchelastic's first notice: its list, which names the others that failed, is missing
    alone = blameable_identities(
        *(who for event in exits if event.what.signal != SIGTERM for who in people_of(event))
    )
    return alone if len(alone) == 1 and timeline.sources == 1 else ()


def is_about_then(event: Event[Any], first: Event[Any]) -> bool:
    """True for an error at about the time of the first one, as far as their lines say when."""
    return event.time is None or first.time is None or abs(event.time - first.time) <= TOGETHER


TOGETHER = 60.0
"""Seconds in which ranks that compute the same thing report the same error. Ours."""


def _without_unanswered(timeline: Timeline, alone: tuple[Identity, ...]) -> tuple[Identity, ...]:
    """The only failure, unless it says itself that no other process answered it: that one had the error."""
    ranks = {who.rank for who in alone} - {None}
    own = [event for event in timeline.of_kind(ExceptionRaised) if event.who.rank in ranks]
    return () if own and all(is_about_connection(event.what) for event in own) else alone


def shows_who_failed(event: Event[Any]) -> bool:
    """True for the exceptions with which launchers, Ray and checkpoints show who failed."""
    return isinstance(event.what, ExceptionRaised) and (
        event.what.type.endswith((*OF_LAUNCHERS, "CheckpointException"))
        or "RayTaskError(" in event.text
        or "processes exited with non-zero status" in event.what.message
    )


def _failed_ranks(timeline: Timeline, errors: Sequence[Event[Any]]) -> tuple[Identity, ...]:
    """The ranks that ended with a code, where as many reported the same error.

    Also the only rank of a job of one. All ranks are started with the same words: where as many cannot begin
    with them, or fail in the same place with the same message, these are all. Where more reported it than
    ended, the others did so just before their launcher ended them. Where what ended are launchers with ranks
    of their own, it is their nodes.
    """
    if timeline.sources > 1:
        return ()
    places = {event.place for event in errors}
    raised = [event for event in timeline.of_kind(ExceptionRaised) if event.place in places]
    errors = raised if _is_one_error(raised) else errors
    count = len(errors)
    same = _is_one_error(errors)
    never_began = all(isinstance(event.what, Symptom) and event.what.name == "not-begun" for event in errors)
    all_failed = (same or never_began or _times_raised(timeline, errors)) and timeline.expected == count
    if timeline.expected == 1 or (timeline.expected and all_failed):
        return identities_of(range(timeline.expected))
    exits = [event for event in timeline.of_kind(ProcessExit) if not event.what.helper]
    people = [who for event in exits for who in people_of(event)]
    ranks = distinct_ranks(people) or [
        Identity(host=host) for host in sorted({who.host for who in people if who.host})
    ]
    coded = all(event.what.signal is None for event in exits)
    counts_match = len(ranks) == count > 1 or (same and 0 < len(ranks) < count)
    return tuple(ranks) if coded and (counts_match or _at_once(timeline, errors, exits, len(ranks))) else ()


def _whole_node(timeline: Timeline, errors: Sequence[Event[Any]]) -> tuple[Identity, ...]:
    """All ranks of a launcher, where as many processes reported the same error.

    Those are the ones that ended by themselves, and the ones that it ended then. Its ranks follow each other.
    """
    exits = [event for event in timeline.of_kind(ProcessExit) if not event.what.helper]
    ranks = distinct_ranks(event.who for event in exits)
    stopped_pids = {event.who.pid for event in timeline.of_kind(PeersTerminated) if event.what.one_by_one} - {
        None
    }
    count = len({who.pid for who in ranks} | stopped_pids)
    firsts = {
        who.rank - who.local_rank for who in ranks if who.rank is not None and who.local_rank is not None
    }
    one_node = len({who.host for who in ranks} - {None}) < 2 and timeline.sources == 1
    orderly = all(event.what.signal in (None, SIGTERM) for event in exits)
    if (
        not (one_node and orderly and len(firsts) == 1)
        or count < 2
        or _times_raised(timeline, errors) != count
    ):
        return ()
    first = firsts.pop()
    return tuple(ranks) if len(ranks) == count else tuple(Identity(rank=first + n) for n in range(count))


def _times_raised(timeline: Timeline, errors: Sequence[Event[Any]]) -> int:
    """How often the same exception was raised; 0 where they differ in more than numbers.

    What one process logs and then raises differs: it is one error in two lines.
    """
    places = {event.place for event in errors}
    raised = [event.what for event in timeline.of_kind(ExceptionRaised) if event.place in places]
    kinds = {(error.type, _NUMBER.sub("#", error.message), error.logged, error.later) for error in raised}
    return len(raised) if len(kinds) == 1 else 0


def _at_once(
    timeline: Timeline, errors: Sequence[Event[Any]], exits: Iterable[Event[ProcessExit]], number: int
) -> bool:
    """True where all ranks ended in the same second and raised nothing else.

    What ranks without a name print at the same time is mixed, so that no traceback is left whole and fewer
    exceptions are read than were raised.
    """
    moments = {event.what.at for event in exits if event.what.at}
    types = {event.what.type for event in timeline.of_kind(ExceptionRaised) if not shows_who_failed(event)}
    all_ended = number > len(errors) and number == (timeline.expected or number) and number > 1
    mixed = all(isinstance(event.what, ExceptionRaised) and not event.what.frames for event in errors)
    return all_ended and mixed and len(moments) == len(types) == 1


def _absent_ranks(timeline: Timeline, errors: Sequence[Event[Any]]) -> tuple[Identity, ...]:
    """The ranks that never joined, or did not come to a collective, if as many as the errors without a rank.

    Who raised one and ended waits no longer: it is none of the ranks that gave up waiting.
    """
    absent = never_joined(timeline) or ranks_without_timeout(timeline)
    own = [
        event
        for event in timeline.of_kind(ExceptionRaised)
        if event.who.rank is None and not is_secondary(event.what)
    ]
    return absent if len(absent) == len(own) and {e.place for e in own} <= {e.place for e in errors} else ()


def _is_one_error(errors: Sequence[Event[Any]]) -> bool:
    """True for several errors of one kind: exceptions from one place, or the same words.

    A line into which another process wrote has the beginning of them.
    """
    words = [event.what.words for event in errors if isinstance(event.what, Symptom)]
    begin = min(words, key=len, default="")
    if begin and len(words) == len(errors) > 1:
        return all(text.startswith(begin) for text in words)
    raised = [event.what for event in errors if isinstance(event.what, ExceptionRaised) and event.what.frames]
    kinds = {(error.type, error.frames, _NUMBER.sub("#", error.message)) for error in raised}
    return len(kinds) == 1 < len(errors) == len(raised)


_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
"""Each process has its own objects, devices and files."""
