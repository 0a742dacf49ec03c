"""The events of one line by itself: what happened, and in which manner the line says so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from nodedoctor.triage.marks import Mark, kind_of
from nodedoctor.triage.model import SERIOUS, Event, Identity, Line
from nodedoctor.triage.patterns import (
    cuda,
    exits,
    host_limits,
    machine,
    progress,
    ray,
    store,
    watchdog,
)
from nodedoctor.triage.patterns.assertion import assertion_of, is_warning, names_error
from nodedoctor.triage.patterns.elastic import ElasticBlock
from nodedoctor.triage.patterns.handling import is_of_other_run, tells_replacement
from nodedoctor.triage.patterns.log_pattern import LogPattern, Symptom, identify_speaker, rank_in_words
from nodedoctor.triage.patterns.prose import is_said_by_person
from nodedoctor.triage.patterns.secondary_errors import from_helper_process, is_secondary
from nodedoctor.triage.patterns.shapes import LineShape
from nodedoctor.triage.patterns.signs import ALSO_AT_WARNING, ERRORS_LOGGED_AS_WARNING, SIDE_FACTS, SUSPICIONS
from nodedoctor.triage.patterns.trace import TracebackReader
from nodedoctor.triage.patterns.unclassified import (
    trouble_announced,
)

_TEST_ID = re.compile(r"[\w./-]{1,200}\.py::\w")
"""How pytest begins what it says of a test: what the test printed is no job's."""


SAYS_RANK = re.compile(r"(?<!\bnot )\b[Rr]ank(?:[ =:]{1,2}|(?<=\[rank)(?=\d{1,6}\]))(?P<rank>\d{1,6})\b")
"""How programs without a prefix report progress in their own words: `rank=3 finished`."""
_OWN_RANK = re.compile(r"^\[?[Rr]ank[ :=]?(?P<rank>\d{1,7})(?:\]?: |, node )")
"""The label with which an exception's message begins, `Rank 3: found NaN`: the rank of the program."""


def line_events(
    line: Line, shape: LineShape, traces: TracebackReader, block: ElasticBlock
) -> Iterator[Event[Any]]:
    """What one line says, other than how far a counter is."""
    listed_exit = block.read(line)
    is_source = traces.holds(line) and not line.text.lstrip().startswith('File "')  # of a call in a stack
    is_quote = is_source or (".py::" in line.text and _TEST_ID.match(line.text) is not None)
    signs = [] if is_quote else list(_pattern_events(line, shape.signs))
    signalled = any(isinstance(event.what, exits.LauncherSignalled) for event in signs)
    exceptions = [] if listed_exit is not None else list(traces.read(line, signalled=signalled))
    of_no_peer = any(
        from_helper_process(raised) or how == "handled" or not is_secondary(raised)
        for raised, how in exceptions
    )
    caught = next((how for _, how in exceptions if how != "plain"), "")
    has_event = False
    for event in signs:
        if of_no_peer and isinstance(event.what, store.PeerGone):
            continue
        if caught and event.asserted and event.kind not in ALSO_AT_WARNING:
            event = replace(event, manner=caught)  # one line says one thing in one way
        has_event = has_event or event.kind not in SIDE_FACTS
        yield event
    if listed_exit is not None:
        yield listed_exit
        return
    for raised, how in exceptions:
        who = rank_in_words(line.who, _OWN_RANK, raised.message)
        yield Event.at(line, raised, who=who, manner=how)
        has_event = True
    if has_event:
        return
    alive = progress.read_liveness(line.text) if shape.alive else None
    begins = line.text.startswith("Traceback (most recent")
    if alive is None and not begins and (shape.announces or line.level in SERIOUS):
        alive = trouble_announced(line)
    if alive is not None:
        yield Event.at(line, alive, who=rank_in_words(line.who, SAYS_RANK, line.text))


def _pattern_events(line: Line, signs: Iterable[LogPattern]) -> Iterator[Event[Any]]:
    for sign in signs:
        reading = sign.read(line.text)
        if not reading:
            continue
        what, match = reading
        how = assertion_of(line, match.start(), match.end(), _words_begin(sign, match))
        if isinstance(what, Symptom) and "NCCL INFO " in line.text[: match.start()]:
            how = "warning"  # it looks for libraries that it can do without
        elif how == "quoted" and what is Mark.HANG_SUSPECTED:
            if not is_said_by_person(line.text, match.start(), match.end()):
                continue
            how = "plain"  # who writes beside a log that it hangs looked at it
        elif kind_of(what) in SIDE_FACTS:
            how = "plain"
        elif how == "warning" and _only_level_warns(what, line, match):
            how = "retold" if names_error(line.text[: match.end()]) else "plain"
        elif how == "quoted" or (how == "described" and kind_of(what) in SUSPICIONS):
            continue
        elif (
            how == "described"
            or (how in ("handled", "retold") and _is_report(what, line, match))
            or (how == "retold" and isinstance(what, watchdog.TimedOut))
        ):
            how = "plain"
        elif how == "plain" and line.level == "W" and _is_optional(what):
            how = "warning"
        # Another process reports a dead actor: the prefix of the line is not the dead one's.
        of_another = kind_of(what) in (*ray.OF_ANOTHER, Mark.REPEAT_DIFFERS) or (
            isinstance(what, Symptom) and what.of_another
        )
        speaker = Identity(world=line.who.world) if of_another else line.who
        if machine.is_of_node(what, line.text):
            speaker = Identity(host=line.who.host, recorder=line.who.recorder)
        if isinstance(what, ray.TaskFailed):
            what = replace(what, printer=line.who.pid)
        yield Event.at(line, what, who=identify_speaker(speaker, match), manner=how)


def _words_begin(sign: LogPattern, match: re.Match[str]) -> int:
    """Where a pattern's words begin; its match may begin in front of them."""
    places = (match.string.find(needle, *match.span()) for needle in sign.needles)
    return min((place for place in places if place >= 0), default=match.start())


def _only_level_warns(what: object, line: Line, match: re.Match[str]) -> bool:
    """True for an error whose level alone makes it a warning."""
    of_row = isinstance(what, (Symptom, cuda.GpuFull)) and bool(what.as_warning)
    own = kind_of(what) in ERRORS_LOGGED_AS_WARNING or of_row or _is_of_reporter(what, line)
    return own and not is_warning(line.text, match.end())


def _is_of_reporter(what: object, line: Line) -> bool:
    """True for the end of a whole job, or of a container, whatever its reporter's level is."""
    if isinstance(what, exits.ProcessExit):
        return what.of_job
    return isinstance(what, host_limits.HostOom) and what.said_by == "Kubernetes" and not line.severity


def _is_report(what: object, line: Line, match: re.Match[str]) -> bool:
    """True for what a launcher or library reports of others and survives; no exception."""
    raised = names_error(line.text[: match.end()])
    own = isinstance(what, exits.ProcessExit) and not what.helper
    own = own and not raised and not tells_replacement(line.text)
    return (own or _only_level_warns(what, line, match)) and not is_of_other_run(line.text)


def _is_optional(what: object) -> bool:
    """True for a library or driver that a program can do without."""
    missed = ("version_mismatch", "driver_problem")
    return isinstance(what, Symptom) and what.cause in missed and not what.as_warning
