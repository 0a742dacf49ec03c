"""What happened when: what many ranks report within seconds of each other is one moment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nodedoctor.triage.model import Event

TOGETHER = 5.0
"""Seconds between two reports of one moment: a watchdog wakes every second or so. Our threshold."""
MOST = 64
"""Moments kept apart; what comes later joins the latest one of its kind."""


def group_moments(events: Iterable[tuple[str, Event[Any]]]) -> list[list[Event[Any]]]:
    """Events in order of time, as groups: the same kind, each soon after the last.

    So a thousand ranks that time out are one group, and the rank that failed minutes earlier is another.
    """
    groups: list[list[Event[Any]]] = []
    latest: dict[str, list[Event[Any]]] = {}
    for kind, event in events:
        group = latest.get(kind)
        if group is None or (len(groups) < MOST and not _is_same_moment(group[-1].time, event.time)):
            group = latest[kind] = []
            groups.append(group)
        group.append(event)
    return groups


def _is_same_moment(earlier: float | None, later: float | None) -> bool:
    """Whether two times are of one moment; an unknown time is no difference."""
    return earlier is None or later is None or abs(later - earlier) <= TOGETHER
