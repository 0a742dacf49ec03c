"""Has the board lost a GPU from the bus, or the driver the library that programs load?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.pci.pci import slot_said
from nodedoctor.knowledge.fixes.recipes import package_tool
from nodedoctor.knowledge.gpus import platforms_of
from nodedoctor.knowledge.nvml_errors import OFF_THE_BUS
from nodedoctor.model import Finding, Fix, Step, reading
from nodedoctor.steps import look, repair
from nodedoctor.wording import count_with_noun


@check("driver.board-complete", "GPU count of the board", tags={"fast", "gpu"}, stage="preview")
def board_complete(board: Board, inventory: Inventory) -> Iterator[Finding]:
    """The number of GPUs on the PCI bus against the numbers that boards of their model ship with.

    Modules ship on boards of 2, 4, 8 or 16; 3, 5, 6 or 7 means that some are missing. Only whole boards are
    counted, so a machine with fewer boards passes.
    Why: a GPU that left the bus is in no list; a job that requests eight GPUs never starts.
    Fix disturbs: every job on the node (power cycle).
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
        yield Finding.skip("these GPUs are not modules of a board, or the model is unknown")
        return
    if count is None:
        yield Finding.unknown("not-visible-here", "the PCI bus is not visible here")
        return
    largest = max((one.gpus for one in boards if one.gpus), default=0)
    # Every count that a board, or some equal part of one given to a guest, can have.
    parts = {one.gpus // part for one in boards for part in (1, 2, 4, 8, 16) if one.gpus % part == 0}
    if count in parts or count > largest:
        yield Finding.ok(
            f"{count_with_noun(count, 'GPU')}, as {model.name} ships" if count > 1 else "one GPU"
        )
        return
    if inventory.nvswitches and board.virtual is False:
        yield Finding.skip("judged by driver.gpus-present: the NVSwitches of the board are on the bus")
        return
    wanted = min(one.gpus for one in boards if one.gpus > count)
    slots = [slot.address for slot in inventory.slots or ()]
    evidence = [one for slot in slots for one in slot_said(slot, "device")]
    if board.virtual is False:
        summary = f"{count} of {wanted} GPUs on the PCI bus ({model.name} never ships with {count})"
        yield Finding.fail(summary, evidence=evidence, fix=OFF_THE_BUS)
    else:
        summary = (
            f"{count_with_noun(count, 'GPU')} on the PCI bus, {model.name} ships with {wanted}: one "
            "may be missing"
        )
        yield Finding.warn(summary, evidence=evidence, fix=OFF_THE_BUS)


_CUDA, _NVML = "libcuda.so.1", "libnvidia-ml.so.1"


@check("driver.libcuda", "libcuda installed", tags={"fast", "gpu"})
def libcuda(
    driver: Driver, board: Board | None, container: Container | None, machine: Machine | None
) -> Iterator[Finding]:
    """libcuda.so.1 next to the driver's other libraries, where the loader looks for it.

    Judged only where the same driver's NVML library is in one of those folders: the driver's libraries
    are then installed there, and libcuda should be too.
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
        yield Finding.ok("libcuda.so.1 is installed")
    elif not driver.loaded or driver.platform is not None:
        yield Finding.skip("no regular NVIDIA driver is loaded")
    elif _NVML not in there:
        yield Finding.skip("the driver's libraries are in none of the usual folders")
    elif driver.errors:
        unread = ", ".join(sorted(driver.errors)[:3])
        yield Finding.unknown("not-visible-here", f"files could not be read: {unread}")
    elif inside:
        yield Finding.info("this container has no compute libraries: it can monitor GPUs, not use them")
    else:
        where = next(library.folder for library in driver.libraries if library.name == _NVML)
        evidence = [
            reading("driver-files", f'links["{where}/{_NVML}"]', f'stats["{where}/{_NVML}"]'),
            reading("driver-files", f'stats["{where}/{_CUDA}"]?'),
        ]
        summary = "libcuda.so.1 missing: no CUDA program can start"
        yield Finding.fail(summary, evidence=evidence, fix=_reinstall_package(machine))


def _reinstall_package(machine: Machine | None) -> Fix:
    """Install it again, of the version that is loaded.

    On Ubuntu libcuda and NVML's library are of one package, whose name has branch and flavour or not
    (libnvidia-compute-580-server, libnvidia-compute): who has one lacks the other. Elsewhere:
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
