"""Signs of work without step counters: a changing loss, saved results, a logger that goes on after an error.

Losses and results are less than a counter: they show that there was work, and never that a failure was
overcome.
"""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import SERIOUS, Identity, Line

ENOUGH_LOSSES = 10
"""Values of a loss, each other than the one before: an evaluation at the end has fewer. Ours."""
_LOSS = re.compile(
    r"(?<![A-Za-z])(?:[A-Za-z]+[_ ])?[Ll](?:oss|OSS)['\"]?\s{0,4}[:=(]?\s{0,4}['\"]?(-?\d{1,9}\.\d{1,20})"
)
_RESULTS = r"(?:[Rr]esults?|[Ss]ummar(?:y|ies)|[Mm]etrics|[Pp]redictions?|[Rr]eports?)"
_SAVED = re.compile(
    rf"\b{_RESULTS}\b(?: \w+){{0,3}} (?:saved|written|stored) (?:to|in|at)\b"
    rf"|^\W*(?:Saved|Wrote|Saving)\b:? (?:\w+ ){{0,3}}\S{{0,200}}{_RESULTS}\S{{0,200}}(?: to\b| in\b|$)"
)
_WORDS = ("aved", "ritten", "rote", "tored", "aving")


@record
class TrainingActivity:
    """The program was at work, as `how` says."""

    how: str


class ActivityDetector:
    """Whether a program's losses or saved results show that it worked."""

    def __init__(self) -> None:
        self._last = ""
        self._left = ENOUGH_LOSSES
        self._saved = False

    def read(self, line: Line) -> TrainingActivity | None:
        """The activity at the line with enough losses, and at the first results."""
        text = line.text
        if not self._saved and any(word in text for word in _WORDS) and _SAVED.search(text):
            self._saved = True
            return TrainingActivity("saved results")
        match = _LOSS.search(text) if self._left and "oss" in text.lower() else None
        if match is None or match[1] == self._last:
            return None
        self._last = match[1]
        self._left -= 1
        return None if self._left else TrainingActivity("printed a loss that changes")


ENOUGH_LINES = 20
"""Ordinary lines of its logger behind the last error; one that cleans up and ends has fewer. Ours."""


class RecoveryDetector:
    """Counts what each speaker's logger says behind an error of its own."""

    def __init__(self) -> None:
        self._left: dict[tuple[str, Identity], int] = {}

    def read(self, line: Line) -> Mark | None:
        """Where it is clear that the one who had an error went on."""
        if line.time is None:
            return None
        speaker = line.key, line.who
        if line.level in SERIOUS:
            self._left[speaker] = ENOUGH_LINES
        elif line.level == "I" and speaker in self._left:
            self._left[speaker] -= 1
            if not self._left[speaker]:
                del self._left[speaker]
                return Mark.RECOVERED_FROM_ERROR
        return None
