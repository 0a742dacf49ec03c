"""Are the InfiniBand and RoCE ports up that training uses?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.facts.network.net import Net
from nodedoctor.facts.rdma.cabling import meant_to_link, was_ever_linked
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import FEWEST_RAILS, Ib, Rails
from nodedoctor.knowledge.fixes.rdma import cable, enable, port_fix, subnet_manager
from nodedoctor.knowledge.infiniband import phys_state, port_state
from nodedoctor.model import Expect, Finding, Fix, quoted_like
from nodedoctor.steps import look, repair
from nodedoctor.wording import comma_list, count_with_noun, fitting

from .link_type import other_link_types
from .storage_adapters import storage_adapters_in_use

_RAIL_GBPS = 100
"""Ethernet below it connects nodes to the world, not GPUs to each other (knowledge: rdma platforms)."""
_SETS = (8, 16)
"""How many rails boards have; more ports of the kind than these serve something else."""
_USUAL = (1, 2, 4, *_SETS)
"""How many ports machines use: one, or one per GPU or two GPUs; ours."""
_NUMBERED = re.compile(r"mlx[45]_\d{1,4}")
_NOT_FOR_IBSTAT = re.compile(r"(?:mlx5_an|efa_|irdma|mana_?)\d{1,4}|rdmap\d{1,4}s\d{1,4}(?:f\d)?")
"""Azure's front-end interface, Amazon's EFA and Ethernet cards, for which umad has no device: ibstat of older
rdma-core ends at the first of them (Azure/azhpc-images#213, linux-rdma/rdma-core#1501)."""


@check(
    "ib.ports",
    "RDMA port state",
    tags={"fast", "ib"},
    without=(Container, Net, KernelLog, Processes),
    explained_by=("kernel.nic",),
)
def ports(
    ib: Ib,
    rails: Rails,
    container: Container | None,
    net: Net | None,
    log: KernelLog | None,
    processes: Processes | None,
    expect: Expect,
) -> Iterator[Finding]:
    """State of the ports in NCCL_IB_HCA, else of the largest group of equal ports.

    Why: NCCL skips a port that is not active; all traffic between nodes then shares the others, or the job
    falls back to TCP.
    Fix disturbs: traffic on that port.
    Judges: FAIL when a rail is down or lost or a device has no driver; WARN when NCCL_IB_HCA names slower
    adapters beside a set of rails, one of a set of identical adapters has another link type, ibstat ended at
    a device that it could not read, or it is unknown whether a port is meant to have a link; unknown when no
    port ever had one and no place was read that could say why.
    Fix: Check cable and switch port, then the port's mode and driver.
    Threshold: No threshold: port and physical state as the kernel or ibstat shows them.
    False positives: Spare and storage ports without a cable: ports without a GPU beside them are not called
    rails, and a set of which no port had a link since the driver was loaded is a note unless something shows
    that a link is meant to be: a cable plugged in, an address, NCCL_IB_HCA, a job of several nodes, --expect.
    """
    wanted = expect.get("ib")
    for name in ib.silent:
        yield _silent_adapter(name)
    for name in ib.unreadable:
        yield _unreadable_adapter(name, ib)
    for text in ib.disagreements:
        yield Finding.info(text, subject="ib:sources")
    if wanted is not None:
        yield _judge_expected(wanted, rails)
    inside = container is not None and container.inside
    if ib.driverless:
        yield _driverless_adapters(ib.driverless, inside)
    elif not ib.ports and wanted is None and not ib.silent:
        yield Finding.skip(ib.absent + (" that this container can see" if inside else ""))
    for word in rails.unknown:
        yield _no_such(word, rails)
    active = any(port.active for port in rails.ports)
    never = not active and all(port.never_linked for port in rails.ports)
    if rails.ports and never and not (rails.explicit or rails.off or wanted):
        why = meant_to_link(rails.ports, net, log, processes)
        unread = [name for name, fact in zip(_SIGNS, (net, log, processes), strict=True) if fact is None]
        yield from _judge_ports(ib, rails, why) if why else _judge_uncabled(ib, rails, unread)
        return
    yield from _judge_ports(ib, rails)


_SIGNS = ("network interfaces", "the kernel log", "processes")
"""Where there may be a sign that ports are meant to have a link."""


def _judge_uncabled(ib: Ib, rails: Rails, unread: Sequence[str]) -> Iterator[Finding]:
    """Adapters that never had a link, on a node that shows no sign of needing one; `unread` may hold one."""
    lead = f"no link on {count_with_noun(len(rails.ports), 'port')} since the driver was loaded"
    evidence = ib.evidence(rails.ports[0])
    if unread:
        summary = f"{lead}; unknown whether they need one"
        yield Finding.unknown(
            "not-visible-here", summary, subject="ib:unlinked", evidence=evidence
        ).matters_as(f"A cable or an address may show in {comma_list(unread, 3)}, not read here.")
    else:
        summary = f"{lead}: no cable, or the switch is off"
        yield Finding.info(summary, subject="ib:unlinked", evidence=evidence).matters_as(
            "Nothing shows that they are meant to have one; with --expect ib=COUNTxRATE this fails."
        )
    yield from _judge_unused(ib, rails)


def _judge_ports(ib: Ib, rails: Rails, sign: str = "") -> Iterator[Finding]:
    """The state of each port; `sign` is what shows that ports which never had a link should have one."""
    active = [port for port in rails.ports if port.active]
    if active:
        names = [port.name for port in active]
        kinds = Counter(port.kind for port in active)
        counts = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
        more = [port.name for port in rails.others if port.active]
        summary = f"{counts} active: {comma_list(names, 4)}"
        if more:
            summary = fitting(
                f"{summary}; also {comma_list(more, 4)}",
                f"{counts} active: {comma_list(names, 2)}; also {comma_list(more, 2)}",
                f"{counts} active; also {count_with_noun(len(more), 'other port')}",
            )
        yield Finding.ok(summary, evidence=ib.evidence(active[0]))
    for port in rails.ports:
        physical = phys_state(port.phys_state or "")
        if not port.active:
            yield _not_active(port, rails, ib, sign)
        elif physical is not None and not physical.healthy:
            summary = f"ACTIVE, but {port.phys_state}: {physical.meaning}"
            yield Finding.warn(
                summary, subject=port.subject, evidence=ib.evidence(port), fix=_cable_fix(port)
            )
    yield from _judge_unused(ib, rails)


def _judge_unused(ib: Ib, rails: Rails) -> Iterator[Finding]:
    """The ports that NCCL does not use, and those that it should not."""
    yield from storage_adapters_in_use(ib, rails)
    yield from other_link_types(ib)
    if rails.bridges:
        names = ", ".join(port.name for port in rails.bridges)
        yield Finding.info(f"they manage the NVSwitches, not a network: {names}", subject="ib:bridges")
    idle = [port for port in rails.others if not port.active]
    if idle:
        names = ", ".join(f"{port.name} {port.phys_state or port.state or 'not active'}" for port in idle)
        yield Finding.info(f"no link, not used by NCCL: {names}", subject="ib:others")
    elif not rails.ports and rails.others:
        yield Finding.info(
            f"NCCL uses none of {count_with_noun(len(rails.others), 'port')} ({rails.chosen_by})",
            subject="ib:others",
        )


def _not_active(port: IbPort, rails: Rails, ib: Ib, sign: str) -> Finding:
    """What a port of the rails that is not active amounts to."""
    logical, physical = port_state(port.state or ""), phys_state(port.phys_state or "")
    why = next((row.meaning for row in (physical, logical) if row and not row.healthy), "not active")
    summary = f"{port.state or '?'}, {port.phys_state or 'physical state unknown'}: {why}"
    evidence = ib.evidence(port)
    if port.state is None and port.phys_state is None:
        return Finding.unknown("unparsable", "state not reported", subject=port.subject, evidence=evidence)
    if rails.off:
        return Finding.info(f"{summary}; NCCL_IB_DISABLE=1", subject=port.subject, evidence=evidence)
    if not rails.explicit and (spare := _why_spare(port, rails) or _why_alone(port, rails, ib)):
        state = f"{port.state or '?'}, {port.phys_state or 'physical state unknown'}"
        if ib.partly is not None and port.infiniband and port.phys_state == "Polling":
            summary = f"{state}: no signal, unused or lost; {spare}"
            return Finding.unknown("not-visible-here", summary, subject=port.subject, evidence=evidence)
        return Finding.info(f"{state}; {spare}", subject=port.subject, evidence=evidence)
    if port.state == "ARMED":
        return Finding.warn(summary, subject=port.subject, evidence=evidence, fix=_link_fix(port))
    some = any(p.active for p in rails.ports)
    if some and not (rails.sure or was_ever_linked(port)):
        summary = f"{summary}; unknown whether it should have a link"
        unsure = Finding.warn(summary, subject=port.subject, evidence=evidence, fix=_link_fix(port))
        return unsure.in_preview()
    if not rails.explicit and not port.infiniband and all(p.rate_gbps is None for p in rails.ports):
        summary = f"{summary}; no rate reported"
        unsure = Finding.warn(
            summary, subject=port.subject, evidence=evidence, fix=_link_fix(port)
        ).matters_as(
            "Without a rate it may be a port of the node's own network, which training does not use."
        )
        return unsure.in_preview()
    finding = Finding.fail(summary, subject=port.subject, evidence=evidence, fix=_link_fix(port))
    if sign:
        finding = finding.matters_as(f"It should have a link: {sign}.")
    return finding.led_by(f"{port.hca} port {port.number}{_LEAD.get(port.state or '', ' is down')}")


_LEAD = {"INIT": " has no subnet manager"}


def _why_spare(port: IbPort, rails: Rails) -> str:
    """Why a port without a link is likely not meant to have one; empty when it is missed."""
    active = [peer for peer in rails.ports if peer.active]
    idle = [peer for peer in rails.ports if not peer.active]
    if port.state == "INIT":
        return ""
    cards = Counter(peer.card for peer in active if peer.card)
    shared = {peer.card for peer in rails.ports if peer.card}
    several = max(Counter(peer.card for peer in rails.ports if peer.card).values(), default=1)
    if several > 1 and len(set(cards.values())) == 1 and set(cards) == shared:
        return "this port is unused on every such card"
    if len(active) in _SETS and len(idle) < len(active) / 2:
        return f"all {len(active)} rails are active without it"
    if not rails.sure and active and len(idle) > len(active) and len(rails.ports) not in _SETS:
        return "" if port.carried else "most ports of its kind have none either"
    if not rails.sure and active and not was_ever_linked(port):
        if port.infiniband and port.phys_state == "Disabled":
            return "an administrator disabled it"
        if len(active) in _USUAL and len(idle) <= max(1, len(active) // 2):
            return f"{count_with_noun(len(active), 'port')} active without it, as many as machines have"
    if port.infiniband or len(idle) == len(rails.ports):
        return ""
    rates = [peer.rate_gbps or 0 for peer in active if peer.rate_gbps is not None] or [_RAIL_GBPS]
    rail = len(active) > max(1, len(idle)) and min(rates, default=0) >= _RAIL_GBPS
    return "" if rail else "an Ethernet port, possibly unused"


def _why_alone(port: IbPort, rails: Rails, ib: Ib) -> str:
    """Why a disabled port in a few lines of a tool may be as it ought to be: nothing with a link is shown."""
    few = ib.partly is not None and len(rails.ports) < FEWEST_RAILS
    unlinked = few and not any(peer.active or was_ever_linked(peer) for peer in rails.ports)
    if unlinked and port.infiniband and port.phys_state == "Disabled":
        return "an administrator disabled it, and no port with a link is shown"
    return ""


def _link_fix(port: IbPort) -> Fix:
    if port.state == "INIT":
        return subnet_manager()
    if port.phys_state == "Disabled":
        netdev = port.netdevs[0].name if port.netdevs else None
        return enable(port.hca, port.number, netdev, port.infiniband)
    return _cable_fix(port)


def _cable_fix(port: IbPort) -> Fix:
    return cable(port.hca, port.number)


def _unreadable_adapter(name: str, ib: Ib) -> Finding:
    """Judge an adapter at which ibstat ended: only a numbered one among its twins is surely lost."""
    evidence = [quoted_like("ibstat", rf"ibpanic: .*'{re.escape(name)}'.*")]
    if _NOT_FOR_IBSTAT.fullmatch(name):
        summary = f"ibstat ended at {name}, a kind of device that it does not query"
        return Finding.info(summary, subject=f"hca:{name}", evidence=evidence).matters_as(
            "Devices behind it are not listed: ibv_devinfo shows all of them."
        )
    if not (_NUMBERED.fullmatch(name) and any(_NUMBERED.fullmatch(port.hca) for port in ib.ports)):
        fix = Fix(
            "Look whether the kernel lost the adapter, and list the others with ibv_devinfo.",
            (look("sudo dmesg | grep -i {}", name), look("ibv_devinfo")),
            "investigate",
            "nothing",
            "nodedoctor ib",
        )
        summary = f"{name} is listed and cannot be read: ibstat ends there, those behind it are not shown"
        return Finding.warn(summary, subject=f"hca:{name}", evidence=evidence, fix=fix)
    fix = Fix(
        "Drain and reboot the node: the adapter has left the bus. If it is lost again, reseat or replace it.",
        (look("sudo dmesg | grep -i {}", name), look("lspci -d 15b3:")),
        "reboot",
        "every job on this node",
        "nodedoctor ib",
    )
    summary = f"{name} is listed and cannot be read: ibstat ends there, the adapter is lost"
    return Finding.fail(summary, subject=f"hca:{name}", evidence=evidence, fix=fix)


def _silent_adapter(name: str) -> Finding:
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


def _driverless_adapters(addresses: tuple[str, ...], inside: bool) -> Finding:
    summary = (
        f"{count_with_noun(len(addresses), 'InfiniBand adapter')} on the bus ({addresses[0]} ...), "
        "but no RDMA device"
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


def _judge_expected(wanted: str, rails: Rails) -> Finding:
    """`8x400`: so many active rails of at least that rate in Gbit/s; `8` alone: so many."""
    match = re.fullmatch(r"(\d{1,3})(?:x(\d{1,4}(?:\.\d)?))?", wanted.strip())
    if match is None:
        return Finding.unknown(
            "unparsable",
            f"--expect ib: expected COUNTxRATE like 8x400, got '{wanted}'",
            subject="ib:expected",
        )
    count, rate = int(match.group(1)), float(match.group(2) or 0)
    have = [port for port in rails.ports if port.active and (port.rate_gbps or 0) >= rate]
    summary = f"{len(have)} of {wanted} expected ports active"
    if len(have) < count:
        return Finding.fail(
            summary, subject="ib:expected", fix=port_fix("Find the missing ports.", (look("ibstat"),))
        ).explained_by("ib.ports@any", "ib.rate@any")
    return Finding.ok(summary, subject="ib:expected")
