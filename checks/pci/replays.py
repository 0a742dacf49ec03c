"""Does a PCIe link have to repeat packets?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.evidence import growth_evidence, identity_evidence, values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.error_growth import ErrorGrowth
from nodedoctor.facts.host.machine import Machine
from nodedoctor.knowledge.fixes.gpu import look_at
from nodedoctor.knowledge.limits import Limit, limit
from nodedoctor.model import Finding, Fix
from nodedoctor.wording import count_with_noun

from ..unavailable import all_of, none_shown, not_reported
from .pcie import link_steps

REPLAYS_PEERS = 100
"""A GPU with as many times the replays of its peers' median has a bad link of its own ..."""
REPLAYS_LEAST = 1000
"""... if there are at least so many: a handful at the start of a link is normal."""
_REPLAY_LIMITS = {gen: limit(f"pcie_replays_gen{gen}_per_minute") for gen in (3, 4, 5)}


@check(
    "pcie.replays",
    "PCIe replays",
    tags={"gpu", "pcie"},
    without=(ErrorGrowth, Machine),
    explained_by=("pcie.width", "pcie.speed", "driver.answers", "driver.gpus-present"),
)
def replays(gpus: Gpus, growth: ErrorGrowth | None, machine: Machine | None) -> Iterator[Finding]:
    """Replay counters: growth within a second, mean rate since boot, and peers.

    Why: every replay is a corrupted packet sent again; many make a link slow, and it may fail completely.
    Fix disturbs: every job on the node while a card is reseated.
    Judges: WARN when a GPU repeats packets faster than the limit, far more than its peers, or until the link
    retrains.
    Fix: Reseat the card, riser or module.
    Threshold: NVIDIA/DCGM, DcgmHealthWatch.cpp: rates per lane and generation; 100 times the peers and 1000
    at least are ours, and with so many any rollover of the replay number (PCI Express: four replays of one
    packet failed, and the link is trained again).
    False positives: A handful of replays at link training is normal.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    readable = [gpu for gpu in gpus.gpus if gpu.pcie_replays is not None]
    uptime = machine.uptime_seconds if machine else None
    findings = [f for gpu in readable if (f := _judge_replays(gpu, readable, growth, uptime, gpus.source))]
    yield from findings
    if not readable:
        yield not_reported("replay counters", gpus.gpus, "pcie_replays")
    elif not any(finding.severity.is_problem for finding in findings):
        note = "" if growth else " (totals only, growth not measured)"
        yield Finding.ok(f"replay counters normal on {all_of(readable)}{note}")


def _judge_replays(
    gpu: Gpu, gpus: Sequence[Gpu], growth: ErrorGrowth | None, uptime: float | None, source: str
) -> Finding | None:
    count = gpu.pcie_replays or 0
    allowed = _REPLAY_LIMITS.get(gpu.pcie_generation_max or 0, _REPLAY_LIMITS[5])
    per_second = allowed.number * (gpu.pcie_width or 16) / 60
    gained = growth.gpu(gpu.index) if growth else None
    more = gained.gained.get("pcie_replays", 0) if gained else 0
    evidence = [*values(source, gpu, "pcie_replays"), *identity_evidence(source, gpu)]
    others = sorted(peer.pcie_replays or 0 for peer in gpus if peer is not gpu)
    median = others[len(others) // 2] if len(others) > 1 else None
    # Two in a second may be chance where one in two seconds is allowed; five are not.
    if growth and more > max(5.0, per_second * growth.seconds):
        evidence = [*growth_evidence(gpu.index, "pcie_replays"), *evidence]
        summary = f"{more / growth.seconds:.0f} replays per second"
    elif uptime and count > REPLAYS_LEAST and count / uptime > per_second:
        summary = f"{count_with_noun(count, 'replay')} since boot, above DCGM's limit"
    elif median is not None and count >= REPLAYS_LEAST and count >= REPLAYS_PEERS * median:
        summary = f"{count_with_noun(count, 'replay')}, median of its peers {median}"
    elif count >= REPLAYS_LEAST and gpu.pcie_replay_rollovers:
        times = count_with_noun(gpu.pcie_replay_rollovers, "time")
        evidence = [*values(source, gpu, "pcie_replay_rollovers"), *evidence]
        summary = f"{count_with_noun(count, 'replay')}; the link had to retrain {times}"
    elif count >= REPLAYS_LEAST:
        return Finding.info(
            f"{count_with_noun(count, 'replay')} in total", subject=gpu.subject, evidence=evidence
        )
    else:
        return None
    return Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=_replay_fix(gpu, allowed))


def _replay_fix(gpu: Gpu, allowed: Limit) -> Fix:
    text = (
        f"Reseat the card, riser or cable. {allowed.what}: at most {allowed.value} per minute and lane "
        f"({allowed.source})."
    )
    return look_at(gpu, text, "pcie.replays", link_steps(gpu.bus_id)[::-1], "drain", "every job on this node")
