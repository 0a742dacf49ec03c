"""GPU models and the boards they come on: what a healthy one looks like.

Bandwidths are GB/s (10^9 bytes) in one direction. A number that is None is not known, never zero.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.record import record

_MIG_SUFFIX = re.compile(r"(?<!\s)\s+MIG\s+\S+$")
_FOR_PEOPLE = ("GeForce", "TITAN", "Laptop GPU", "RTX", "Quadro")
"""NVIDIA's names of cards that are no data centre's."""
_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{4})(?:10de)?$", re.IGNORECASE)


@record
class GpuModel:
    """One model. `product` is the name NVML prints, `pci_ids` are device ids below vendor 10de.

    `nvlink_links` is the count of a complete card, 0 without NVLink; with `nvlink_optional` a card without a
    bridge is healthy too. `topo_token` is what `nvidia-smi topo -m` shows between two of them on a switched
    board. `p2p` is False where the driver refuses peer access.
    """

    name: str
    product: str
    name_regexes: tuple[str, ...]
    pci_ids: tuple[str, ...]
    kind: str
    form: str
    architecture: str
    compute_capability: tuple[int, int]
    pcie_gen: int
    pcie_width: int
    memory_bandwidth_gbps: float | None = None
    bf16_tflops: float | None = None
    nvlink_gen: int = 0
    nvlink_links: int = 0
    nvlink_optional: bool = False
    nvlink_link_gbps: float | None = None
    nvlink_link_raw_gbps: float | None = None
    nvlink_total_gbps: float | None = None
    topo_token: str = ""
    p2p: bool = True
    slowdown_c: int | None = None
    max_operating_c: int | None = None
    ecc_expected: bool = False

    @property
    def datacentre(self) -> bool:
        """True for the cards whose makers promise ECC, persistence and service."""
        return self.kind == "datacentre"


@record
class Platform:
    """A board: how many GPUs, how they reach each other, and whether this host runs a fabric manager.

    `fabric_manager` is `needed`, `none`, or `elsewhere` (in the rack's switch trays). `fabric_state` tells
    whether NVML reports a fabric registration that must complete (Hopper and newer on NVSwitch).
    """

    name: str
    models: tuple[str, ...]
    gpus: int
    fabric_manager: str
    nvswitches: int = 0
    switches_on_host_bus: bool = False
    fabric_state: bool = False
    imex: bool = False
    topo_token: str = ""


@record
class Layout:
    """Where the eight GPUs of a machine sit on the PCI bus."""

    name: str
    positions: tuple[str, ...]


@record
class NvSwitch:
    """A switch chip that shows on the host's PCI bus; `pci_id` is the device id below vendor 10de."""

    name: str
    pci_id: str


models = cached_rows("gpus", "models", GpuModel)
platforms = cached_rows("gpus", "platforms", Platform)
layouts = cached_rows("gpus", "layouts", Layout)
"""The known places of eight GPUs."""
nvswitches = cached_rows("gpus", "nvswitches", NvSwitch)
"""The switch chips a host can see."""


@lru_cache(maxsize=64)  # a run asks for the same few hundreds of times
def gpu_model(name: str, pci_id: str = "") -> GpuModel | None:
    """The model behind the name NVML prints (a MIG suffix is ignored), else behind a PCI device id.

    Ids are accepted as `2330`, `0x2330`, `10de:2330` and NVML's `0x233010DE`.
    """
    plain = _MIG_SUFFIX.sub("", name.strip())
    for model in models():
        if any(re.search(regex, plain) for regex in model.name_regexes):
            return model
    device = _device_id(pci_id)
    return next((model for model in models() if device in model.pci_ids), None)


def is_datacentre(name: str, pci_id: str = "") -> bool:
    """Whether it is a data centre's model, or one that neither the table nor its name tells of."""
    model = gpu_model(name, pci_id)
    return model.datacentre if model else not any(word in name for word in _FOR_PEOPLE)


def platforms_of(model: GpuModel) -> tuple[Platform, ...]:
    """Every board this model is known to come on, the usual one first; empty for plain PCIe cards."""
    return tuple(board for board in platforms() if model.name in board.models)


def are_cards(names: Collection[str]) -> bool:
    """Whether all these names are models of PCIe cards, which no NVSwitch connects."""
    return bool(names) and all((model := gpu_model(name)) and model.form == "pcie" for name in names)


def platform(model: GpuModel, gpus: int = 0, nvswitches: int = 0) -> Platform | None:
    """The likeliest board for what the host shows; None for plain PCIe cards.

    Switches on the bus decide. Otherwise the count of GPUs does: four may be a four-GPU board or a part
    of an eight-GPU one handed to a virtual machine, so do not fail a node on this guess alone.
    """
    boards = platforms_of(model)
    if nvswitches:
        boards = tuple(board for board in boards if board.nvswitches) or boards
    return next((board for board in boards if board.gpus == gpus), boards[0] if boards else None)


def is_nvswitch(pci_id: str) -> bool:
    """Whether a PCI device id (vendor 10de) is an NVSwitch."""
    device = _device_id(pci_id)
    return any(device == switch.pci_id for switch in nvswitches())


def _device_id(pci_id: str) -> str:
    match = _HEX.match(pci_id.strip().lower().removeprefix("10de:"))
    return match.group(1).lower() if match else ""
