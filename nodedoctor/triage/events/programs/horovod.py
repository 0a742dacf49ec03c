"""Horovod: its coordinator counts who has not submitted a tensor that others wait for, and goes on waiting.

The texts are those of horovod/common/operations.cc until 0.17 and stall_inspector.cc since.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.triage.events.log_pattern import LogPattern, bounded_integer, log_pattern, ranks_in
from nodedoctor.triage.events.store import BarrierMissed
from nodedoctor.triage.events.system.exits import ProcessExit
from nodedoctor.triage.events.watchdog import ProcessAborting
from nodedoctor.triage.model import LARGEST_WORLD, Event, Identity, Line

_WHERE = "a collective of Horovod's"


def _missing_below(ready: tuple[int, ...]) -> BarrierMissed | None:
    """The ranks below the highest one that came; of those above it the list tells nothing."""
    missing = sorted(set(range(max(ready, default=0))) - set(ready))
    return BarrierMissed(tuple(missing), _WHERE, passing=True) if missing else None


SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"\[missing ranks: ?(?P<missing>[\d, ]+)\]",
        lambda found: BarrierMissed(ranks_in(found["missing"]), _WHERE, passing=True),
    ),
    log_pattern(  # until 0.13 it listed who had come
        r"\[ready ranks: ?(?P<ready>[\d, ]+)\]",
        lambda found: _missing_below(ranks_in(found["ready"])),
    ),
    log_pattern(  # horovod/runner/gloo_run.py: each process as it ends, then the one that was first
        r"\bProcess (?P<rank>\d+) exit with status code (?P<code>[1-9]\d{0,2})\.",
        lambda found: ProcessExit(bounded_integer(found["code"])),
    ),
    log_pattern(
        r"\bProcess name: (?P<rank>\d+)\s*$",
        lambda _: ProcessExit(1, first=True, told=False),
    ),
    log_pattern(
        r"Horovod has been shut down",
        lambda _: ProcessAborting("Horovod shut down, as after the end of any rank"),
    ),
)


class StallReports:
    """The newer list has a line for each missing rank, whose number stands in front like a label."""

    def __init__(self) -> None:
        self._open = False

    def read(self, line: Line) -> Iterator[Event[BarrierMissed]]:
        """The rank that a line of the list names."""
        if line.text.startswith("Missing ranks:"):
            self._open = True
            return
        label = dict(line.who.labels).get("label")
        self._open = self._open and label is not None and line.text.startswith("[")
        if self._open and label is not None and label < LARGEST_WORLD:
            missed = BarrierMissed((label,), _WHERE, passing=True)
            yield Event(missed, line.place, Identity(), line.time, line.text)
