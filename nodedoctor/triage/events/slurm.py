"""Ordered ends and starts: time limits, cancellations, Ctrl-C, an attempt that begins again."""

from __future__ import annotations

from nodedoctor.record import record
from nodedoctor.triage.events.sign import Sign, sign


@record
class OrderedStop:
    """Somebody or the scheduler ended the job: no failure of the job."""

    why: str


@record
class Attempt:
    """A new attempt begins; what stands before it is an earlier incident."""


SIGNS: tuple[Sign, ...] = (
    sign(
        "CANCELLED",
        r"\*?\*? ?(?:JOB|STEP) \S+ (?:ON \S+ )?CANCELLED AT \S+(?: [Dd][Uu][Ee] to (?P<lower>.*?)"
        r"| DUE TO (?P<why>[A-Z ]+))?(?: \*\*\*|$)",
        lambda found: (
            None
            if (found["why"] or "").startswith(("NODE FAIL", "TASK FAIL"))
            else OrderedStop((found["why"] or found["lower"] or "cancelled").strip().lower())
        ),
    ),
    sign(
        "KeyboardInterrupt",
        r"^\s*KeyboardInterrupt\b",
        lambda _: OrderedStop("interrupted from the keyboard"),
    ),
    sign(
        "DeadlineExceeded|preempt|PREEMPT",
        r"DeadlineExceeded|[Pp]reempt(?:ed|ion) |PREEMPTION",
        lambda _: OrderedStop("preempted"),
    ),
    sign(
        "restart worker group|Restarting worker group|[restart]",
        r"will restart worker group|Restarting worker group",
        lambda _: Attempt(),
    ),
)
