"""What an event is called in documents."""

from __future__ import annotations

from typing import Any

from nodedoctor.triage.model import Event

_PUBLISHED = {
    "CancelledByUser": "ordered_stop",
    "CollectiveFailed": "failed",
    "CollectiveMismatch": "mismatch",
    "CollectiveShape": "passed",
    "CommunicatorDestroyed": "left",
    "DeliberateSleep": "asleep",
    "DesyncJoined": "joined",
    "DesyncMissing": "lagging",
    "DumpRequested": "blamed",
    "ExceptionRaised": "raised",
    "ForceKilled": "forced",
    "JobFinished": "finished",
    "KernelTaskHung": "stalled",
    "LauncherSignalled": "ended",
    "LauncherStarted": "begun",
    "NotALog": "article",
    "OutputContinued": "talked_on",
    "PeersTerminated": "stopped",
    "PidRoster": "roster",
    "ProcessAborting": "dying",
    "ProcessState": "seen",
    "RecoveredFromError": "went_on",
    "RequestRefused": "refused",
    "ResourceTrackerWarning": "gone",
    "RestartAttempt": "attempt",
    "Restarted": "anew",
    "RetryStarted": "tried",
    "ServerReady": "serving",
    "SettingMentioned": "mentions",
    "SurvivedError": "outlived",
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
    name = getattr(event.what, "name", None)
    word = name if isinstance(name, str) and name else type(event.what).__name__
    word = _PUBLISHED.get(word, word)
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(word)).replace(
        "-", "_"
    )
