"""The events of a line by itself, to compare it without its prefix."""

from __future__ import annotations

from nodedoctor.triage.model import Line, Place
from nodedoctor.triage.patterns import NON_ERRORS, SIDE_FACTS, read_events


def event_signature(text: str) -> frozenset[str]:
    """The kinds of a line's events, and whether errors name rank or host."""
    signature: set[str] = set()
    for event in read_events([Line(text, Place("", 0))]) if text else ():
        kind = event.kind_name
        if event.kind not in SIDE_FACTS:
            signature.add(kind)
        if event.kind not in NON_ERRORS:
            signature |= {
                f"{kind} {name}" for name in ("rank", "host") if getattr(event.who, name) is not None
            }
    return frozenset(signature)
