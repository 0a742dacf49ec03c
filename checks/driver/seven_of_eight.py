"""Is a GPU missing where eight belong, as far as the driver's own list tells?"""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor.facts.gpu.evidence import values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.knowledge.gpus import gpu_model, layouts, platforms_of
from nodedoctor.knowledge.nvml_errors import OFF_THE_BUS
from nodedoctor.model import Evidence, Finding

_BOARD_SIZE = 8


def one_missing(inventory: Inventory, gpus: Gpus) -> list[Finding]:
    """One GPU fewer than a board of eight modules has, in a whole printed table and nothing else.

    Fewer are mostly a job's share. A list with a gap in its numbers was damaged on its way here. Where
    more than a table is seen, driver.board-complete asks the bus: a bus not read makes no failure.
    """
    shown = gpus.answering
    is_complete = gpus.counted == len(shown) and [gpu.index for gpu in shown] == list(range(_BOARD_SIZE - 1))
    if inventory.slots is not None or inventory.restricted or gpus.lost or not is_complete:
        return []
    if not all(gpu.printed and _is_module(gpu) for gpu in shown):
        return []
    summary = f"{len(shown)} GPUs, boards of this model have {_BOARD_SIZE}"
    places = {gpu.bus_id for gpu in shown if gpu.bus_id}
    positions = [layout.positions for layout in layouts() if places.issubset(layout.positions)]
    missing = sorted(set(positions[0]) - places) if positions else []
    if len(missing) != 1:
        return [Finding.fail(summary, evidence=_evidence(gpus, shown[-2:]), fix=OFF_THE_BUS)]
    (address,) = missing
    beside = shown[max(0, positions[0].index(address) - 1) :][:2]
    text = f"{summary}: none at {address}, where such machines have one"
    finding = Finding.fail(text, subject=f"pci:{address}", evidence=_evidence(gpus, beside), fix=OFF_THE_BUS)
    return [finding.led_by(f"GPU {address} is missing")]


def _is_module(gpu: Gpu) -> bool:
    """Whether it sits on a board of eight; older tables cut names off, and only modules are called SXM."""
    model = gpu_model(gpu.name or "", gpu.pci_device_id or "")
    if model is None:
        return not gpu.name and "-SXM" in (gpu.printed or "")
    return any(board.gpus == _BOARD_SIZE for board in platforms_of(model))


def _evidence(gpus: Gpus, some: Iterable[Gpu]) -> list[Evidence]:
    return [quote for gpu in some for quote in values(gpus.source, gpu, "bus_id")]
