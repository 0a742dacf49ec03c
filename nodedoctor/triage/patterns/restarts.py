"""Restarts that no launcher prints: a log repeats the first lines of a run, or a heading counts tries.

A program may be started again by hand, or by one more `sbatch` with the same file for its output. A script
prints the same first lines each time.
"""

from __future__ import annotations

import re

from nodedoctor.patterns import mask_digits
from nodedoctor.record import record
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import NOBODY, Line

FIRST = 6
"""Lines by which a beginning is recognised. Ours."""
FEWEST = 2
"""Lines that a run has to have printed before its failure to be recognised by them."""
WITHIN = 60
"""Lines behind a failure in which a new run is looked for; its launcher and its script speak before it."""
COMPARED_LETTERS = 40
"""Letters by which lines are compared: behind them are arguments, which people change. Ours."""
MOST_BEGINNINGS = 16
"""Beginnings remembered: people try again a few times."""
_WORD = re.compile(r"[A-Za-z]{3}")
_NOT_AGAIN = re.compile(r"^Traceback \(|\w(?:Deprecation|Syntax|User|Future|Runtime)?Warning: ")
"""Failures, and what Python says only when it compiles a file for the first time."""


_TRACKED = "Tracking run with wandb version"
"""What Weights & Biases prints once for each run (`wandb/sdk/wandb_init.py`)."""


@record
class Restarted:
    """The log repeats the first lines of an earlier run, in order.

    `explicit`: a program printed that a new run begins; else only lines are alike.
    """

    explicit: bool = False


class RestartDetector:
    """Compares the first lines of a log with the lines behind each failure in it."""

    def __init__(self) -> None:
        self._beginnings: list[tuple[str, ...]] = []
        self._first_lines: list[str] = []
        self._matched: list[int] = []
        """How many lines of each known beginning came since the last failure."""
        self._lines_left = WITHIN
        self._failed = self._tracked = False

    def read(self, line: Line) -> Restarted | None:
        """The restart at a line that completes a beginning which the log already had.

        Lines that count steps are not compared: a program prints them all the time.
        """
        text = line.text
        if _TRACKED in text:
            again = self._tracked and self._failed
            self._tracked, self._failed = True, False
            return Restarted(explicit=True) if again else None
        if not self._lines_left or text[:1].isspace() or _NOT_AGAIN.search(text) or not _WORD.search(text):
            return None
        self._lines_left -= 1
        masked = mask_digits(text)[:COMPARED_LETTERS]
        if len(self._first_lines) < FIRST:
            if masked not in self._first_lines:
                self._first_lines.append(masked)
        elif not self._beginnings:
            self._lines_left = 0
        if not self._failed:
            return None
        for index, begins in enumerate(self._beginnings):
            if begins[self._matched[index]] == masked:
                self._matched[index] += 1
                if self._matched[index] == len(begins):
                    self._matched = [0] * len(self._beginnings)
                    self._failed = False
                    return Restarted()
        return None

    def note_failure(self, line: Line) -> None:
        """Note the failure in this line: the next run may begin behind it."""
        masked = mask_digits(line.text)[:COMPARED_LETTERS]
        begins = tuple(first_line for first_line in self._first_lines if first_line != masked)
        if (
            len(begins) >= FEWEST
            and begins not in self._beginnings
            and len(self._beginnings) < MOST_BEGINNINGS
        ):
            self._beginnings.append(begins)
        self._first_lines, self._matched = [], [0] * len(self._beginnings)
        self._lines_left, self._failed = WITHIN, True


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
