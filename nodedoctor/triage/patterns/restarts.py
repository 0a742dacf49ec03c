"""Where a log says again what a run began with: a program that was started again into the same file.

No launcher tells of a program that somebody starts by hand, or by one more `sbatch` with the same file for
its output. But a script prints the same first lines each time.
"""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.model import Line

FIRST = 6
"""Lines by which a beginning is known again. Ours."""
FEWEST = 2
"""Lines that a run has to have printed before its failure to be known by them."""
WITHIN = 60
"""Lines behind a failure in which a new run is looked for; its launcher and its script speak before it."""
ALIKE = 40
"""Letters by which a line is known again: programs print the arguments with which people try again. Ours."""
KEPT = 16
"""Beginnings remembered: people try again a few times."""
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[A-Za-z]{3}")
_NOT_AGAIN = re.compile(r"^Traceback \(|\w(?:Deprecation|Syntax|User|Future|Runtime)?Warning: ")
"""Failures, and what Python says only when it compiles a file for the first time."""


_TRACKED = "Tracking run with wandb version"
"""What Weights & Biases prints once for each run (`wandb/sdk/wandb_init.py`)."""


@record
class Restarted:
    """The log says what an earlier run of it began with, in the same order.

    `told`: it is a program's own word for a new run, and not only lines that are alike.
    """

    told: bool = False


class RestartDetector:
    """The first lines of a log, and of what stands behind each failure in it."""

    def __init__(self) -> None:
        self._known: list[tuple[str, ...]] = []
        self._told: list[str] = []
        self._met: list[int] = []
        """How many lines of each known beginning came since the last failure."""
        self._left = WITHIN
        self._failed = self._tracked = False

    def read(self, line: Line) -> Restarted | None:
        """Where a beginning is complete that the log has already had.

        Lines that count are for others: a program says them all the time.
        """
        text = line.text
        if _TRACKED in text:
            again = self._tracked and self._failed
            self._tracked, self._failed = True, False
            return Restarted(told=True) if again else None
        if not self._left or text[:1].isspace() or _NOT_AGAIN.search(text) or not _WORD.search(text):
            return None
        self._left -= 1
        said = _NUMBER.sub("0", text)[:ALIKE]
        if len(self._told) < FIRST:
            if said not in self._told:
                self._told.append(said)
        elif not self._known:
            self._left = 0
        if not self._failed:
            return None
        for index, begins in enumerate(self._known):
            if begins[self._met[index]] == said:
                self._met[index] += 1
                if self._met[index] == len(begins):
                    self._met = [0] * len(self._known)
                    self._failed = False
                    return Restarted()
        return None

    def ended(self, line: Line) -> None:
        """This line told of a failure: the next run may begin behind it."""
        said = _NUMBER.sub("0", line.text)[:ALIKE]
        begins = tuple(told for told in self._told if told != said)
        if len(begins) >= FEWEST and begins not in self._known and len(self._known) < KEPT:
            self._known.append(begins)
        self._told, self._met = [], [0] * len(self._known)
        self._left, self._failed = WITHIN, True
