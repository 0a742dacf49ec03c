"""What a look at a running process showed."""

from __future__ import annotations

from nodedoctor.record import record


@record
class Seen:
    """A process of the job was looked at; the event's text says what it does. No trouble by itself."""

    name: str
