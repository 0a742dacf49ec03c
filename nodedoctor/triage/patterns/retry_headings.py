"""Headings with which a script begins another try: the run before is over."""

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
    """Follows headings with numbered tries, each one more than the last."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def read(self, line: Line) -> Mark | None:
        """The mark at the next try's heading; a script's lines name no process."""
        text = line.text
        may_be_heading = line.who == NOBODY and len(text) <= LONGEST and any(word in text for word in _WORDS)
        match = _HEADING.match(text) if may_be_heading else None
        if match is None:
            return None
        word, number = text[: match.start("number")].lower(), int(match["number"])
        before = self._last.get(word)
        self._last = {word: number}
        return Mark.RETRY_STARTED if before is not None and number == before + 1 else None
