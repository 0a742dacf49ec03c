"""Are all network adapters of this board there, bound to RDMA, of one link type, and linked at full speed?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from nodedoctor.declare.peers import Attribute, odd_ones
from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.pci.pci import DEVICES, Pci, PciDevice, device_evidence
from nodedoctor.facts.rdma.sysfs import CLASS, Hca, Rdma
from nodedoctor.grouping import group_by
from nodedoctor.knowledge.infiniband import rails_of
from nodedoctor.model import Finding, Fix, file_reading, reading
from nodedoctor.steps import keep, look
from nodedoctor.wording import count_with_noun, singular_or_plural

_GIVEN_AWAY = frozenset({"vfio-pci", "pciback", "pci-stub"})
"""Kernel drivers that hold a device for a virtual machine."""
_ODD_PART = 4
"""At most one GPU in so many may have fewer adapters than the others, or the machine is built like that."""


@check("nic.inventory", "NICs present and linked", tags={"fast", "ib", "pcie"}, stage="preview")
def inventory(
    pci: Pci, rdma: Rdma | None, board: Board | None, container: Container | None
) -> Iterator[Finding]:
    """RDMA NICs on the PCI bus: as many next to each GPU as next to the others, and as many as the board has.

    NICs on the bus against those with an RDMA device, their link type, and the PCIe speed of each NIC and of
    the switch above it, against peers. Counts per board are rows of knowledge.infiniband.
    Why: a job still runs with seven of eight NICs, or with one at half speed or in the wrong mode; every
    collective between nodes then waits for the shared or slow one.
    Fix disturbs: every job on the node (reboot or reseating).
    Judges: WARN when rails are missing against the board, an adapter has no RDMA device, is of another link
    type, or its PCIe link is slow.
    Fix: Check the adapter on the PCI bus, its driver and mode, and reseat it.
    Threshold: Rails per board in the ib table; PCIe speed and width against like adapters.
    False positives: Boards sold with fewer adapters; adapters given to virtual machines are not counted.
    Error texts:
    - NET/IB : No device found.
    """
    nics = [device for device in pci.mellanox_nics if device.driver not in _GIVEN_AWAY]
    if not nics:
        yield Finding.skip("no ConnectX or BlueField adapter on the PCI bus")
        return
    near = beside(pci, nics)
    findings = list(_missing_rails(pci, nics, near, board))
    if rdma is not None and not (container and container.inside):
        findings += _without_rdma(nics, rdma)
    if rdma is not None:
        findings += _other_link(nics, near, rdma, board)
    findings += _slow_links(nics)
    findings += _slow_switches(pci, nics)
    yield from findings
    if not any(finding.severity.is_problem for finding in findings):
        yield Finding.ok(_device_counts(nics, rdma))


def _device_counts(nics: Sequence[PciDevice], rdma: Rdma | None) -> str:
    devices = f", {count_with_noun(len(rdma.hcas), 'RDMA device')}" if rdma else ""
    netdevs = sum(bool(hca.netdevs) for hca in rdma.hcas) if rdma else 0
    return f"{count_with_noun(len(nics), 'NIC function')} on the PCI bus{devices}" + (
        f", {netdevs} of them with a network interface" if netdevs else ""
    )


def beside(pci: Pci, nics: Sequence[PciDevice]) -> dict[str, tuple[PciDevice, ...]]:
    """The adapters that share a PCIe switch with each GPU.

    Empty where no GPU shares a switch with an adapter: then places say nothing (virtual machines, boards
    without switches).
    """
    by_gpu = {gpu.address: tuple(nic for nic in nics if gpu.shares_switch(nic)) for gpu in pci.gpus}
    return by_gpu if any(by_gpu.values()) else {}


def _missing_rails(
    pci: Pci, nics: Sequence[PciDevice], near: dict[str, tuple[PciDevice, ...]], board: Board | None
) -> Iterator[Finding]:
    """A GPU that has fewer adapters under its switch than nearly all others, else too few for the board."""
    if pci.incomplete or (board is not None and board.virtual):
        return  # a device that cannot be read may be the adapter; what a guest was given is its host's choice
    counts = {address: len(adapters) for address, adapters in near.items()}
    usual, often = Counter(counts.values()).most_common(1)[0] if counts else (0, 0)
    poor = [address for address, count in counts.items() if count < usual]
    if poor and often > 2 and len(poor) * _ODD_PART <= len(counts):
        evidence = [reading("pci", f'links["{DEVICES}/{address}"]') for address in poor]
        evidence += [
            reading("pci", f'links["{DEVICES}/{nic.address}"]')
            for adapters in near.values()
            for nic in adapters[:1]
        ][:3]
        who, few = ", ".join(poor), counts[poor[0]]
        summary = (
            f"GPU {who}: {count_with_noun(few, 'NIC')} under its PCIe switch, "
            f"{count_with_noun(often, 'GPU')} with {usual}"
        )
        yield Finding.warn(summary, subject="nic:rails", evidence=evidence, fix=_lost_adapters())
        return
    row = rails_of(board.model) if board and board.model else ()
    has_platform = board is not None and board.known_platform is not None
    if poor or not row or not has_platform or board is None or board.virtual is not False:
        return
    platform = board.known_platform
    if platform is None or (board.on_bus or 0) != platform.gpus:
        return
    rails = {nic.address for adapters in near.values() for nic in adapters} if near else set()
    kinds = Counter(nic.pci_id for nic in nics if not rails or nic.address in rails)
    kind, count = kinds.most_common(1)[0]
    wanted = min(one.compute_ports for one in row)
    # Half the rails or fewer is another build of the machine. Where places do not tell rails from storage
    # adapters of the same kind, only one less than all is a loss.
    least = wanted * 3 // 4 if rails else wanted - 1
    if least <= count < wanted:
        evidence = [one for nic in nics if nic.pci_id == kind for one in device_evidence(nic, "device")]
        summary = (
            f"{count_with_noun(count, 'NIC')} ({kind}) for {platform.gpus} GPUs, {row[0].platform} "
            f"has {wanted}"
        )
        yield Finding.warn(summary, subject="nic:rails", evidence=evidence, fix=_lost_adapters())


def _lost_adapters() -> Fix:
    return Fix(
        "A NIC may have fallen off the bus: check the kernel log and the firmware's device list, then "
        "power-cycle the node. If it is still missing, replace the NIC, its riser or cable.",
        (look("lspci -tv"), look("sudo dmesg | grep -iE 'pcieport|mlx5_core|aer'"), keep("sudo lspci -vvv")),
        "drain",
        "every job on this node",
        "nodedoctor nic.inventory",
    )


def _card_address(address: str) -> str:
    """The card: all its functions have one place."""
    return address.rpartition(".")[0]


def _without_rdma(nics: Sequence[PciDevice], rdma: Rdma) -> Iterator[Finding]:
    """Functions on the bus that have no RDMA device while most of their kind have one.

    Two ports of one card may be bonded into one RDMA device, so a card counts once.
    """
    served = {_card_address(hca.pci_address) for hca in rdma.hcas if hca.pci_address}
    for nic in nics:
        peers = [peer for peer in nics if peer.pci_id == nic.pci_id and peer is not nic]
        having = sum(_card_address(peer.address) in served for peer in peers)
        if _card_address(nic.address) in served or having < 2 or having * 2 <= len(peers):
            continue
        bound = f"driver {nic.driver}" if nic.driver else "no kernel driver bound"
        evidence = device_evidence(nic, "device", "driver")
        fix = Fix(
            "Check the kernel log for the reason why it has no RDMA device; load mlx5_ib.",
            (look("rdma link"), look("sudo dmesg | grep {}", nic.address)),
            "investigate",
            "traffic on this NIC",
            "nodedoctor nic.inventory",
        )
        summary = (
            f"no RDMA device ({bound}); {count_with_noun(having, 'peer')} "
            f"{singular_or_plural(having, 'has', 'have')} one"
        )
        yield Finding.warn(summary, subject=f"pci:{nic.address}", evidence=evidence, fix=fix)


def _other_link(
    nics: Sequence[PciDevice], near: dict[str, tuple[PciDevice, ...]], rdma: Rdma, board: Board | None
) -> Iterator[Finding]:
    """A rail in Ethernet mode among InfiniBand rails, or the other way round.

    Only among adapters of which each GPU has its own: an adapter of the same kind may serve storage.
    """
    places = {nic.address for adapters in near.values() for nic in adapters}
    gpus = (board.on_bus or board.shown) if board else 0
    rails = [
        hca
        for hca in rdma.hcas
        if hca.physfn is None and hca.ports and hca.pci_address in (places or {nic.address for nic in nics})
    ]
    kinds = group_by(rails, lambda hca: hca.hca_type)
    for like in kinds.values():
        if not gpus or len(like) != gpus:
            continue
        link: tuple[Attribute[Hca], ...] = (Attribute("link type", "identity", _link_layer),)
        for diff in odd_ones(like, link):
            hca = diff.device
            evidence = [
                file_reading("rdma", f"{CLASS}/{hca.name}/ports/{port.number}/link_layer")
                for port in hca.ports
            ]
            fix = Fix(
                "Set the port's link type to that of its peers, and reset the NIC or reboot.",
                (look("sudo mlxconfig -d {} query LINK_TYPE_P1", hca.pci_address or hca.name),),
                "config",
                "traffic on this NIC",
                "nodedoctor nic.inventory",
            )
            summary = (
                f"{hca.name}: link type {diff.value}, {count_with_noun(diff.peers, 'peer')}: {diff.usual}"
            )
            yield Finding.warn(summary, subject=f"hca:{hca.name}", evidence=evidence, fix=fix)


def _link_layer(hca: Hca) -> object:
    layers = {port.link_layer for port in hca.ports}
    return layers.pop() if len(layers) == 1 else None


def _link_speed(device: PciDevice) -> object:
    return device.link.speed_gts if device.link else None


_FASTER: tuple[Attribute[PciDevice], ...] = (Attribute("PCIe speed", "capability", _link_speed),)


def _slow_links(nics: Sequence[PciDevice]) -> Iterator[Finding]:
    """Adapters whose link is slower than what it can be and than the links of most of their kind."""
    for kind in dict.fromkeys(nic.pci_id for nic in nics):
        like = [nic for nic in nics if nic.pci_id == kind]
        for diff in odd_ones(like, _FASTER):
            link = diff.device.link
            able = link is not None and (link.max_speed_gts or 0) > (link.speed_gts or 0)
            if able and _is_less(diff.value, diff.usual):
                yield _slow_link(diff.device, diff.value, diff.usual, diff.peers, "adapters")


def _is_less(value: object, usual: object) -> bool:
    return isinstance(value, (int, float)) and isinstance(usual, (int, float)) and value < usual


def _slow_switches(pci: Pci, nics: Sequence[PciDevice]) -> Iterator[Finding]:
    """The link of a PCIe switch to the host, by which everything beneath it goes, against like switches.

    Below a root port come the switch's upstream and downstream port by turns; only the upstream port's link
    carries all. Downstream ports above a GPU follow its idle speed and say nothing.
    """
    ends = (*nics, *pci.gpus)
    places = dict.fromkeys(place for end in ends if len(end.upstream) % 2 for place in end.upstream[1::2])
    ports = [port for place in places if (port := pci.at(place)) is not None and port.link]
    for kind in dict.fromkeys(port.pci_id for port in ports):
        like = [port for port in ports if port.pci_id == kind]
        for diff in odd_ones(like, _FASTER):
            if _is_less(diff.value, diff.usual) and diff.peers > 2:
                yield _slow_link(diff.device, diff.value, diff.usual, diff.peers, "PCIe switches")
        lanes: tuple[Attribute[PciDevice], ...] = (Attribute("PCIe width", "capability", _link_width),)
        for diff in odd_ones(like, lanes):
            if _is_less(diff.value, diff.usual) and diff.peers > 2:
                port = diff.device
                evidence = device_evidence(port, "current_link_width", "max_link_width")
                summary = (
                    f"PCIe switch uplink x{diff.value}, {count_with_noun(diff.peers, 'peer')}: x{diff.usual}"
                )
                yield Finding.warn(
                    summary, subject=f"pci:{port.address}/width", evidence=evidence, fix=_reseat_fix(port)
                )


def _link_width(device: PciDevice) -> object:
    return device.link.width if device.link else None


def _slow_link(device: PciDevice, value: object, usual: object, peers: int, what: str) -> Finding:
    evidence = device_evidence(device, "current_link_speed", "max_link_speed")
    summary = f"PCIe link at {value:g} GT/s, {count_with_noun(peers, 'peer')} at {usual:g} GT/s"
    return Finding.warn(summary, subject=f"pci:{device.address}", evidence=evidence, fix=_reseat_fix(device))


def _reseat_fix(device: PciDevice) -> Fix:
    return Fix(
        "Reboot; if the link is still slow, reseat card, riser or cable, and check the slot's BIOS setting.",
        (
            look("sudo lspci -s {} -vv | grep -E 'LnkCap:|LnkSta:'", device.address),
            look("sudo dmesg | grep -iE 'aer|pcieport'"),
        ),
        "drain",
        "every job on this node",
        "nodedoctor nic.inventory",
    )
