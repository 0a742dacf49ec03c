"""How long has each GPU been slowed down by heat or power since its driver was loaded, and which most?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.peers import Attribute, odd_ones
from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.evidence import clock_seconds, identity_evidence
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.machine import Machine
from nodedoctor.knowledge.fixes.gpu import look_at
from nodedoctor.model import Finding
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

from ..unavailable import all_of, none_shown, not_reported

REASONS = {
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "power brake slowdown",
    "sw_thermal_slowdown": "software thermal slowdown",
}
"""nvml.h, clock event reason counters; a software power cap under load is normal and no reason here."""
SHARE = 0.01
"""Part of the time since boot from which a slowdown costs a job something: one step in a hundred."""
PEERS_RATIO = 4.0
"""A GPU slowed for so many times as long as the median of its peers has a reason of its own."""
MOST_SHARE = 0.05
"""Part of the time since boot that is too much also where all GPUs have it: the room or the power supply."""


def _reason_seconds(reason: str) -> Attribute[Gpu]:
    return Attribute(
        reason, "growth", lambda gpu: (gpu.clock_event_seconds or {}).get(reason), "high", PEERS_RATIO - 1
    )


@check("thermal.history", "Throttling since boot", tags={"fast", "gpu"})
def history(gpus: Gpus, machine: Machine | None) -> Iterator[Finding]:
    """Time each GPU was throttled by heat or power since driver load, against uptime and peers.

    Why: the cause of yesterday's slow job may be over by now; these counters still show it.
    Fix disturbs: nothing for the look-ups; the node during repair of cooling or power.
    Judges: WARN when a GPU was slowed down for more than 1 % of the time and four times as long as its peers,
    or all for more than 5 %.
    Fix: Check cooling and power supply; compare the counters after the repair.
    Threshold: nvml.h, clock event reason counters; the shares are our thresholds.
    False positives: A past incident that was repaired stays in the counters until the driver is loaded again.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    readable = [gpu for gpu in gpus.gpus if set(REASONS) & set(gpu.clock_event_seconds or {})]
    if not readable:
        yield not_reported("counters of clock event reasons", gpus.gpus, "clock_event_seconds")
        return
    uptime = machine.uptime_seconds if machine else None
    findings = [f for reason in REASONS for f in _judge_reason(reason, readable, uptime, gpus.source)]
    yield from findings
    if any(finding.severity.is_problem for finding in findings):
        return
    if uptime is None:
        yield Finding.unknown("not-visible-here", "unknown how long these counters have run")
    elif not findings:
        yield Finding.ok(
            f"{all_of(readable)} throttled for less than {SHARE:.0%} of uptime{_counted_part(readable)}"
        )


def _counted_part(gpus: list[Gpu]) -> str:
    """Which reasons these counters were of, where they are not of all.

    Up to driver 580 NVML counts software slowdown alone (nvml.h: field 75, which is the performance policy
    "thermal" of nvmlDeviceGetViolationStatus); hardware slowdown and power brake have counters from 590 on.
    """
    reasons = [reason for reason in REASONS if all(reason in (gpu.clock_event_seconds or {}) for gpu in gpus)]
    if len(reasons) == len(REASONS):
        return ""
    text = " and ".join(REASONS[reason] for reason in reasons) or "not the same reasons on all"
    return f" (only {text} counted)"


def _judge_reason(reason: str, gpus: list[Gpu], uptime: float | None, source: str) -> Iterator[Finding]:
    diffs = {diff.device.index: diff for diff in odd_ones(gpus, [_reason_seconds(reason)])}
    for gpu in gpus:
        seconds = (gpu.clock_event_seconds or {}).get(reason, 0.0)
        # The driver may have been loaded later than the node was booted: the share is at least this.
        share = seconds / uptime if uptime else 0.0
        if share < SHARE or not (gpu.index in diffs or share >= MOST_SHARE):
            continue
        summary = f"{REASONS[reason]} for {seconds / 3600:.1f} h, {share:.0%} of uptime"
        if diff := diffs.get(gpu.index):
            summary += (
                f" (median of {count_with_noun(diff.peers, 'peer')}: {float(str(diff.usual)) / 3600:.1f} h)"
            )
        evidence = clock_seconds(source, gpu, reason)
        text = "Check fans, filters and the cooler; for a power brake, power supplies and their cables."
        steps = (
            look("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {}", gpu.selector),
            look("sudo ipmitool sdr type Fan"),
            look("sudo ipmitool sdr type 'Power Supply'"),
        )
        yield Finding.warn(
            summary,
            subject=f"{gpu.subject}/{reason.replace('_', '-')}",
            evidence=[*evidence, *identity_evidence(source, gpu)],
            fix=look_at(gpu, text, "thermal.history", steps),
        )
