"""Which GPUs this node has, which of them we may use, and which the driver really gives us.

The PCI bus is not namespaced: a container or a job sees every GPU of the host there. What it may use follows
from the device nodes it has and from what the device cgroup allows on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from nodedoctor.declare.registry import fact
from nodedoctor.facts.driver.driver import DeviceNode, Driver, DriverGpu
from nodedoctor.facts.driver.nvidia_presence import NONE_HERE, looked, signs
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.pci.pci import GIVEN_AWAY, Pci, PciDevice
from nodedoctor.model import Unseen
from nodedoctor.record import record, replace

Right = Literal["granted", "withheld", "refused", "unknown"]
"""Granted to us; withheld by the device cgroup or because it has no node; refused by the node's mode."""


CONTROL = "/dev/nvidiactl"
_NOT_THE_DRIVERS = frozenset({"NO_ANSWER", "CRASH", "NOT_ASKED"})
"""Words of ours for GPUs of which a source did not come to an end (`gpu.LostGpu`)."""


@record
class Slot:
    """One GPU on the bus. `index` is NVML's, None where it does not show this GPU.

    `lost` is then its error, and `lost_index` the number under which NVML counts it, where that is certain.
    """

    address: str
    pci_id: str
    bound_to: str | None
    off_bus: bool
    right: Right
    index: int | None = None
    lost: str | None = None
    excluded: bool = False
    lost_index: int | None = None

    @property
    def given_away(self) -> bool:
        """Whether it belongs to a virtual machine."""
        return self.bound_to in GIVEN_AWAY


@fact(Pci, Driver, Gpus, Container)
@record
class Inventory:
    """GPUs on the bus, each with our right to it and the driver's answer for it.

    `slots` is None where the bus cannot be seen (Tegra, pasted texts). `shown` is how many GPUs the driver
    shows, None when it did not answer; `nodes` how many GPU nodes we may use, None when that was not looked
    at. `restricted` is true in a container or a job's cgroup. `cut_off` says that the device cgroup refuses
    even /dev/nvidiactl, which no job or container that was given GPUs, or none, sees by design. `looked` is
    false for pasted texts: neither bus nor files tell whether there should be GPUs. `windows_driver` is false
    under WSL2 when Windows has lent no NVIDIA libraries. `unplaced` are the indices of GPUs that NVML
    gives no address of: it cannot open them, or they do not answer. `partly` says why there may be more GPUs
    than these; `bus_readable` is false where a device on the bus cannot be read, which may be one.
    """

    slots: tuple[Slot, ...] | None
    shown: int | None
    nodes: int | None = None
    nvswitches: int = 0
    restricted: bool = False
    cut_off: bool = False
    looked: bool = True
    platform: Literal["wsl2", "tegra"] | None = None
    windows_driver: bool = True
    signs: tuple[str, ...] = ()
    unplaced: tuple[int, ...] = ()
    partly: Unseen | None = None
    bus_readable: bool = True

    @classmethod
    def parse(
        cls, pci: Pci | Unseen, driver: Driver | Unseen, gpus: Gpus | Unseen, container: Container | Unseen
    ) -> Inventory | Unseen:
        """Put bus, nodes and the driver's list together; unseen only where nothing at all was looked at."""
        if isinstance(gpus, Unseen) and not looked(pci, driver):
            return gpus
        inside = isinstance(container, Container) and container.inside
        files = driver if isinstance(driver, Driver) else None
        shown = gpus if isinstance(gpus, Gpus) else None
        slots = (
            tuple(_gpu_slot(gpu, files, shown, inside) for gpu in pci.gpus) if isinstance(pci, Pci) else None
        )
        slots = _with_errors(slots, shown) if slots and shown else slots
        withheld = any(slot.right == "withheld" for slot in slots or ())
        return cls(
            slots=slots,
            shown=len(shown.answering) if shown else None,
            nodes=sum(node.usable for node in files.gpu_nodes) if files else None,
            nvswitches=len(pci.nvswitches) if isinstance(pci, Pci) else 0,
            restricted=inside or withheld,
            cut_off=_cut_off(files),
            looked=looked(pci, driver),
            platform=files.platform if files else None,
            windows_driver=not files or files.platform != "wsl2" or bool(files.libraries),
            signs=signs(pci, driver),
            unplaced=_unplaced_gpus(shown),
            partly=next((fact for fact in (pci, driver) if isinstance(fact, Unseen)), None),
            bus_readable=not (isinstance(pci, Pci) and pci.incomplete),
        )

    def devices(self) -> Iterator[tuple[str, ...]]:
        """Each GPU's names where the driver does not give both: NVML counts in the order of addresses."""
        slots = sorted(self.slots or (), key=lambda slot: slot.address)
        if self.shown is None:
            pairs = list(enumerate(slots))
        else:
            unseen = [
                slot for slot in slots if slot.index is None and not slot.excluded and not slot.given_away
            ]
            pairs = (
                list(zip(self.unplaced, unseen, strict=False)) if len(unseen) == len(self.unplaced) else []
            )
        for index, slot in pairs:
            yield f"gpu:{index}", f"pci:{slot.address}"

    def headline(self) -> dict[str, int]:
        """How many GPUs are on the bus, answering or not; that there is none, where that is certain."""
        return {"gpus": 0} if self.none_here else {"gpus_on_bus": len(self.slots)} if self.slots else {}

    @property
    def none_here(self) -> bool:
        """Nothing of NVIDIA's was found where one can look without a driver, and no source shows a GPU."""
        return self.looked and self.partly is None and not self.signs and not self.shown

    @property
    def none_by_design(self) -> str | None:
        """Why it is right that the driver shows us no GPU; None when it is not right."""
        slots = self.slots or ()
        if self.none_here:
            return NONE_HERE
        if self.shown or self.cut_off or self.ours:
            return None
        if slots and all(slot.given_away for slot in slots):
            return f"all {len(slots)} GPUs are bound to {slots[0].bound_to}: they belong to virtual machines"
        if slots and self.restricted and all(slot.right == "withheld" or slot.given_away for slot in slots):
            return f"this container or job was given none of the {len(slots)} GPUs of the host"
        if self.platform == "tegra":
            return "Tegra (Jetson): its GPU is part of the chip, not on the PCI bus, and unknown to NVML"
        return None if self.windows_driver else "WSL2 whose Windows has no NVIDIA driver"

    @property
    def ours(self) -> tuple[Slot, ...]:
        """The GPUs that should work for us: not given to virtual machines, and granted as far as we know."""
        slots = (slot for slot in self.slots or () if not slot.given_away)
        return tuple(slot for slot in slots if slot.right in ("granted", "refused") or slot.lost)

    @property
    def missing(self) -> tuple[Slot, ...]:
        """Those of ours that the driver does not show, less those an administrator hid."""
        return tuple(slot for slot in self.ours if slot.index is None and not slot.excluded)


def _unplaced_gpus(gpus: Gpus | None) -> tuple[int, ...]:
    """The GPUs whose place on the bus the driver does not tell, by index."""
    if gpus is None:
        return ()
    indexes = [gpu.index for gpu in gpus.answering if not gpu.bus_id]
    indexes += [entry.index for entry in gpus.lost if entry.index is not None and not entry.bus_id]
    return tuple(sorted(indexes))


def _with_errors(slots: tuple[Slot, ...], gpus: Gpus) -> tuple[Slot, ...]:
    """Give GPUs that could not be opened and have no address their places: NVML counts in order of addresses.

    Only where as many places are free as GPUs failed, and each failed with an error of the driver.
    """
    failed = sorted((gpu for gpu in gpus.lost if not gpu.bus_id), key=lambda gpu: gpu.index or 0)
    unseen = (slot for slot in slots if slot.index is None and not slot.lost)
    free = sorted(slot.address for slot in unseen if not (slot.excluded or slot.given_away))
    if len(failed) != len(free) or any(gpu.index is None or gpu.error in _NOT_THE_DRIVERS for gpu in failed):
        return slots
    by_address = dict(zip(free, failed, strict=True))
    return tuple(
        replace(slot, lost=gpu.error, lost_index=gpu.index) if (gpu := by_address.get(slot.address)) else slot
        for slot in slots
    )


def _gpu_slot(device: PciDevice, driver: Driver | None, gpus: Gpus | None, inside: bool) -> Slot:
    driver_gpu = next((gpu for gpu in driver.gpus if gpu.bus_id == device.address), None) if driver else None
    shown = next((gpu for gpu in gpus.answering if gpu.bus_id == device.address), None) if gpus else None
    lost_gpu = next((entry for entry in gpus.lost if entry.bus_id == device.address), None) if gpus else None
    hidden = bool(driver_gpu and driver_gpu.excluded) or bool(gpus and device.address in gpus.excluded)
    return Slot(
        address=device.address,
        pci_id=device.pci_id,
        bound_to=device.driver,
        off_bus=device.off_bus,
        right="granted" if shown else _access_right(driver, driver_gpu, inside),
        index=shown.index if shown else None,
        lost=lost_gpu.error if lost_gpu else None,
        lost_index=lost_gpu.index if lost_gpu else None,
        excluded=hidden,
    )


def _access_right(driver: Driver | None, gpu: DriverGpu | None, inside: bool) -> Right:
    """What we may do with a GPU that the driver does not show us."""
    if driver is None:
        return "unknown"
    if inside and not driver.gpu_nodes:
        return "withheld"  # a container that was given no GPU at all
    node = driver.node(gpu.minor) if gpu and gpu.minor is not None else None
    if node is not None:
        return _right_to(node)
    if inside:
        return "unknown" if gpu is None else "withheld"
    # On the host nodes are made when they are needed: where one is missing, those there are speak for it.
    rights: set[Right] = {_right_to(gpu_node) for gpu_node in driver.gpu_nodes} or {"granted"}
    if len(rights) == 1:
        return rights.pop()
    return "granted" if driver.gpus else "unknown"


def _right_to(node: DeviceNode) -> Right:
    if node.usable:
        return "granted"
    return "withheld" if node.refused_by == "cgroup" else "refused"


def _cut_off(driver: Driver | None) -> bool:
    control = next((node for node in driver.nodes if node.path == CONTROL), None) if driver else None
    return control is not None and control.refused_by == "cgroup"
