"""Kernel messages that people paste or that a log carries: Xid, links, storage, tasks that hang."""

from __future__ import annotations

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import LogPattern, bounded_integer, log_pattern, symptom_pattern


@record
class XidReported:
    """The driver reported a GPU error; `code` 0 stands for an SXid of an NVSwitch."""

    code: int
    pci: str
    switch: bool = False

    @property
    def bus(self) -> int:
        """PCI bus number, 0 when the address cannot be read."""
        parts = self.pci.split(":")
        digits = parts[-2] if len(parts) > 1 else ""
        return int(digits, 16) & 0xFF if digits and set(digits) <= set("0123456789abcdef") else 0


@record
class KernelTaskHung:
    """A task hung in the kernel, usually in storage."""

    says: str


SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"(?P<kind>S?Xid) \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?:, pid='?(?P<pid>\d+)'?)?"
        r"(?:.*\bcaused by previous Xid (?P<previous>\d+))?",
        lambda found: XidReported(
            bounded_integer(found["previous"] or found["code"]), found["pci"].lower(), found["kind"] == "SXid"
        ),
    ),
    symptom_pattern(
        "network_ib",
        "link-down",
        r"(?:mlx\d|ib\d|hfi1|bnxt|irdma|port \d).*[Ll]ink (?:is )?(?:down|DOWN)",
        "a network link went down",
        of_node=True,
    ),
    symptom_pattern(
        "gpu_hardware_xid",
        "pcie-fatal",
        r"AER:.*Uncorrect\w{0,9} \((?:Fatal|Non-Fatal)\)|AER: .*[Ff]atal error",
        "a PCIe device reported an uncorrectable error",
        decisive=False,
        of_node=True,
    ),
    log_pattern(
        r"task (?P<name>\S+):(?P<pid>\d+) blocked for more than \d+ seconds"
        r"|nfs: server (?P<srv>\S+) not responding"
        r"|Lustre(?:Error)?:.*(?:connection lost|was lost|evicted)",
        lambda found: KernelTaskHung(found[0][:120]),
    ),
)
