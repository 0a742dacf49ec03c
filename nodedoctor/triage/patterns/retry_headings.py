"""Where a script says that it tries again: the try before is over, and another run begins."""

from __future__ import annotations

import re

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import NOBODY, Line

_HEADING = re.compile(
    r"^\W{0,99}(?:[A-Za-z][\w.-]{0,99}\W{1,99}){0,4}?(?:[Tt]ry|[Aa]ttempt|[Rr]etry|TRY|ATTEMPT)(?:ing)?"
    r"\W{1,3}(?P<number>\d{1,3})(?:\W{0,2}(?:/|\bof\b)\W{0,2}\d{1,3})?\W{0,99}$"
)
_WORDS = ("ry", "ttempt", "RY", "TTEMPT")
LONGEST = 100
"""Characters of a heading at most."""


class RetryHeadings:
    """Follows headings that number the tries of a script: each is one more than the one before."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def read(self, line: Line) -> Mark | None:
        """Where the next try begins; only a script speaks for nobody."""
        text = line.text
        spoken = line.who == NOBODY and len(text) <= LONGEST and any(word in text for word in _WORDS)
        found = _HEADING.match(text) if spoken else None
        if found is None:
            return None
        word, number = text[: found.start("number")].lower(), int(found["number"])
        before = self._last.get(word)
        self._last = {word: number}
        return Mark.RETRY_STARTED if before is not None and number == before + 1 else None
