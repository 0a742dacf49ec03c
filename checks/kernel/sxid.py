"""Errors of NVSwitches that their driver reported in the kernel log."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.kernel.events import LoggedXid, Sxid, line_of
from nodedoctor.facts.kernel.kernel_log import KernelLog, is_over
from nodedoctor.facts.kernel.lines import When
from nodedoctor.grouping import group_by
from nodedoctor.knowledge import xids as table
from nodedoctor.model import Finding, Fix, Moment
from nodedoctor.steps import look

DOCS = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"
_FOLLOWS_SECONDS = 60.0
"""NVSwitches report the loss of a GPU within seconds (leptonai/gpud: 12 s between Xid 79 and SXid 20034)."""
_TOGETHER_SECONDS = 2.0
"""Two drivers write about one moment in any order; ours."""
_JOB_ENDED = 45
_REFUSED = 137
"""A peer access refused: a job ended in the middle of an in-switch reduction leaves it, and no fault."""


@check("kernel.sxid", "NVSwitch errors (SXid)", tags={"fast"})
def sxid(log: KernelLog, moment: Moment) -> Iterator[Finding]:
    """Every SXid since boot or --since, by NVSwitch; a fatal one right after a GPU loss follows from that.

    Why: a fatal SXid kills the job on the GPU behind that port; some stop the whole fabric.
    Fix disturbs: every job on the GPUs of the fabric.
    Judges: FAIL for fatal errors of an NVSwitch, and for one that stalls traffic while the jobs of several
    GPUs end (Xid 45); WARN for repeated others.
    Fix: Reset the GPUs of the board; if it comes back, request a replacement.
    Threshold: NVIDIA's fabric manager guide: fatal and non-fatal SXid.
    False positives: Switches report a lost GPU within seconds: then the GPU is the cause (leptonai/gpud).
    Error texts:
    - nvidia-nvswitch: SXid (PCI:
    """
    by_switch = group_by(log.since(log.sxids, moment), lambda event: (event.switch, event.code))
    for (switch, code), events in by_switch.items():
        yield _judge_switch(switch, code, events, log)
    if not by_switch:
        yield Finding.ok(f"no SXid in {log.span}")


_LOOK = (look("sudo dmesg | grep -iE 'sxid|xid'"), look("nvidia-smi nvlink -s"))


def _judge_switch(switch: str, code: int, events: list[Sxid], log: KernelLog) -> Finding:
    row = table.sxid(code)
    fatal = any(event.fatal for event in events)  # the switch knows its port; the table only the number
    always = row is not None and row.kind == "always-fatal"
    gpu_count = _count_gpus(events, log) if row is not None and row.stalls and not (fatal or always) else 0
    stalled = gpu_count > 1
    kind = table.sxid_kind("always-fatal" if always else "fatal" if fatal or stalled else "non-fatal")
    links = sorted({event.link for event in events if event.link is not None})
    summary = f"SXid {code}" + (f" {row.name}" if row else "")
    summary += f" on link {', '.join(map(str, links))}" if links else ""
    summary += f", {len(events)} times" if len(events) > 1 else ""
    evidence = [line_of(e) for e in events[:3]]
    subject = f"nvswitch:{switch.removeprefix('nvswitch')}"
    verify = "nodedoctor kernel.sxid nvlink fabric"
    fix = Fix(kind.advice, _LOOK, kind.action, "every job on the fabric's GPUs", verify, DOCS)
    cause = _lost_gpu(events[0], log)
    if all(is_over(event.when, log.starts()) for event in events):
        return Finding.info(f"{summary}: before the last driver load", subject=subject, evidence=evidence)
    if stalled:
        summary += f": jobs of {gpu_count} GPUs ended (Xid 45)"
        aborted = any(xid.code == _REFUSED for xid in log.xids)
        build = Finding.warn if aborted else Finding.fail
        return build(summary, subject=subject, evidence=evidence, fix=fix)
    if not (fatal or always):
        build = Finding.warn if _has_repeats(events) else Finding.info
        return build(f"{summary}: {kind.meaning}", subject=subject, evidence=evidence, fix=fix)
    if cause is not None:
        summary += f": caused by Xid {cause.code} of GPU {cause.device}"
        finding = Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
        return finding.explained_by(f"kernel.xid@pci:{cause.device}")
    return Finding.fail(f"{summary}: {kind.meaning}", subject=subject, evidence=evidence, fix=fix)


def _count_gpus(events: list[Sxid], log: KernelLog) -> int:
    """How many GPUs had jobs ended with such an error or within a minute, as far as lines have times."""
    times = sorted(event.when.seconds for event in events if event.when.seconds is not None)

    def near(when: When) -> bool:
        if when.seconds is None or not times:
            return True
        before = bisect_right(times, when.seconds + _TOGETHER_SECONDS)
        return before > 0 and when.seconds - times[before - 1] <= _FOLLOWS_SECONDS

    return len({xid.device for xid in log.xids if xid.code == _JOB_ENDED and near(xid.when)})


def _has_repeats(events: list[Sxid]) -> bool:
    """Whether a harmless one came more than once on one link."""
    return max(Counter(event.link for event in events).values()) > 1


def _lost_gpu(event: Sxid, log: KernelLog) -> LoggedXid | None:
    """The loss of a GPU just before, whose links then go down at the switch."""
    losses = [xid for xid in log.xids if xid.code == 79 and xid.when.at < event.when.at]
    for xid in reversed(losses):
        if event.when.seconds is None or xid.when.seconds is None:
            return xid
        if event.when.seconds - xid.when.seconds <= _FOLLOWS_SECONDS:
            return xid
    return None
