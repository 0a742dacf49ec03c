"""Whether a program went on after an error that its logger printed."""

from __future__ import annotations

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import SERIOUS, Identity, Line

ENOUGH = 20
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
            self._left[speaker] = ENOUGH
        elif line.level == "I" and speaker in self._left:
            self._left[speaker] -= 1
            if not self._left[speaker]:
                del self._left[speaker]
                return Mark.RECOVERED_FROM_ERROR
        return None
