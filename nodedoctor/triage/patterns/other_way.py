"""Errors of one way of doing something, in whose place another way worked."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from nodedoctor.record import record
from nodedoctor.triage.model import Line
from nodedoctor.triage.patterns.unclassified import FAILING

IN_FRONT = 3
"""Lines in front of the one about another way that may hold the error, as a tool's last words. Ours."""
WITHIN = 200
"""Lines of the same speaker within which the other way has to work: a build prints many. Ours."""
_TRIES = re.compile(
    r"(?:[,;.:]| -| \() ?(?:(?:so|now|will) )?(?:re-?trying with|trying|attempting|switching to|using)"
    r" (?:the |to use )?(?P<way>[A-Za-z][\w.+-]{1,39})(?: (?:instead|now))?\W{0,6}$"
)
"""What a program names at the end of a line about an error: how it does it next."""
_WORKED = re.compile(
    r"\b(?:built|compiled|completed?|finished|succeed(?:s|ed)|successful(?:ly)?|saved|installed|worked|works)\b"
)
_NEGATED = re.compile(r"\b(?:not|never|no|un\w{2,20})\b")


@record
class OtherWayWorked:
    """Another way worked behind an error; `since` is the place of the lines that may hold that error."""

    since: int


@dataclass(slots=True)
class _Speaker:
    places: deque[int] = field(default_factory=lambda: deque(maxlen=IN_FRONT))
    """Where its last lines are."""
    way: str = ""
    since: int = 0
    lines_left: int = 0


MOST_SPEAKERS = 4096
"""Speakers that are followed."""


class AlternativeDetector:
    """Follows what each speaker says that it tries next, until it says that this worked."""

    def __init__(self) -> None:
        self._speakers: dict[str, _Speaker] = {}

    def read(self, line: Line) -> OtherWayWorked | None:
        """What is clear at the line that says that the other way worked."""
        speaker = self._speakers.get(line.key)
        if speaker is None:
            if len(self._speakers) >= MOST_SPEAKERS:
                return None
            speaker = self._speakers[line.key] = _Speaker()
        tries = _TRIES.search(line.text) if "ing " in line.text and FAILING.search(line.text) else None
        if tries is not None:
            speaker.way, speaker.lines_left = tries["way"].lower(), WITHIN
            speaker.since = speaker.places[0] if speaker.places else line.place.offset
        worked = tries is None and speaker.lines_left > 0 and _says_worked(line.text, speaker.way)
        speaker.lines_left = 0 if worked else max(0, speaker.lines_left - 1)
        speaker.places.append(line.place.offset)
        return OtherWayWorked(speaker.since) if worked else None


def _says_worked(text: str, way: str) -> bool:
    """True for a line in which the way, or another try, went well."""
    about = way in text.lower() or "retry" in text
    return about and _WORKED.search(text) is not None and not (FAILING.search(text) or _NEGATED.search(text))
