"""Which board the GPUs sit on, as far as names, PCI bus and machine tell, and whether with a Grace CPU."""

from __future__ import annotations

from collections import Counter

from nodedoctor.declare.registry import fact
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.knowledge.gpus import GpuModel, Platform, gpu_model, models, platform, platforms, platforms_of
from nodedoctor.model import Unseen
from nodedoctor.record import record


@fact(Gpus, Pci, Machine)
@record
class Board:
    """What the GPUs are and what they sit on.

    `model` is the model they have in common, None when they differ or are not known; `platform` the likeliest
    board, None for plain PCIe cards. `shown` GPUs are in the driver's list, `on_bus` and `nvswitches` on the
    PCI bus: None where the bus, or a device on it, cannot be read. `virtual` is None when nothing tells.
    """

    model: str | None
    platform: str | None
    shown: int
    on_bus: int | None = None
    nvswitches: int | None = None
    virtual: bool | None = None
    arch: str | None = None

    @classmethod
    def parse(cls, gpus: Gpus | Unseen, pci: Pci | Unseen, machine: Machine | Unseen) -> Board | Unseen:
        """Take the driver's names, else the ids on the bus; unseen when there are neither."""
        bus = pci.gpus if isinstance(pci, Pci) else ()
        shown = gpus.answering if isinstance(gpus, Gpus) else ()
        if not shown and not bus:
            unseen = next((fact for fact in (pci, gpus) if isinstance(fact, Unseen) and fact.applies), None)
            return unseen or Unseen.skip("there is no GPU")
        models = [gpu_model(gpu.name or "", gpu.pci_device_id or "") for gpu in shown]
        models = models or [gpu_model("", device.pci_id) for device in bus]
        names = Counter(model.name if model else "" for model in models)
        common = models[0] if len(names) == 1 else None
        switches = len(pci.nvswitches) if isinstance(pci, Pci) else 0
        count = len(bus) or len(shown)
        board = platform(common, count, switches) if common else None
        readable = isinstance(pci, Pci) and not pci.incomplete
        known_machine = machine if isinstance(machine, Machine) else None
        return cls(
            model=common.name if common else None,
            platform=board.name if board else None,
            shown=len(shown),
            on_bus=len(bus) if readable else None,
            nvswitches=switches if readable or switches else None,
            virtual=None if known_machine is None or known_machine.form is None else known_machine.virtual,
            arch=known_machine.arch if known_machine else None,
        )

    @property
    def known_model(self) -> GpuModel | None:
        """The row of the model."""
        return next((model for model in models() if model.name == self.model), None)

    @property
    def known_platform(self) -> Platform | None:
        """The row of the board."""
        return next((board for board in platforms() if board.name == self.platform), None)

    @property
    def tokens(self) -> frozenset[str]:
        """What `topo -m` may show between two GPUs of this model on boards that join all by NVLink."""
        boards = platforms_of(self.known_model) if self.known_model else ()
        return frozenset(board.topo_token for board in boards if board.topo_token)

    @property
    def joined(self) -> bool:
        """True when every pair of these GPUs must have NVLink: a board of SXM modules or a tray."""
        model = self.known_model
        mixed = (
            any(not board.topo_token and board.gpus > 1 for board in platforms_of(model)) if model else True
        )
        return bool(self.tokens) and not mixed

    @property
    def fabric(self) -> bool | None:
        """Whether a fabric manager must run on this host; None when that cannot be seen from here.

        Switches on the bus decide. Without them it is a board that hides them (B200), a part of a board in a
        virtual machine, or a board without any.
        """
        board = self.known_platform
        if board is None or board.fabric_manager != "needed":
            return False if self.model else None
        if self.virtual is not False:
            return None
        if board.switches_on_host_bus:
            return None if self.nvswitches is None else self.nvswitches > 0
        if (self.on_bus or self.shown) >= board.gpus:
            return True
        return None if self.on_bus is None else False


_X86 = ("x86_64", "i686")


@fact(Gpus, Machine, shown=False)
@record
class GraceGpus:
    """The node's GPUs where the CPU may be Grace; on x86 there is none, whatever the driver shows."""

    gpus: Gpus

    @classmethod
    def parse(cls, gpus: Gpus | Unseen, machine: Machine | Unseen) -> GraceGpus | Unseen:
        """The GPUs as they were read, or why there are none to speak of."""
        if isinstance(machine, Machine) and machine.arch in _X86:
            return Unseen.skip("no Grace CPU: this is an x86 host")
        return gpus if isinstance(gpus, Unseen) else cls(gpus)
