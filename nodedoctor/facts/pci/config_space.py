"""What is in configuration space: the trained link, and ACS on the bridges above GPUs and adapters.

Offsets are those of linux, include/uapi/linux/pci_regs.h. Beyond the first 64 bytes only root can read.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import fact
from nodedoctor.facts.pci.lspci import LspciAcs
from nodedoctor.facts.pci.pci import DEVICES, GIVEN_AWAY, Pci, PciDevice
from nodedoctor.model import Evidence, Unseen, reading
from nodedoctor.record import record

_EXPRESS, _ACS = 0x10, 0x000D
_TYPES = {0x4: "root port", 0x5: "upstream port", 0x6: "downstream port"}
_REDIRECTS = {0x04: "ReqRedir", 0x08: "CmpltRedir", 0x10: "UpstreamFwd"}
"""Bits of the ACS control register that send traffic between two devices up to the root complex."""
_DIRECT_TRANSLATED = 0x40
"""The bit that lets requests through whose addresses the device has had translated before (ATS)."""


@record
class Bridge:
    """A bridge above GPUs or network adapters (`beneath`, GPUs first).

    `redirects` are the ACS redirects that are switched on, as lspci names them: empty when there are none,
    None when configuration space could not be read that far. `switch` names the bridges that belong
    together: everything below one upstream port can talk without the host, unless redirected. `lent` are the
    devices beneath that are kept for virtual machines; `ats` says that translated requests pass
    all the same. `control_at` is where its ACS control register is.
    """

    address: str
    kind: str
    beneath: tuple[str, ...]
    redirects: tuple[str, ...] | None
    switch: str | None
    lent: tuple[str, ...] = ()
    ats: bool = False
    control_at: int | None = None

    @property
    def said(self) -> Evidence:
        """Its ACS control register, else as much of its configuration space as could be read."""
        hexed = f'hex["{DEVICES}/{self.address}/config"]'
        if self.control_at is None:
            return reading("pci", f"{hexed}?")
        return reading("pci", f"{hexed}[{2 * self.control_at}:{2 * self.control_at + 4}]")


@fact(Pci, LspciAcs)
@record
class PcieTree:
    """The bridges above GPUs and RDMA adapters, with what ACS does there.

    `pasted` is what `lspci -vv` says of ACS, where the bus itself was not read.
    """

    bridges: tuple[Bridge, ...]
    gpus: int
    adapters: int
    pasted: LspciAcs | None = None

    @classmethod
    def parse(cls, pci: Pci | Unseen, pasted: LspciAcs | Unseen) -> PcieTree | Unseen:
        """Take the ports above every endpoint of interest; each is listed once."""
        if isinstance(pci, Unseen):
            return pci if isinstance(pasted, Unseen) else cls((), 0, 0, pasted)
        endpoints = (*pci.gpus, *pci.mellanox_nics)
        ports = dict.fromkeys(address for device in endpoints for address in device.upstream)
        candidates = (_read_bridge(pci, address, endpoints) for address in ports)
        bridges = tuple(bridge for bridge in candidates if bridge is not None)
        return cls(bridges, len(pci.gpus), len(pci.mellanox_nics))


def _read_bridge(pci: Pci, address: str, endpoints: tuple[PciDevice, ...]) -> Bridge | None:
    device = pci.at(address)
    if device is None:
        return None
    config = config_bytes(device.config)
    beneath = [end for end in endpoints if address in end.upstream]
    control, at = acs_control(config), _acs_at(config)
    return Bridge(
        address=address,
        kind=port_type(config) or "bridge",
        beneath=tuple(end.address for end in beneath),
        redirects=acs_redirects(config),
        switch=_switch_address(pci, device),
        lent=tuple(end.address for end in beneath if end.driver in GIVEN_AWAY),
        ats=bool(control and control & _DIRECT_TRANSLATED),
        control_at=None if at is None else at + 6,
    )


def _switch_address(pci: Pci, device: PciDevice) -> str | None:
    """The upstream port above a downstream port; None where configuration space does not tell types."""
    if port_type(config_bytes(device.config)) != "downstream port" or not device.upstream:
        return None
    return device.upstream[-1]


def config_bytes(text: str) -> bytes:
    """Configuration space from hex; nothing when it is none."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def port_type(config: bytes) -> str | None:
    """Which kind of PCIe port a bridge is; None when that cannot be read."""
    place = _find_capability(config, _EXPRESS)
    if place is None or len(config) < place + 4:
        return None
    return _TYPES.get(_word_at(config, place + 2) >> 4 & 0xF)


def acs_redirects(config: bytes) -> tuple[str, ...] | None:
    """The ACS redirects that are on; empty without the capability, None where it cannot be read."""
    control = acs_control(config)
    return None if control is None else tuple(name for bit, name in _REDIRECTS.items() if control & bit)


def acs_control(config: bytes) -> int | None:
    """The ACS control register; 0 without the capability, None where it cannot be read."""
    if len(config) <= 0x100:
        return None
    place = _acs_at(config)
    if place is None:
        return 0
    return _word_at(config, place + 6) if len(config) >= place + 8 else None


def _acs_at(config: bytes) -> int | None:
    """Where the ACS capability is, None without one."""
    return next((place for place, number in _extended_capabilities(config) if number == _ACS), None)


def _find_capability(config: bytes, wanted: int) -> int | None:
    """Where a capability is; the list may loop on a device that is broken, so every place counts once."""
    if len(config) < 64 or not config[0x06] & 0x10:
        return None
    place, places = config[0x34] & 0xFC, set[int]()
    while place and place not in places and place + 1 < len(config):
        places.add(place)
        if config[place] == wanted:
            return place
        place = config[place + 1] & 0xFC
    return None


def _extended_capabilities(config: bytes) -> Iterator[tuple[int, int]]:
    """Place and number of each extended capability, from offset 0x100 on."""
    place, places = 0x100, set[int]()
    while place >= 0x100 and place not in places and place + 4 <= len(config):
        places.add(place)
        header = int.from_bytes(config[place : place + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return
        yield place, header & 0xFFFF
        place = header >> 20


def _word_at(config: bytes, place: int) -> int:
    return int.from_bytes(config[place : place + 2], "little")
