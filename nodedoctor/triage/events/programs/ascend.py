"""Ascend's HCCL: codes of a rank that waited for a peer, from CANN's list of error codes."""

from __future__ import annotations

from nodedoctor.triage.events.log_pattern import LogPattern, log_pattern
from nodedoctor.triage.events.watchdog import CollectiveFailed, TimedOut
from nodedoctor.triage.model import CollectiveCall

SIGNS: tuple[LogPattern, ...] = (
    log_pattern(  # a notification of a peer did not come in time
        r"\bEI0002\b|wait execution of the Notify register times out|hccl fftsplus task timeout",
        lambda _: TimedOut(CollectiveCall(), None, fresh=True),
    ),
    log_pattern(  # a peer was not there when the connection was made
        r"\bEI0006\b|Getting socket times out",
        lambda _: TimedOut(CollectiveCall(), None, fresh=True),
    ),
    log_pattern(  # what was queued on the device did not end in time, as when a peer does not come
        r"NPU (?:function )?error.{0,80}error code is (?:107020|507048)|reason=\[task timeout\]"
        r"|runtime result = (?:107020|507048)",
        lambda _: TimedOut(CollectiveCall(), None, fresh=True),
    ),
    log_pattern(
        r"\bEI0009\b.*?(?P<why>Transport init error.{0,200})",
        lambda found: CollectiveFailed(CollectiveCall(), found["why"]),
    ),
)
