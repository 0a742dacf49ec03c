"""What the drivers of RDMA adapters reported in the kernel log."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.kernel.events import NicEvent, NicKind, evidence_of, line_of, times
from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.grouping import group_by
from nodedoctor.model import Action, Finding, Fix, Moment, Step
from nodedoctor.patterns import regex
from nodedoctor.steps import look, reboot
from nodedoctor.wording import count_with_noun

from .pci_address import NO_ADDRESS

_FLAPS = 3
"""Times a link went down from which it flaps (Azure/azurehpc-health-checks: link flaps; healthagent: 3)."""
_FLAP_SECONDS = 24 * 3600.0
"""Within so much: Azure's node health check counts link flaps of a day."""
_ONE_LOSS = 5.0
"""Within so much lines of several drivers tell of one loss of the link; ours."""
_SLOT = regex(
    r"\b(?P<has>\d{1,5}\.\d{1,3}) Gb/s available PCIe bandwidth"
    r"(?:.{0,160}\(capable of (?P<possible>\d{1,5}\.\d{1,3}) Gb/s)?"
)
"""Linux, drivers/pci/pci.c, __pcie_print_link_status."""
_SLOT_ADVICE = "Reseat the card or riser and see the slot's generation in the BIOS; else use another slot."
_BOOT_SECONDS = 300.0
"""Links that are still without a cable are reported within minutes of boot."""


@check("kernel.nic", "NIC errors in the kernel log", tags={"fast"})
def nic(log: KernelLog, moment: Moment) -> Iterator[Finding]:
    """Messages of NIC drivers (ConnectX and others): firmware, cable module, power, temperature, link.

    Why: a dead or flapping NIC stops every collective across nodes.
    Fix disturbs: every job that uses the NIC.
    Judges: FAIL when an adapter's driver failed to start or its firmware reported a fault; WARN when a link
    is down or flaps, or its slot gives an adapter less than half of what one like it has.
    Fix: Check cable and firmware; reload the adapter's driver when no job runs.
    Threshold: 3 flaps within a day: Azure/azurehpc-health-checks; 300 s after boot are excused.
    False positives: Ports without a cable at boot, and mlx5's line about slot power.
    Error texts:
    - mlx5_core: Port module event
    """
    logged = log.since(log.nics, moment)
    slots = [*_judge_slots(logged)]
    yield from slots
    events = [event for event in logged if event.kind not in ("plugged", "slow-slot", "full-slot")]
    by_subject = group_by(events, _event_subject)
    for subject, adapter_events in by_subject.items():
        yield from _judge_adapter(subject, adapter_events, log)
    if not events and not slots:
        yield Finding.ok(f"no NIC error in {log.span}")


def _judge_slots(events: list[NicEvent]) -> Iterator[Finding]:
    """Adapters that a slot limits; where another that can do as much has twice its bandwidth, by a fault.

    An adapter's link does not slow down when idle, as a GPU's does. All alike are what the board has.
    """
    slots = (event for event in events if event.kind in ("slow-slot", "full-slot"))
    last = {event.device: (event, match) for event in slots if (match := _SLOT.search(event.text))}
    full = {match["has"] for event, match in last.values() if event.kind == "full-slot"}
    for event, match in last.values():
        if event.kind == "full-slot":
            continue
        has, possible = match["has"], match["possible"]
        amount = f": {has} of {possible} Gb/s" if possible else ""
        subject, evidence = f"pci:{event.device}/slow-slot", [line_of(event)]
        if possible in full and 0 < float(has) < float(possible) / 2:
            summary = f"limited by its slot{amount}, which another adapter here has"
            steps = _look_at_ports(f"pci:{event.device}")
            fix = Fix(_SLOT_ADVICE, steps, "drain", "every job on this node", "nodedoctor kernel.nic nic")
            yield Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
        else:
            summary = f"limited by its slot{amount}{times([event])}"
            yield Finding.info(summary, subject=subject, evidence=evidence)


def _event_subject(event: NicEvent) -> str:
    """The adapter; of a queue that hangs the interface, where the line names only that."""
    if event.device is None and event.kind == "queue" and event.netdev:
        return f"net:{event.netdev}"
    return f"pci:{event.device}" if event.device else NO_ADDRESS


_NIC: dict[NicKind, tuple[str, str, Action]] = {
    "dead": (
        "its driver could not start or recover it",
        "Update driver and firmware together, or power-cycle the node.",
        "investigate",
    ),
    "firmware": (
        "firmware failed or stopped answering",
        "Reset the NIC or reboot; update its firmware.",
        "reboot",
    ),
    "queue": (
        "{} stopped sending for seconds",
        "Update driver and firmware together; check the switch for pause frames.",
        "investigate",
    ),
    "module": ("its cable module reports an error", "Reseat or replace cable and transceiver.", "replace"),
    "power": (
        "too little power for it or its cable module",
        "Check the slot's power limit and the module's power class.",
        "investigate",
    ),
    "temperature": ("it or its cable module is too hot", "Check air flow and fans.", "investigate"),
}


_NOTES: dict[NicKind, str] = {
    "slot-power": "its slot advertises less power than it may draw (logged at every boot)",
    "errors": "work requests or commands failed",
    "register": "its firmware rejected a register command (monitoring tools can cause this)",
}
"""Slot power and register commands: linux, drivers/net/ethernet/mellanox/mlx5/core/events.c and cmd.c."""


def _judge_adapter(subject: str, events: list[NicEvent], log: KernelLog) -> Iterator[Finding]:
    """Trouble by kind; then what the link did."""
    for kind, (meaning, advice, action) in _NIC.items():
        same = [event for event in events if event.kind == kind]
        if same:
            grave = kind in ("dead", "firmware") and same[-1].when.at >= log.booted
            build = Finding.fail if grave else Finding.warn
            steps = (
                *_look_at_ports(subject),
                *((reboot("the node is drained"),) if action == "reboot" else ()),
            )
            fix = Fix(advice, steps, action, "every job that uses the NIC", "nodedoctor kernel.nic ib")
            where = subject if kind in ("dead", "firmware") else f"{subject}/{kind}"
            name = subject.removeprefix("net:") if subject.startswith("net:") else "it"
            yield build(
                f"{meaning.format(name)}{times(same)}", subject=where, evidence=evidence_of(same), fix=fix
            )
    links = [event for event in events if event.kind in ("link-down", "link-up")]
    if links:
        yield _judge_link(f"{subject}/link", links, log).explained_by("ib.ports", "ib.width")
    for kind, text in _NOTES.items():
        same = [event for event in events if event.kind == kind]
        if same:
            yield Finding.info(
                f"{text}{times(same)}", subject=f"{subject}/{kind}", evidence=evidence_of(same)
            )


def _look_at_ports(subject: str) -> tuple[Step, ...]:
    """The state of all ports, and what the log and the bus have of this adapter."""
    kind, _, address = subject.partition(":")
    if kind == "net":
        return (look("ip -s link show {}", address), look("sudo dmesg | grep -F {}", address))
    if subject == NO_ADDRESS:
        return (look("rdma link"), look("sudo dmesg | grep -iE 'mlx5|bnxt|irdma'"))
    return (
        look("rdma link"),
        look("sudo dmesg | grep -F {}", address),
        look("sudo lspci -s {} -vv | grep -E 'LnkCap:|LnkSta:'", address),
    )


def _judge_link(subject: str, events: list[NicEvent], log: KernelLog) -> Finding:
    """A link that went down after boot; a port without a cable says so once, when it is configured."""
    downs = _link_losses(events)
    was_up = [event for event in downs if _was_up(event, events, log)]
    late = [event for event in downs if _after_boot(event)]
    losses = [event for event in downs if event in was_up or not _at_configuration(event, log)]
    flaps = any(
        _seconds_between(*pair) <= _FLAP_SECONDS for pair in zip(losses, losses[_FLAPS - 1 :], strict=False)
    )
    stays = events[-1].kind == "link-down"
    name = next((event.netdev for event in reversed(events) if event.netdev), None)
    whose = f"the link of {name}" if name else "its link"
    fix = Fix(
        "Reseat or replace cable and transceiver; check the switch port.",
        _look_at_ports(subject.partition("/")[0]),
        "investigate",
        "",
        "nodedoctor ib",
    )
    evidence = evidence_of(events)
    if flaps:
        summary = (
            f"{whose} went down {count_with_noun(len(losses), 'time')}{times(losses).partition(' times')[2]}"
        )
        return Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
    if stays and (was_up or late):
        return Finding.warn(f"{whose} is down{times(downs)}", subject=subject, evidence=evidence, fix=fix)
    if downs:
        state = "has no link" if stays else "has a link again"
        return Finding.info(f"a port {state}{times(downs)}", subject=subject, evidence=evidence)
    return Finding.ok("its link came up", subject=subject)


def _link_losses(events: list[NicEvent]) -> list[NicEvent]:
    """Each loss of the link once: firmware, the network's driver and the RDMA core all tell of it."""
    losses: list[NicEvent] = []
    for before, event in zip((None, *events), events, strict=False):
        again = (
            before is not None and before.kind == event.kind and _seconds_between(before, event) <= _ONE_LOSS
        )
        if event.kind == "link-down" and not again:
            losses.append(event)
    return losses


def _seconds_between(before: NicEvent, event: NicEvent) -> float:
    """The time between two lines; none where one has no time."""
    first, second = before.when.seconds, event.when.seconds
    return 0.0 if first is None or second is None else second - first


def _was_up(event: NicEvent, events: list[NicEvent], log: KernelLog) -> bool:
    """Whether the link had come up before, since the same boot."""
    start = _boot_before(event, log)
    return any(earlier.kind == "link-up" and start <= earlier.when.at < event.when.at for earlier in events)


def _boot_before(event: NicEvent, log: KernelLog) -> int:
    """Where in the log the kernel started that wrote a line; -1 where that is not in the log."""
    starts = (boot.when.at for boot in log.driver if boot.kind == "boot")
    return max((at for at in starts if at < event.when.at), default=-1)


def _at_configuration(event: NicEvent, log: KernelLog) -> bool:
    """Whether a first loss may be of the minutes after boot, when ports are configured."""
    since_boot = _after_boot_seconds(event)
    return _boot_before(event, log) >= 0 if since_boot is None else since_boot <= _BOOT_SECONDS


def _after_boot(event: NicEvent) -> bool:
    """True when the line is surely not of the minutes after boot."""
    return (_after_boot_seconds(event) or 0.0) > _BOOT_SECONDS


def _after_boot_seconds(event: NicEvent) -> float | None:
    match = re.match(r"(\d+\.\d+) s after boot", event.when.text)
    return float(match.group(1)) if match else None
