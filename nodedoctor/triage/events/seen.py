"""What is worth keeping without being understood: a look at a process, and announcements of trouble."""

from __future__ import annotations

import re

from nodedoctor.noun import noun
from nodedoctor.triage.events.manner import manner
from nodedoctor.triage.model import Line


@noun
class Seen:
    """A process of the job was looked at; the event's text says what it does. No trouble by itself."""

    name: str


@noun
class Unread:
    """A line that announces trouble, by the severity its program gave it, and that no sign reads."""


_ANNOUNCES = re.compile(
    r"\bNCCL WARN\b|^\W{0,3}(?:ERROR|CRITICAL|FATAL)\b"
    r"|(?: - |\[|\|\s{0,3})(?:ERROR|CRITICAL|FATAL)(?: - |\]|\s{0,3}\|)"
    r"|terminate called|\b(?:Aborting|Aborted)\b"
)


def unread(line: Line) -> Unread | None:
    """The announcement in a line that nothing else was read from."""
    found = _ANNOUNCES.search(line.text)
    if not line.text:
        return None
    if found is None:
        return Unread() if line.level in ("E", "F") else None
    return Unread() if manner(line.text, found.start(), found.end(), line.level) == "plain" else None
