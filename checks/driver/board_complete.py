"""Has the board lost a GPU from the bus, or the driver the library that programs load?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.machine import Machine
from nodedoctor.knowledge.fixes.recipes import package_tool
from nodedoctor.knowledge.gpus import platforms_of
from nodedoctor.knowledge.nvml_errors import OFF_THE_BUS
from nodedoctor.model import Evidence, Finding, Fix, Step
from nodedoctor.steps import look, repair


@check(
    "driver.board-complete",
    "The board has as many GPUs as it ships with",
    tags={"fast", "gpu"},
    stage="preview",
)
def board_complete(board: Board, inventory: Inventory) -> Iterator[Finding]:
    """GPUs on the PCI bus against the numbers in which boards of their model ship.

    Modules come in boards of two, four, eight or sixteen; three, five, six or seven are a board that lost
    some. Whole boards are counted, so a machine with fewer boards is none of this check's business.
    Why: a GPU that left the bus is in no list, and a job that asks for eight GPUs waits for ever.
    Fix disturbs: every job on the node: it takes a power cycle.
    Judges: FAIL when a module board shows fewer GPUs than its model ever ships with; WARN where that is
    likely.
    Fix: Power cycle the node; if the GPU stays away, request a replacement.
    Threshold: Board sizes per model are in the gpus table, from data sheets.
    False positives: A virtual machine or a container that was given a part of a board; a board size that the
    table lacks.
    """
    model = board.known_model
    count = board.on_bus
    if model is None or not (boards := platforms_of(model)) or model.form == "pcie":
        yield Finding.skip("these GPUs are not modules of a board, or of a model that is not known")
        return
    if count is None:
        yield Finding.unknown("not-visible-here", "how many GPUs are on the PCI bus cannot be seen here")
        return
    whole = max((one.gpus for one in boards if one.gpus), default=0)
    # Every count that a board, or some equal part of one given to a guest, can have.
    parts = {one.gpus // part for one in boards for part in (1, 2, 4, 8, 16) if one.gpus % part == 0}
    if count in parts or count > whole:
        yield Finding.ok(f"{count} GPUs, as {model.name} ships" if count > 1 else "one GPU")
        return
    if inventory.nvswitches and board.virtual is False:
        yield Finding.skip("judged by driver.gpus-present: the NVSwitches of the board are on the bus")
        return
    wanted = min(one.gpus for one in boards if one.gpus > count)
    slots = [slot.address for slot in inventory.slots or ()]
    said = [Evidence("pci", f"{len(slots)} GPUs on the bus: {', '.join(slots)}")]
    if board.virtual is False:
        summary = f"{count} of {wanted} GPUs on the PCI bus: {model.name} never ships in {count}"
        yield Finding.fail(summary, evidence=said, fix=OFF_THE_BUS)
    else:
        summary = f"{count} GPUs on the PCI bus; {model.name} comes in {wanted}: one may be lost"
        yield Finding.warn(summary, evidence=said, fix=OFF_THE_BUS)


_CUDA, _NVML = "libcuda.so.1", "libnvidia-ml.so.1"


@check(
    "driver.libcuda", "The library that CUDA programs load is there", tags={"fast", "gpu"}, stage="preview"
)
def libcuda(
    driver: Driver, board: Board | None, container: Container | None, machine: Machine | None
) -> Iterator[Finding]:
    """libcuda.so.1 beside the driver's other libraries, where the loader looks for it.

    Judged only where NVML's library of the same driver lies in one of those folders: then the driver's
    libraries are kept there, and a missing one is missing.
    Why: without it no CUDA program starts, although nvidia-smi shows every GPU.
    Fix disturbs: nothing.
    Judges: FAIL when NVML's library is in a folder of the loader and libcuda.so.1 of the same driver is not.
    Fix: Install the driver package that holds libcuda, or start the container with the compute capability.
    Threshold: No threshold.
    False positives: A driver whose libraries are kept in several folders.
    Error texts:
    - libcuda.so.1: cannot open shared object file: No such file or directory
    """
    there = {library.name for library in driver.libraries}
    inside = container is not None and container.inside
    if _CUDA in there:
        yield Finding.ok("libcuda.so.1 is there")
    elif not driver.loaded or driver.platform is not None:
        yield Finding.skip("no driver of the usual kind is loaded")
    elif _NVML not in there:
        yield Finding.skip("the driver's libraries are kept elsewhere: none is in the usual folders")
    elif driver.errors:
        unread = ", ".join(sorted(driver.errors)[:3])
        yield Finding.unknown("not-visible-here", f"files could not be read: {unread}")
    elif inside:
        yield Finding.info("this container was given no compute libraries: it can watch GPUs, not use them")
    else:
        where = next(library.folder for library in driver.libraries if library.name == _NVML)
        said = [Evidence("driver-files", f"{where}: {_NVML} and no {_CUDA}")]
        summary = "libcuda.so.1 is missing: no CUDA program can start"
        yield Finding.fail(summary, evidence=said, fix=_package(machine))


def _package(machine: Machine | None) -> Fix:
    """Install it again, of the version that is loaded.

    On Ubuntu libcuda and NVML's library are of one package, whose name has branch and flavour or not
    (libnvidia-compute-580-server, libnvidia-compute): whoever owns the one lacks the other. Elsewhere:
    packages.debian.org, the driver installation guide.
    """
    distribution = machine.distro_id if machine else None
    steps: list[Step] = [look("ldconfig -p | grep -E 'libcuda|libnvidia-ml'")]
    if distribution == "ubuntu":
        steps.append(
            repair(
                "dpkg-query -S libnvidia-ml.so.1 | cut -d: -f1 | sort -u "
                "| xargs -r sudo apt-get install --reinstall -y"
            )
        )
    elif distribution == "debian":
        steps.append(repair("sudo apt-get install --reinstall libcuda1"))
    elif package_tool(distribution) == "dnf":
        steps.append(repair("sudo dnf reinstall nvidia-driver-cuda-libs"))
    return Fix(
        "Install the driver's compute libraries, in the version of the loaded module.",
        tuple(steps),
        "config",
        "nothing",
        "nodedoctor driver.libcuda",
        "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",
    )
