"""Progress is a counter that strictly rises: one per process and name.

Redrawn bars, heartbeats and monitors print lines that look like progress and count nothing. There is no event
for each line but one for how far a counter came between two other events: enough for a log of any length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nodedoctor.triage.model import NOBODY, Event, Identity, Line, Place
from nodedoctor.triage.patterns.progress import ANSWERS, TrainingStep

JUMP = 20
"""A counter that jumps by more than this many of its largest steps is another run's, or a part is missing."""
SPREAD = 8
"""Steps that a counter may fall back without having begun again."""
START_SPREAD = 2
"""The same for one that falls back to where it began: ranks without a name begin together. Ours."""
SERIES = 4096
"""Counters followed at once; a log with more names has something else than counters in it."""

Value = tuple[float, ...]


@dataclass(slots=True)
class _Counter:
    series: str
    first: Value
    last: Value
    stride: float = 0.0
    pause: float = 0.0
    part: int = 0
    rises: int = 0
    has_line: bool = False
    line: Line | None = None
    who: Identity = NOBODY
    before: Event[TrainingStep] | None = None
    job_ended: bool = False
    """The scheduler has ended the job since: what counts lower is no other rank, but a later run."""
    aside: Value | None = None
    """A value far from the others, until the next one tells whether another part begins with it."""

    def begin(self, value: Value) -> None:
        """Start a new part; of earlier parts the one with most rises is kept."""
        if self.rises > (self.before.what.rises if self.before is not None else 0):
            self.before = self.as_event()
        self.first = self.last = value
        self.part, self.rises, self.job_ended = self.part + 1, 0, False

    def rise_to(self, value: Value) -> None:
        """Take in a higher value."""
        if value[:-1] == self.last[:-1]:
            self.stride = max(self.stride, value[-1] - self.last[-1])
        self.rises, self.last, self.aside, self.job_ended = self.rises + 1, value, None, False

    def is_far(self, value: Value) -> bool:
        """True for a value that does not go on from the last one: too high, or back where it was before."""
        if value < self.last:
            return not self.of_another_rank(value)
        jump = value[-1] - self.last[-1] if value[:-1] == self.last[:-1] else 0.0
        return self.stride > 0 and jump > JUMP * max(self.stride, 1.0)

    def goes_on_aside(self, value: Value) -> bool:
        """True for a value that goes on from the far one before it, and not from the last one.

        One line with another number, such as `resumed from step 4200`, begins nothing.
        """
        if self.aside is None or value < self.aside or (value > self.last and not self.is_far(value)):
            return False
        return value[-1] - self.aside[-1] <= JUMP * max(self.stride, 1.0)

    def begin_aside(self, value: Value) -> None:
        """Begin a new part with the far value, and go on to this one."""
        assert self.aside is not None
        self.begin(self.aside)
        self.aside = None
        if value > self.last:
            self.rise_to(value)

    def of_another_rank(self, value: Value) -> bool:
        """True for a value a few steps behind, as of a rank without a name.

        Of a bar that is drawn a thousand times not all drawings are read, so that its stride may be that
        large: one that is back where it began has begun again.
        """
        behind = self.last[-1] - value[-1]
        if self.job_ended or value[:-1] != self.last[:-1] or behind > SPREAD * max(self.stride, 1.0):
            return False
        at_start = value <= self.first and (value[-1] <= 1 or behind > START_SPREAD * self.stride)
        return not at_start or behind <= SPREAD

    def as_event(self) -> Event[TrainingStep] | None:
        """How far it came, at the line that was last read of it."""
        line = self.line
        if line is None:
            return None
        what = TrainingStep(
            self.series, self.part, self.first, self.last, self.rises, self.stride, self.pause
        )
        return Event.at(line, what, who=self.who)


def counter_owner(place: Place, who: Identity) -> str:
    """The process of a counter, as far as its line names it."""
    return f"{place.source}|{who.world}|{who.rank}|{who.pid}|{who.local_rank}"


class StepCounters:
    """The counters of one stream of lines."""

    def __init__(self) -> None:
        self._all: dict[str, _Counter] = {}
        self._unreported: dict[str, _Counter] = {}

    def read(self, line: Line, who: Identity, name: str, value: Value) -> None:
        """Take in one value of a counter."""
        key = f"{counter_owner(line.place, who)}|{name}"
        counter = self._all.get(key)
        if counter is None:
            if len(self._all) >= SERIES:
                return
            counter = self._all[key] = _Counter(key, value, value)
        elif counter.goes_on_aside(value):
            counter.begin_aside(value)
        elif counter.is_far(value):
            counter.aside = value
            return
        elif value > counter.last:
            counter.rise_to(value)
            before = counter.line.time if counter.line is not None else None
            if before is not None and line.time is not None:
                counter.pause = max(counter.pause, line.time - before)
        elif value < counter.last or counter.has_line:
            return
        counter.has_line = True
        counter.line, counter.who = line, who
        self._unreported[key] = counter

    def end_all(self) -> None:
        """Note that all processes were ended: each counter may begin again anywhere."""
        for counter in self._all.values():
            counter.job_ended = True

    def count_answer(self, line: Line, who: Identity) -> None:
        """Count a request that a server answered."""
        counter = self._all.get(f"{counter_owner(line.place, who)}|{ANSWERS}")
        self.read(line, who, ANSWERS, (counter.last[0] + 1 if counter is not None else 1.0,))

    def flush(self) -> Iterator[Event[TrainingStep]]:
        """How far each counter came since the last flush, the busiest first."""
        for counter in sorted(self._unreported.values(), key=lambda counter: -counter.rises):
            yield from (event for event in (counter.before, counter.as_event()) if event is not None)
            counter.rises, counter.before = 0, None
        self._unreported.clear()
