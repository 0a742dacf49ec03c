"""What a kernel log tells of: one noun per kind of trouble, as it was said, not yet judged.

`device` is a PCI address as sysfs writes it (0000:4b:00.0), None where the line names none. `text` is the
message without its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from nodedoctor.facts.kernel.lines import When
from nodedoctor.model import Evidence
from nodedoctor.record import record

DriverKind = Literal[
    "boot",
    "loaded",
    "reset",
    "mismatch",
    "gpu-failed",
    "no-gpu",
    "bound",
    "refused",
    "peermem",
    "no-heartbeat",
    "reset-required",
    "gpu-lost",
]
Severity = Literal["corrected", "non-fatal", "fatal", "link-down"]
StallKind = Literal[
    "hung-task", "soft-lockup", "hard-lockup", "rcu-stall", "crash", "oops", "dead-mount", "no-block"
]
NicKind = Literal[
    "dead",
    "firmware",
    "queue",
    "module",
    "power",
    "temperature",
    "link-down",
    "link-up",
    "plugged",
    "slow-slot",
    "full-slot",
    "slot-power",
    "register",
    "errors",
]

StorageKind = Literal[
    "dead",
    "raid",
    "read-only",
    "file-system",
    "io-error",
    "timeout",
    "interrupt",
    "connection-lost",
    "connection-back",
]
FullKind = Literal["connections", "neighbours", "tcp-memory", "files"]
CpuKind = Literal["uncorrected", "corrected", "recorded", "hot"]


@record
class LogEvent:
    """Any event: the time of its line, and the message."""

    when: When
    text: str


@record
class LoggedXid(LogEvent):
    """An error the NVIDIA driver reported of a GPU; pid and name are of the host, None where it knew none.

    `mig` names the instance a MIG device has.
    """

    code: int
    device: str | None = None
    pid: int | None = None
    name: str | None = None
    mig: str | None = None


@record
class Sxid(LogEvent):
    """An error of an NVSwitch; `link` is the port it names."""

    code: int
    fatal: bool
    switch: str
    device: str | None = None
    link: int | None = None


@record
class DriverEvent(LogEvent):
    """What the NVIDIA driver said of itself: it was loaded, a GPU was reset, why something did not start.

    `version` is the driver's, of a mismatch the two, of a GPU that is bound elsewhere who has it. `client` is
    the program that does not match, `gpu` the number that newer drivers put before a message.
    """

    kind: DriverKind
    device: str | None = None
    version: str | None = None
    client: str | None = None
    gpu: int | None = None


@record
class PcieError(LogEvent):
    """An error of the PCI bus. `driver` is whose device it is, `vendor` its maker (10de) if said.

    `suppressed` are those behind it that the kernel counted and did not print.
    """

    severity: Severity
    device: str | None = None
    driver: str | None = None
    vendor: str | None = None
    suppressed: int = 0


@record
class OomKill(LogEvent):
    """A process the kernel ended because memory ran out; `limited` by a control group, else by the node.

    `is_victim` is False for the process that asked for memory when there was none: another may have ended.
    """

    pid: int
    name: str
    rss_gib: float | None = None
    limited: bool = False
    cgroup: str | None = None
    is_victim: bool = True


@record
class Stall(LogEvent):
    """A task or processor that made no progress, a program that crashed in a library, a fault of the kernel.

    `no-block` is a request of the kernel's own for memory that it could not meet. `where` is the module or
    library its stack or address lies in, of a dead mount the server.
    """

    kind: StallKind
    pid: int | None = None
    name: str | None = None
    seconds: int | None = None
    where: str | None = None


@record
class NicEvent(LogEvent):
    """What a network adapter's driver said: firmware, module (cable), power, temperature, its link."""

    kind: NicKind
    device: str | None = None
    netdev: str | None = None


@record
class StorageEvent(LogEvent):
    """What happened to a disk, array, file system or its server, by the name the kernel gives it."""

    kind: StorageKind
    device: str
    system: str = ""  # the file system of a server: lustre, ceph


@record
class CpuEvent(LogEvent):
    """An error of a processor, or its slowing down because of heat; `cpu` is its number if it was named."""

    kind: CpuKind
    cpu: int | None = None


@record
class FullTable(LogEvent):
    """A table of the network that was full: connections tracked, neighbours known, memory of TCP."""

    kind: FullKind


@record
class IommuFault(LogEvent):
    """A device reached for memory the IOMMU does not let it have."""

    device: str | None = None


@record
class RamError(LogEvent):
    """An error of the host's memory; `corrected` ones did no harm. `place` is the module's name if known.

    `count` is how many errors the line reports (linux, drivers/edac/edac_mc.c: error_count).
    """

    corrected: bool
    place: str | None = None
    count: int = 1


def times(events: Sequence[LogEvent]) -> str:
    """How often and from when to when, to follow a sentence."""
    first, last = events[0].when.short, events[-1].when.short
    often = f", {len(events)} times" if len(events) > 1 else ""
    if not first:
        return often
    if first == last:
        return f"{often} at {first}"
    day, _, clock = last.rpartition(" ")
    if first.startswith(f"{day} "):
        last = clock
    boot = " s after boot"
    return f"{often} from {first.removesuffix(boot) + ' s' if first.endswith(boot) else first} to {last}"


def evidence_of(events: Sequence[LogEvent]) -> list[Evidence]:
    """The first and the last line."""
    shown = [events[0]] if len(events) == 1 else [events[0], events[-1]]
    return [line_of(event) for event in shown]


def line_of(event: LogEvent) -> Evidence:
    """The line of the log an event was read from."""
    return Evidence("kernel-log", event.text, at=event.when.at)
