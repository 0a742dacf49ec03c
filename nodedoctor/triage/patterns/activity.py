"""What a program shows of its work where it counts nothing: a loss that changes, results that it saved.

It is less than a counter: it shows that there was work, and nothing that a failure could be overcome by.
"""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.model import Line

ENOUGH = 10
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
    """The program was at work, as `how` tells."""

    how: str


class ActivityDetector:
    """Whether a program shows again and again, or with what it saved, that it worked."""

    def __init__(self) -> None:
        self._last = ""
        self._left = ENOUGH
        self._saved = False

    def read(self, line: Line) -> TrainingActivity | None:
        """Once at the line with which a loss has changed often enough, and once at the first results."""
        text = line.text
        if not self._saved and any(word in text for word in _WORDS) and _SAVED.search(text):
            self._saved = True
            return TrainingActivity("saved results")
        found = _LOSS.search(text) if self._left and "oss" in text.lower() else None
        if found is None or found[1] == self._last:
            return None
        self._last = found[1]
        self._left -= 1
        return None if self._left else TrainingActivity("printed a loss that changes")
