"""Are the InfiniBand and RoCE ports that training uses up, at full rate, and known to a subnet manager?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import FEWEST_RAILS, Ib, Rails
from nodedoctor.knowledge.fixes.rdma import cable, enable, port_fix, subnet_manager
from nodedoctor.knowledge.infiniband import phys_state, port_state
from nodedoctor.model import Expect, Finding, Fix
from nodedoctor.steps import look, repair
from nodedoctor.wording import counted, listed

_RAIL_GBPS = 100
"""Ethernet below it connects nodes to the world, not GPUs to each other (knowledge: rdma platforms)."""
_CABLED = ("LinkUp", "LinkErrorRecovery", "PortConfigurationTraining")
"""Physical states that only a port with a partner at the other end of its cable reaches."""
_SETS = (8, 16)
"""How many rails boards have; more ports of the kind than these serve something else."""


@check(
    "ib.ports",
    "RDMA port state",
    tags={"fast", "ib"},
    without=(Container,),
    explained_by=("kernel.nic",),
)
def ports(ib: Ib, rails: Rails, container: Container | None, expect: Expect) -> Iterator[Finding]:
    """State of the ports in NCCL_IB_HCA, else of the largest group of equal ports.

    Why: NCCL skips a port that is not active; all traffic between nodes then shares the others, or the job
    falls back to TCP.
    Fix disturbs: traffic on that port.
    Judges: FAIL when a rail is down or a device has no driver; WARN when it is unknown whether a port is
    meant to have a link.
    Fix: Check cable and switch port, then the port's mode and driver.
    Threshold: No threshold: port and physical state as the kernel or ibstat shows them.
    False positives: Spare and storage ports without a cable: ports without a GPU beside them are not called
    rails.
    """
    wanted = expect.get("ib")
    for name in ib.silent:
        yield _silent(name)
    for said in ib.disagreements:
        yield Finding.info(said, subject="ib:sources")
    if wanted is not None:
        yield _expected(wanted, rails)
    inside = container is not None and container.inside
    if ib.driverless:
        yield _driverless(ib.driverless, inside)
    elif not ib.ports and wanted is None and not ib.silent:
        yield Finding.skip(ib.absent + (" that this container can see" if inside else ""))
    for word in rails.unknown:
        yield _no_such(word, rails)
    yield from _judge_ports(ib, rails)


def _judge_ports(ib: Ib, rails: Rails) -> Iterator[Finding]:
    active = [port for port in rails.ports if port.active]
    if active:
        names = listed((port.name for port in active), 4)
        kinds = Counter(port.kind for port in active)
        told = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
        yield Finding.ok(f"{told} active: {names}", evidence=ib.evidence(active[0]))
    for port in rails.ports:
        physical = phys_state(port.phys_state or "")
        if not port.active:
            yield _not_active(port, rails, ib)
        elif physical is not None and not physical.healthy:
            summary = f"ACTIVE, but {port.phys_state}: {physical.meaning}"
            yield Finding.warn(summary, subject=port.subject, evidence=ib.evidence(port), fix=_cable(port))
    if rails.bridges:
        names = ", ".join(port.name for port in rails.bridges)
        yield Finding.info(f"they manage the NVSwitches, not a network: {names}", subject="ib:bridges")
    idle = [port for port in rails.others if not port.active]
    if idle:
        names = ", ".join(f"{port.name} {port.phys_state or port.state or 'not active'}" for port in idle)
        yield Finding.info(f"no link, not used by NCCL: {names}", subject="ib:others")
    elif not rails.ports and rails.others:
        yield Finding.info(
            f"NCCL uses none of {counted(len(rails.others), 'port')} ({rails.chosen_by})", subject="ib:others"
        )


def _not_active(port: IbPort, rails: Rails, ib: Ib) -> Finding:
    """What a port of the rails that is not active amounts to."""
    logical, physical = port_state(port.state or ""), phys_state(port.phys_state or "")
    why = next((row.meaning for row in (physical, logical) if row and not row.healthy), "not active")
    summary = f"{port.state or '?'}, {port.phys_state or 'physical state unknown'}: {why}"
    evidence = ib.evidence(port)
    if port.state is None and port.phys_state is None:
        return Finding.unknown("unparsable", "state not reported", subject=port.subject, evidence=evidence)
    if rails.off:
        return Finding.info(f"{summary}; NCCL_IB_DISABLE=1", subject=port.subject, evidence=evidence)
    if not rails.explicit and (spare := _spare(port, rails)):
        state = f"{port.state or '?'}, {port.phys_state or 'physical state unknown'}"
        return Finding.info(f"{state}; {spare}", subject=port.subject, evidence=evidence)
    if port.state == "ARMED":
        return Finding.warn(summary, subject=port.subject, evidence=evidence, fix=_fix(port))
    # A card or two that were never cabled, or rails that lost their switch: only what was counted tells.
    unused = len(rails.ports) < FEWEST_RAILS and all(p.never_linked for p in rails.ports)
    some = unused or any(p.active for p in rails.ports)
    if some and not (rails.sure or port.carried or port.phys_state in _CABLED):
        summary = f"{summary}; unknown whether it should have a link"
        unsure = Finding.warn(summary, subject=port.subject, evidence=evidence, fix=_fix(port))
        return unsure.in_preview()
    if not rails.explicit and not port.infiniband and all(p.rate_gbps is None for p in rails.ports):
        summary = f"{summary}; no rate reported"
        unsure = Finding.warn(summary, subject=port.subject, evidence=evidence, fix=_fix(port)).matters_as(
            "Without a rate it may be a port of the node's own network, which training does not use."
        )
        return unsure.in_preview()
    finding = Finding.fail(summary, subject=port.subject, evidence=evidence, fix=_fix(port))
    return finding.led_by(f"{port.hca} port {port.number}{_LEAD.get(port.state or '', ' is down')}")


_LEAD = {"INIT": " has no subnet manager"}


def _spare(port: IbPort, rails: Rails) -> str:
    """Why a port without a link is likely not meant to have one; empty when it is missed."""
    active = [other for other in rails.ports if other.active]
    idle = [other for other in rails.ports if not other.active]
    if port.state == "INIT":
        return ""
    cards = Counter(other.card for other in active if other.card)
    shared = {other.card for other in rails.ports if other.card}
    several = max(Counter(other.card for other in rails.ports if other.card).values(), default=1)
    if several > 1 and len(set(cards.values())) == 1 and set(cards) == shared:
        return "this port is unused on every such card"
    if len(active) in _SETS and len(idle) < len(active) / 2:
        return f"all {len(active)} rails are active without it"
    if not rails.sure and active and len(idle) > len(active) and len(rails.ports) not in _SETS:
        return "" if port.carried else "most ports of its kind have none either"
    if port.infiniband or len(idle) == len(rails.ports):
        return ""
    rates = [other.rate_gbps or 0 for other in active if other.rate_gbps is not None] or [_RAIL_GBPS]
    rail = len(active) > max(1, len(idle)) and min(rates, default=0) >= _RAIL_GBPS
    return "" if rail else "an Ethernet port, possibly unused"


def _fix(port: IbPort) -> Fix:
    if port.state == "INIT":
        return subnet_manager()
    if port.phys_state == "Disabled":
        netdev = port.netdevs[0].name if port.netdevs else None
        return enable(port.hca, port.number, netdev, port.infiniband)
    return _cable(port)


def _cable(port: IbPort) -> Fix:
    return cable(port.hca, port.number)


def _silent(name: str) -> Finding:
    fix = Fix(
        "Reset the NIC or reboot; update its firmware.",
        (look("sudo dmesg | grep -i {}", name), look("ps -eo pid,stat,wchan:32,comm | awk '$2 ~ /D/'")),
        "reboot",
        "every job on this node",
        "nodedoctor ib",
    )
    return Finding.unknown(
        "stuck", f"{name} does not respond: reading its files hangs", subject=f"hca:{name}", fix=fix
    )


def _driverless(addresses: tuple[str, ...], inside: bool) -> Finding:
    summary = (
        f"{counted(len(addresses), 'InfiniBand adapter')} on the bus ({addresses[0]} ...), but no RDMA device"
    )
    if inside:
        fix = Fix("Run on the host, or give the container the host's network namespace.", action="none")
        return Finding.unknown("not-visible-here", summary, subject="ib:driver", fix=fix)
    text = "Load the NIC driver; if that fails, the kernel log shows why."
    steps = (repair("sudo modprobe mlx5_ib"), look("nodedoctor kernel.nic"))
    fix = Fix(text, steps, "config", "nothing", "nodedoctor ib.ports")
    return Finding.fail(summary, subject="ib:driver", fix=fix)


def _no_such(word: str, rails: Rails) -> Finding:
    fix = Fix(
        "Set it to existing NICs, or unset it.",
        (repair("unset NCCL_IB_HCA"),),
        "config",
        "the job",
        "nodedoctor ib.ports",
    )
    return Finding.fail(
        f"{rails.chosen_by} contains {word}, not present on this node", subject=f"hca:{word}", fix=fix
    ).explained_by("env.lint@env:NCCL_IB_HCA")


def _expected(wanted: str, rails: Rails) -> Finding:
    """`8x400`: so many active rails of at least that rate in Gbit/s; `8` alone: so many."""
    found = re.fullmatch(r"(\d{1,3})(?:x(\d{1,4}(?:\.\d)?))?", wanted.strip())
    if found is None:
        return Finding.unknown(
            "unparsable",
            f"--expect ib: expected COUNTxRATE like 8x400, got '{wanted}'",
            subject="ib:expected",
        )
    count, rate = int(found.group(1)), float(found.group(2) or 0)
    have = [port for port in rails.ports if port.active and (port.rate_gbps or 0) >= rate]
    summary = f"{len(have)} of {wanted} expected ports active"
    if len(have) < count:
        return Finding.fail(
            summary,
            subject="ib:expected",
            fix=port_fix("Find the missing ports.", (look("ibstat"),)),
        ).explained_by("ib.ports@any", "ib.rate@any")
    return Finding.ok(summary, subject="ib:expected")


@check(
    "ib.sm",
    "InfiniBand subnet manager",
    tags={"fast", "ib"},
    explained_by=("ib.ports",),
)
def sm(ib: Ib, rails: Rails) -> Iterator[Finding]:
    """State Initializing, and the subnet manager's address (LID), of InfiniBand rails with a link.

    Why: without a subnet manager no port becomes active; when it is lost, new connections fail.
    Fix disturbs: nothing.
    Judges: FAIL when links are up and no subnet manager has configured them; WARN when an active port knows
    none.
    Fix: Start the subnet manager (opensm, UFM or the switch's own).
    Threshold: InfiniBand architecture: a port stays INIT without a subnet manager.
    False positives: Back-to-back test links without a subnet manager.
    """
    linked = [p for p in rails.ports if p.infiniband and (p.active or p.state in ("INIT", "ARMED"))]
    if not linked:
        yield _no_infiniband(ib)
        return
    waiting = [port for port in linked if port.state == "INIT"]
    lost = [port for port in linked if port.active and port.sm_lid == 0]
    for port in waiting:
        summary = "link up, not configured by any subnet manager"
        yield Finding.fail(summary, subject=port.subject, evidence=ib.evidence(port), fix=subnet_manager())
    for port in lost:
        yield Finding.warn("active, but no subnet manager known", subject=port.subject, fix=subnet_manager())
    if not waiting and not lost:
        lids = sorted({port.sm_lid for port in linked if port.sm_lid})
        yield Finding.ok(f"{counted(len(linked), 'port')}, subnet manager at LID {listed(lids) or 'unknown'}")


@check("ib.firmware", "NIC firmware versions", tags={"fast", "ib"})
def firmware(ib: Ib, rails: Rails) -> Iterator[Finding]:
    """Firmware versions of the rails' NICs, by model.

    Why: mixed firmware behaves differently under congestion, and vendors ask about it first.
    Fix disturbs: every job on this node (NIC reset).
    Judges: WARN when like rails run different firmware; a note where only some adapters differ.
    Fix: Bring all adapters of the model to one firmware.
    Threshold: No threshold: versions are compared within the model.
    False positives: Adapters for storage or management, which may have their own firmware.
    """
    by_model: dict[str, Counter[str]] = {}
    for port in rails.ports:
        if port.firmware:
            by_model.setdefault(port.model or "adapter", Counter())[port.firmware] += 1
    if not by_model:
        yield ib.nothing(rails, "no firmware version reported")
    for model, versions in by_model.items():
        told = ", ".join(f"{n} x {version}" for version, n in versions.most_common())
        if len({version.rpartition(".")[0] for version in versions}) > 1:
            fix = Fix(
                "Update all NICs to one firmware release.",
                (look("sudo mlxfwmanager --query"),),
                "config",
                "every job on this node",
                "nodedoctor ib.firmware",
            )
            finding = Finding.warn(f"{model}: {told}", subject=f"model:{model}", fix=fix)
            yield finding.led_by(f"{model} NICs run {len(versions)} firmware versions")
        elif len(versions) > 1:
            yield Finding.info(f"{model}: {told}", subject=f"model:{model}")
        else:
            yield Finding.ok(f"{model}: {told}", subject=f"model:{model}")


def _no_infiniband(ib: Ib) -> Finding:
    return Finding.skip("no InfiniBand rail has a link" if ib.ports else ib.absent)
