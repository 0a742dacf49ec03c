"""Signs of work without step counters: a changing loss, saved results, a logger that goes on after an error.

Losses and results are less than a counter: they show that there was work, and never that a failure was
overcome.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from nodedoctor.patterns import mask_digits
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
ENOUGH_ROWS = 20
"""Lines of one form, each with other numbers. Ours."""
ROWS_TAKE = 10.0
"""Seconds that they take at least: all ranks say at once that they are ready. Ours."""
_WAITS = re.compile(
    r"(?i)\b(?:NCCL|ranks?|connect\w*|wait|still|retr|attempt|heartbeat|alive|monitor|util|elapsed|uptime|idle|poll|pend|queue|sleep)"
)
"""Words of lines that are printed one after the other while nothing is done."""
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
        self._rows: dict[str, tuple[float, int]] = {}
        """The time of the first line of each form, and how many there are."""
        self._last_row = ""
        self._has_rows = False

    def read(self, line: Line) -> TrainingActivity | None:
        """The activity at the line with enough losses or rows, and at the first results."""
        text = line.text
        if self._is_last_row(line):
            return TrainingActivity("printed line after line of one form, each with other numbers")
        if not self._saved and any(word in text for word in _WORDS) and _SAVED.search(text):
            self._saved = True
            return TrainingActivity("saved results")
        match = _LOSS.search(text) if self._left and "oss" in text.lower() else None
        if match is None or match[1] == self._last:
            return None
        self._last = match[1]
        self._left -= 1
        return None if self._left else TrainingActivity("printed a loss that changes")

    def _is_last_row(self, line: Line) -> bool:
        """True once, at the line by which enough of one form are read."""
        text, now = line.text, line.time
        if self._has_rows or now is None or line.level not in ("", "I") or text == self._last_row:
            return False
        self._last_row = text
        form = mask_digits(text)
        if form == text or (form not in self._rows and len(self._rows) >= MOST_FORMS) or _WAITS.search(text):
            return False
        begin, count = self._rows.get(form, (now, 0))
        self._rows[form] = begin, count + 1
        self._has_rows = count + 1 >= ENOUGH_ROWS and now - begin >= ROWS_TAKE
        return self._has_rows


ENOUGH_LINES = 20
"""Ordinary lines behind the last error; a program that cleans up and ends has fewer. Ours."""
MOST_FORMS = 256
"""Forms of lines that are counted behind an error."""


@dataclass(slots=True)
class _LinesBehind:
    """What a speaker said behind its last error: lines of its logger, and lines of one form."""

    informed: int = 0
    forms: Counter[str] = field(default_factory=Counter)

    def add(self, line: Line) -> bool:
        """Count an ordinary line; True when there are enough."""
        if line.level == "I":
            self.informed += 1
            return self.informed >= ENOUGH_LINES
        form = mask_digits(line.text)
        if line.level or " " not in form or (form not in self.forms and len(self.forms) >= MOST_FORMS):
            return False
        self.forms[form] += 1
        return self.forms[form] >= ENOUGH_LINES


class RecoveryDetector:
    """Counts what each speaker says behind an error of its own."""

    def __init__(self) -> None:
        self._behind: dict[tuple[str, Identity], _LinesBehind] = {}

    def read(self, line: Line) -> Mark | None:
        """Where it is clear that the one who had an error went on."""
        if line.time is None:
            return None
        speaker = line.key, line.who
        if line.level in SERIOUS:
            self._behind[speaker] = _LinesBehind()
        elif speaker in self._behind and self._behind[speaker].add(line):
            del self._behind[speaker]
            return Mark.RECOVERED_FROM_ERROR
        return None
