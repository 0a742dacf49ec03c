"""Is the PCIe link of each GPU and adapter in a pasted `lspci -vv` as fast as it can be?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.pci.lspci import Lspci
from nodedoctor.facts.pci.pci import PciDevice, PciLink, bdf
from nodedoctor.grouping import group_pairs
from nodedoctor.model import Finding, Fix, quoted_like
from nodedoctor.wording import comma_list, count_with_noun

from ..gpu.clock import LOADED_PERCENT
from .pcie import is_module, link_steps

_RESEAT = "Reboot; if the link is still slow, reseat card, riser or cable, and check the slot's BIOS setting."
_SLOWEST = 2.5
"""Of the first generation of PCIe, GT/s (PCI Express base specification)."""
QUARTER = 0.3
"""Share of its bandwidth at which an adapter does not fit its slot: two generations, or half of both speed
and lanes; a half may be the slot's. Generations 1 to 3 are not exactly doubled. Ours."""


@check(
    "pcie.adapter-speed",
    "PCIe speed of pasted devices",
    tags={"pcie", "ib", "gpu"},
    without=(Lspci, Gpus),
    explained_by=("pcie.width",),
    stage="preview",
)
def adapter_speed(lspci: Lspci | None, gpus: Gpus | None) -> Iterator[Finding]:
    """PCIe speed of each GPU and adapter in a pasted `lspci -vv`, against its own maximum and its kind.

    Why: a device at half its speed carries half of what its port can, and all ranks wait for it.
    Fix disturbs: every job on the node while a card is reseated.
    Judges: WARN when a link is slower than it can be, and most of at least three alike are faster, or the GPU
    is under load, or the adapter has at most a quarter of its bandwidth and none of its kind is as slow, or
    the port above the adapter is faster, too.
    Fix: Reboot, then reseat the card or its riser.
    Threshold: Its own maximum, its port and the peers; what lspci marks as downgraded is below the maximum.
    False positives: Slots of different generations. What may be an idle GPU is only noted.
    """
    if lspci is None:
        yield Finding.skip("no output of lspci was given")
        return
    states = {bdf(gpu.bus_id): gpu for gpu in gpus.gpus if gpu.bus_id} if gpus else {}
    have_generation = {address for address, gpu in states.items() if gpu.pcie_generation}
    links = [
        device
        for device in lspci.devices
        if (device.is_nic or device.is_gpu) and _speed(device) and device.address not in have_generation
    ]
    slow = [device for device in links if _speed(device) < _maximum(device)]
    reasons = [(device, _reason_to_warn(device, links, states.get(device.address), lspci)) for device in slow]
    for device, reason in reasons:
        if reason:
            yield _slow_link(device, reason)
    excused = [device for device, reason in reasons if not reason]
    by_text = group_pairs((_excuse(device, lspci), device.address) for device in excused)
    for text, addresses in by_text.items():
        yield Finding.info(f"{comma_list(addresses, 3)}: {text}")
    if not links:
        yield Finding.skip("no link of a GPU or adapter is shown")
    elif not slow:
        full = [device for device in links if _maximum(device)]
        count = count_with_noun(len(full), "device")
        yield Finding.ok(f"{count} at full PCIe speed") if full else Finding.info("no PCIe maximum is shown")


def _slow_link(device: PciDevice, reason: str) -> Finding:
    short = re.escape(device.address.removeprefix("0000:"))
    line = quoted_like("lspci", rf"{short} .*(?:\n[ \t].*)*?\n[ \t]+(LnkSta:.*)")
    return Finding.warn(
        f"{device.address}: {_speeds(device)}{reason}",
        subject=f"pci:{device.address}",
        evidence=[line],
        fix=Fix(
            _RESEAT, link_steps(device.address), "drain", "every job on this node", "nodedoctor nic.inventory"
        ),
    )


def _speeds(device: PciDevice) -> str:
    return f"PCIe link at {_speed(device):g} of {_maximum(device):g} GT/s"


def _excuse(device: PciDevice, lspci: Lspci) -> str:
    """Why a slow link may be as it ought to be."""
    slot = "can do no more" if device.address in lspci.ports else "may be of that generation"
    return f"{_speeds(device)} ({'idle?' if device.is_gpu else f'the slot {slot}'})"


def _reason_to_warn(device: PciDevice, links: Sequence[PciDevice], gpu: Gpu | None, lspci: Lspci) -> str:
    """What shows that a slow link is at fault; "" where it may be idle, or its slot is of that generation."""
    load = gpu.gpu_utilization_percent if gpu else None
    if gpu and device.is_gpu and (load is not None or gpu.pstate is not None):
        is_busy = (load or 0) >= LOADED_PERCENT and (gpu.pstate or 0) <= 2
        return " under load" if is_busy else ""
    twins = [twin for twin in links if twin is not device and twin.pci_id == device.pci_id]
    faster = sum(_speed(twin) > _speed(device) for twin in twins)
    may_idle = device.is_gpu and not is_module(device) and _speed(device) <= _SLOWEST
    if faster >= 2 and faster * 2 > len(twins) + 1 and not may_idle:
        return f", {count_with_noun(faster, 'peer')} faster"
    port = lspci.ports.get(device.address)
    if device.is_nic and port and _speed(device) < min(_maximum(device), port.max_speed_gts or 0.0):
        return f", the port above it can do {port.max_speed_gts:g}"
    quicker = sum(_bandwidth(twin) > _bandwidth(device) for twin in twins)
    if device.is_nic and _share(device) <= QUARTER and quicker == len(twins) and not port:
        link = device.link
        lanes = f" on x{link.width} of x{link.max_width}" if link and _has_fewer_lanes(link) else ""
        return f"{lanes}, a quarter of its bandwidth or less"
    return ""


def _has_fewer_lanes(link: PciLink) -> bool:
    return (link.width or 0) < (link.max_width or 0)


def _bandwidth(device: PciDevice) -> float:
    return _speed(device) * (device.link.width or 0 if device.link else 0)


def _share(device: PciDevice) -> float:
    """The share of its bandwidth that a link has; lanes that are not shown count as all."""
    if device.link is None or not _maximum(device):
        return 1.0
    lanes = device.link.width or 1
    return _bandwidth(device) / (_maximum(device) * max(device.link.max_width or 0, lanes))


def _speed(device: PciDevice) -> float:
    return device.link.speed_gts or 0.0 if device.link else 0.0


def _maximum(device: PciDevice) -> float:
    return device.link.max_speed_gts or 0.0 if device.link else 0.0
