"""What people paste of `lspci -vv`: devices of NVIDIA and Mellanox with their PCIe links.

Format: pciutils, lspci.c and ls-caps.c. A paste may be a part of the bus, so it proves the absence of nothing
and comes beside the fact `pci`, never in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodedoctor.declare.registry import fact, pasted
from nodedoctor.facts.pci.pci import MELLANOX, NVIDIA, PciDevice, PciLink, bdf
from nodedoctor.model import Observation, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import field, record, replace

LSPCI = pasted("lspci", "The output of lspci -vv, with or without -nn.")

_HEAD = re.compile(
    r"^[> \t]*((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
    r" (?P<kind>[^:\n]{3,60}): (?P<name>.+)$",
    re.MULTILINE,
)
_IDS = regex(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]")
_KINDS = {
    "3D controller": "030200",
    "VGA compatible controller": "030000",
    "Infiniband controller": "020700",
    "Ethernet controller": "020000",
}
_LINK = (
    r"Lnk{}:.*?Speed (?P<speed>\d{{1,3}}(?:\.\d)?)GT/s(?: \((?P<speed_mark>\w+)\))?,"
    r" Width x(?P<width>\d{{1,2}})(?: \((?P<width_mark>\w+)\))?"
)
_AT_LEAST = {"downgraded": 2, "ok": 1}
"""How lspci marks what is less than the device can do, and before 3.8 also what is not: the maximum is at
least so many times what is shown."""
_CAP, _STA = regex(_LINK.format("Cap")), regex(_LINK.format("Sta"))
_OFF_BUS = regex(r"\(rev ff\)|!!! Unknown header type 7f")
"""How a device is shown of which every byte reads ff, as it does not answer any more."""
_ACS_CONTROL = regex(r"ACSCtl:[ \t]{1,20}(\w{3,20}[+-](?: \w{3,20}[+-]){2,10})")
_BUSES = regex(r"Bus: primary=[\da-f]{2}, secondary=([\da-f]{2}), subordinate=([\da-f]{2})")
_DOWNSTREAM = regex(r"Express \(v\d\) Downstream ")
_SWITCH = regex(r"\b(?:Switchtec|PEX ?(?:\w{0,2}\d{4,5}|\d{3}xx))\b")
"""Switches of servers; those of desktop boards join disks and USB."""
_REDIRECTS = ("ReqRedir", "CmpltRedir", "UpstreamFwd")
_DRIVER = regex(r"Kernel driver in use: ([\w-]{1,64})")


@fact("lspci")
@record
class Lspci:
    """GPUs and network adapters of the paste, with their links; `device` is the name where no id is.

    `unrated` are the addresses of those without LnkCap: what their links can do is only a lower bound.
    `ports` has the link of the port right above a device, by the device's address, where it is shown.
    """

    devices: tuple[PciDevice, ...]
    unrated: tuple[str, ...] = ()
    ports: Mapping[str, PciLink] = field(default_factory=dict)

    @classmethod
    def parse(cls, observation: Observation) -> Lspci | Unseen:
        """Read one block per device; one without its link's state is left out, unless it is off the bus."""
        shown = list(_shown_devices(observation.text))
        unrated = tuple(device.address for device, has_maximum in shown if not has_maximum)
        return (
            cls(tuple(_rated_devices(shown)), unrated, dict(_ports_above(observation.text)))
            if shown
            else Unseen.of(observation, "Paste the output of `sudo lspci -vv`.")
        )

    def lines_of(self, device: PciDevice) -> tuple[str, ...]:
        """The lines about a device's link that are there."""
        return ("LnkSta",) if device.address in self.unrated else ("LnkCap", "LnkSta")


@fact("lspci", shown=False)
@record
class LspciAcs:
    """Ports of PCIe switches in the paste at which ACS redirects traffic, by address.

    `unplaced` are the settings of lines above the first device: of which bridge they are was filtered out.
    """

    redirecting: tuple[str, ...]
    unplaced: tuple[bool, ...] = ()

    @classmethod
    def parse(cls, observation: Observation) -> LspciAcs | Unseen:
        """Read the blocks of bridges; lines that grep picked have only the first one and ACSCtl."""
        text = observation.text
        ports = tuple(_redirecting_ports(text))
        first = _HEAD.search(text)
        above = text[: first.start()] if first else text
        unplaced = tuple(_redirects(control) for control in _ACS_CONTROL.findall(above))
        return cls(ports, unplaced) if ports or unplaced else Unseen.of(observation)


def _redirecting_ports(text: str) -> Iterator[str]:
    """Ports with a GPU or adapter below them; where grep or -d left out what is below, of known switches."""
    ends = [int(bdf(head[1])[5:7], 16) for head, _ in _blocks(text) if _is_end(head)]
    shown = [int(bdf(head[1])[5:7], 16) for head, _ in _blocks(text)]
    for head, block in _blocks(text):
        control, buses = _ACS_CONTROL.search(block), _BUSES.search(block)
        if not (head["kind"].startswith("PCI bridge") and control):
            continue
        is_port = bool(_SWITCH.search(head["name"]))
        if buses:
            below = range(int(buses[1], 16), int(buses[2], 16) + 1)
            left_out = is_port and not any(bus in below for bus in shown)
            is_port = bool(_DOWNSTREAM.search(block)) and (left_out or any(end in below for end in ends))
        if is_port and _redirects(control[1]):
            yield bdf(head[1])


def _redirects(control: str) -> bool:
    """Whether ACS sends traffic up; what was translated by ATS it lets through with DirectTrans."""
    bits = control.split()
    return any(f"{name}+" in bits for name in _REDIRECTS) and "DirectTrans+" not in bits


def _blocks(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each device's first line, and the lines below it."""
    heads = list(_HEAD.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    for head, end in zip(heads, ends, strict=False):
        yield head, text[head.end() : end]


def _ports_above(text: str) -> Iterator[tuple[str, PciLink]]:
    """The link of the port right above each device, where the paste has both."""
    ports: dict[int, PciLink] = {}
    for _, block in _blocks(text):
        buses, now, most = _BUSES.search(block), _STA.search(block), _CAP.search(block)
        if buses and now and most:
            ports[int(buses[1], 16)] = _read_link(now, most)
    for head, _ in _blocks(text):
        address = bdf(head[1])
        if port := ports.get(int(address[5:7], 16)):
            yield address, port


def _rated_devices(pairs: list[tuple[PciDevice, bool]]) -> Iterator[PciDevice]:
    """The devices; where LnkCap was left out, their links are compared with those of their kind."""
    for device, has_maximum in pairs:
        link = device.link
        if link is None or has_maximum:
            yield device
        else:
            twins = [twin.link for twin, _ in pairs if twin.link and twin.pci_id == device.pci_id]
            yield replace(device, link=_least_maximum(link, twins))


def _kind_and_vendor(head: re.Match[str]) -> tuple[str, str]:
    """What a device is, without the number of its class, and the vendor; "" for others than two."""
    name = head["name"]
    vendor = NVIDIA if "NVIDIA" in name else MELLANOX if "Mellanox" in name else ""
    return re.sub(r" \[[0-9a-f]{4}\]$", "", head["kind"]), vendor


def gpu_rows(text: str) -> dict[str, str]:
    """The name of each NVIDIA GPU by its address; none where virtual functions are among them."""
    heads = [head for head, _ in _blocks(text) if _is_gpu(head)]
    rows = {bdf(head[1]): re.sub(r" \((?:rev|prog-if) .*", "", head["name"]) for head in heads}
    return rows if all(address.endswith(".0") for address in rows) else {}


def _is_gpu(head: re.Match[str]) -> bool:
    kind, vendor = _kind_and_vendor(head)
    return vendor == NVIDIA and _KINDS.get(kind, "").startswith("03")


def _is_end(head: re.Match[str]) -> bool:
    """Whether a device is a GPU or an adapter of NVIDIA or Mellanox."""
    kind, vendor = _kind_and_vendor(head)
    return bool(vendor) and kind in _KINDS


def _shown_devices(text: str) -> Iterator[tuple[PciDevice, bool]]:
    """Each device, and whether it is shown what its link can do."""
    for head, block in _blocks(text):
        kind, vendor = _kind_and_vendor(head)
        name, now, most = head.group("name"), _STA.search(block), _CAP.search(block)
        off_bus = bool(_OFF_BUS.search(name) or _OFF_BUS.search(block))
        if _is_end(head) and (now or off_bus):
            ids, driver = _IDS.search(name), _DRIVER.search(block)
            device = PciDevice(
                bdf(head.group(1)),
                vendor,
                ids[2] if ids else re.sub(r" \((?:rev|prog-if) [0-9a-f]{2}[^)]*\)", "", name).strip(),
                _KINDS[kind],
                driver=driver[1] if driver else None,
                link=_read_link(now, most) if now else None,
                config="ff" * 64 if off_bus else "",
            )
            yield device, most is not None


def _read_link(now: re.Match[str], most: re.Match[str] | None) -> PciLink:
    speed, width = float(now["speed"]), int(now["width"])
    if most:
        return PciLink(speed, width, float(most["speed"]), int(most["width"]))
    factors = [_AT_LEAST.get(now[mark] or "") for mark in ("speed_mark", "width_mark")]
    return PciLink(
        speed,
        width,
        speed * factors[0] if factors[0] else None,
        width * factors[1] if factors[1] else None,
    )


def _least_maximum(link: PciLink, twins: list[PciLink]) -> PciLink:
    """The link with at least the speed and lanes that others of its kind have."""
    speed = max(twin.speed_gts or 0.0 for twin in twins)
    width = max(twin.width or 0 for twin in twins)
    return replace(
        link,
        max_speed_gts=max(link.max_speed_gts or 0.0, speed if speed > (link.speed_gts or 0) else 0.0) or None,
        max_width=max(link.max_width or 0, width if width > (link.width or 0) else 0) or None,
    )
