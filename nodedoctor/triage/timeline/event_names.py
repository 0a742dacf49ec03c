"""The names of events in documents, which stay when their classes are renamed."""

from __future__ import annotations

from typing import Any

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event

_PUBLISHED = {
    "CancelledByUser": "ordered_stop",
    "CollectiveFailed": "failed",
    "CollectiveMismatch": "mismatch",
    "CollectiveShape": "passed",
    "DesyncJoined": "joined",
    "DesyncMissing": "lagging",
    "ExceptionRaised": "raised",
    "KernelTaskHung": "stalled",
    "LauncherSignalled": "ended",
    "PeersTerminated": "stopped",
    "PidRoster": "roster",
    "ProcessAborting": "dying",
    "Restarted": "anew",
    "SettingMentioned": "mentions",
    "ThreadStack": "stack",
    "TrainingActivity": "worked",
    "UnclassifiedError": "complaint",
    "WatchdogStuck": "heartbeat",
    "WorldSize": "size",
    "XidReported": "xid",
}
"""Names of events in documents that differ from those of their classes: names in documents do not change."""


def event_name(event: Event[Any]) -> str:
    """The event's kind as a word: `timed_out`, `gpu_full`; for a symptom its own name."""
    if isinstance(event.what, Mark):
        return str(event.what.value)
    name = getattr(event.what, "name", None)
    word = name if isinstance(name, str) and name else type(event.what).__name__
    word = _PUBLISHED.get(word, word)
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(word)).replace(
        "-", "_"
    )
