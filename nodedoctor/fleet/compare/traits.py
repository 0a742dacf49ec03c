"""The table of what is compared between nodes: where it is in a report, why it must be alike, what to do.

Traits are what somebody decided, readings what was measured or counted. What differs between healthy nodes by
itself (serials, addresses, uptime, free memory) is not in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from nodedoctor.fleet.compare import values
from nodedoctor.fleet.compare.values import (
    Facts,
    amount,
    average,
    limit,
    of_adapters,
    of_gpus,
    package,
    plain_value,
)
from nodedoctor.model import Status
from nodedoctor.nodeset import natural_key
from nodedoctor.record import record, replace

LONGEST = 160
"""Characters of a value that are compared and shown; ours."""

FACTS = frozenset(
    """
    bandwidth board container driver env fabric-manager gemm gpus host ib-loopback iommu libraries limits
    listed-names machine nccl-tests net nv-links peers rdma target-python torch
    """.split()  # noqa: SIM905
)
"""The facts of a report that are read."""


@record
class Trait:
    """One thing that should be alike on all nodes of a kind.

    `read` gives "" where a report does not tell, and the word none where it tells that there is nothing. What
    comes `after` another trait differs with it, and is not shown twice. With a `rank` more is better, and the
    nodes that have less are the odd ones however many they are. What is `optional` may be missing on a sound
    node: only versions of it are compared, and its absence is at most a warning, where most have it.
    """

    key: str
    title: str
    read: Callable[[Facts], str]
    why: str
    fix: str
    status: Status = Status.WARN
    after: str = ""
    rank: Callable[[str], float | None] | None = None
    optional: bool = False


@record
class Measure:
    """One number that should be close on all nodes of a kind.

    `bad` is the direction that costs: "low" for speeds and sizes, "high" for temperatures, "counter" for what
    only grows. A node differs by at least the share `relative` of the median and by `absolute`; a counter
    only when it is far above the others (outliers.py) and above `absolute`. `unit` is for people.
    """

    key: str
    title: str
    read: Callable[[Facts], float | None]
    why: str
    fix: str
    bad: Literal["low", "high", "counter"]
    unit: str = ""
    relative: float = 0.0
    absolute: float = 0.0


def traits(facts: Facts) -> dict[str, str]:
    """The traits a report tells of. Whatever is in it, nothing is raised."""
    pairs = [(trait.key, trait.read(facts)) for trait in TRAITS]
    pairs += [(f"{_MTU}{name}", value) for name, value in values.mtus(facts).items()]
    return {key: value[:LONGEST] for key, value in pairs if value}


def rows_of(keys: Iterable[str]) -> tuple[Trait, ...]:
    """The table, and a row for each interface of these keys."""
    names = sorted({key.removeprefix(_MTU) for key in keys if key.startswith(_MTU)}, key=natural_key)
    return (*TRAITS, *(replace(_MTU_ROW, key=f"{_MTU}{name}", title=f"MTU of {name}") for name in names))


def readings(facts: Facts) -> dict[str, float]:
    """The readings a report tells of."""
    pairs = ((reading.key, reading.read(facts)) for reading in READINGS)
    return {key: round(value, 3) for key, value in pairs if value is not None}


_RANKS = "ranks of one job talk to each other with it; "
_NCCL = (
    _RANKS
    + "NCCL 2.23 and newer refuse mixed versions (`Mismatched NCCL version detected`), older ones hang "
    "or crash."
)
_RAY = "Ray refuses a node whose Ray differs from the head's (`Version mismatch`)."
_STACK = _RANKS + "different versions may choose different algorithms or number formats for one collective."
_SPEED = "a job over nodes is as fast as its slowest node."
_IMAGE = "Start the job from one image or one environment on all nodes, or reinstall the odd ones."
_DRIVER = "Install the majority's driver on the odd nodes and reboot them."
_FLASH = (
    "Flash the majority's version onto the odd nodes; the vendor's update tool does it while no job runs."
)
_HOST = "Bring the odd nodes up to the image or the configuration of the others."
_LOOK = "Run `nodedoctor` on the odd nodes with the checks of this subject, and compare with a healthy one."
_LIMIT = "Set the same limits on all nodes: /etc/security/limits.d, slurmd's unit, the container's options."

TRAITS: tuple[Trait, ...] = (
    Trait("gpu", "GPU model", of_gpus("name"), _SPEED, "Leave the odd nodes to jobs of their own."),
    Trait(
        "gpus",
        "GPUs that answer",
        values.gpu_count,
        "a job that asks for all GPUs of every node does not start, or starts with the wrong ranks.",
        "Run `nodedoctor driver pcie` there: a GPU fell off the bus, or is excluded.",
        Status.FAIL,
        rank=amount,
    ),
    Trait(
        "listed",
        "GPUs that nvidia-smi counts",
        values.listed_count,
        "a job that asks for all GPUs of every node does not start, or starts with the wrong ranks.",
        "Run `nodedoctor driver pcie` there: a GPU fell off the bus, or is excluded.",
        rank=amount,
    ),
    Trait(
        "on-bus",
        "GPUs on the PCI bus",
        plain_value("board", "on_bus"),
        "a GPU that fell off the bus does not return until the node is power-cycled.",
        "Run `nodedoctor driver pcie` there, and power-cycle the node.",
        Status.FAIL,
        rank=amount,
    ),
    Trait("driver", "NVIDIA driver", values.driver, _STACK, _DRIVER),
    Trait(
        "driver-kind",
        "kernel modules of the driver",
        plain_value("driver", "kind"),
        "the open and the proprietary modules differ in what they support (dma-buf, HMM).",
        _DRIVER,
    ),
    Trait(
        "driver-cuda",
        "CUDA of the driver",
        plain_value("gpus", "cuda_version"),
        "a build of torch may run on some of the nodes only.",
        _DRIVER,
        after="driver",
    ),
    Trait("nccl", "NCCL", values.nccl, _NCCL, _IMAGE, Status.FAIL),
    Trait("torch", "torch", plain_value("torch", "version"), _STACK, _IMAGE),
    Trait("torch-cuda", "CUDA of torch", plain_value("torch", "cuda"), _STACK, _IMAGE, after="torch"),
    Trait("ray", "Ray", package("ray"), _RAY, _IMAGE, Status.FAIL, optional=True),
    Trait(
        "python",
        "training Python",
        plain_value("target-python", "version"),
        "what is pickled on one node is read on another; Ray refuses another minor version.",
        _IMAGE,
    ),
    Trait(
        "distro", "distribution", plain_value("machine", "distro"), "libraries and defaults differ.", _HOST
    ),
    Trait(
        "kernel",
        "kernel",
        plain_value("machine", "kernel"),
        "the same fault shows on some nodes only.",
        _HOST,
        after="distro",
    ),
    Trait("vbios", "VBIOS of the GPUs", of_gpus("vbios_version"), _SPEED, _FLASH),
    Trait(
        "gsp-firmware",
        "GSP firmware",
        of_gpus("gsp_firmware_version"),
        "it belongs to the driver and changes with it.",
        _DRIVER,
        after="driver",
    ),
    Trait("inforom", "InfoROM of the GPUs", of_gpus("inforom_image_version"), _SPEED, _FLASH),
    Trait(
        "fabric-manager",
        "fabric manager",
        plain_value("fabric-manager", "version"),
        "it must be of the driver's version, else no job sees NVLink.",
        _DRIVER,
        after="driver",
    ),
    Trait("links", "NVLinks that are up", values.links_up, _SPEED, _LOOK, rank=average),
    Trait("mig", "MIG mode", of_gpus("mig_mode"), "a GPU cut up is not the GPU the job wants.", _HOST),
    Trait("power-limit", "power limit, W", of_gpus("power_limit_w"), _SPEED, "nvidia-smi -pl, on all nodes."),
    Trait(
        "persistence",
        "persistence mode",
        of_gpus("persistence_mode"),
        "without it the first job of the day waits for the driver to start the GPUs.",
        "Enable nvidia-persistenced on the odd nodes.",
    ),
    Trait("ecc", "ECC mode", of_gpus("ecc_mode"), "memory size and speed differ, and so does trust.", _HOST),
    Trait("hcas", "RDMA adapters", values.adapter_count, _SPEED, _LOOK),
    Trait(
        "rails",
        "RDMA ports that are up, Gb/s",
        values.rails,
        _SPEED,
        _LOOK,
        Status.FAIL,
        "hcas",
        rank=amount,
    ),
    Trait("hca-firmware", "firmware of the adapters", of_adapters("firmware"), _SPEED, _FLASH),
    Trait(
        "peer-memory",
        "module for GPUDirect RDMA",
        values.peer_memory,
        "without it data to other nodes takes the way through host memory.",
        "Load nvidia-peermem on the odd nodes: sudo modprobe nvidia-peermem.",
    ),
    Trait("iommu", "IOMMU parameters of the kernel", values.iommu, _SPEED, _HOST),
    Trait("cpus", "processors", plain_value("machine", "cpus"), _SPEED, _HOST),
    Trait("cpu", "processor", plain_value("machine", "cpu_model"), _SPEED, _HOST),
    Trait("governor", "frequency governor", values.governor, _SPEED, _HOST),
    Trait("thp", "transparent huge pages", plain_value("host", "thp"), _SPEED, _HOST),
    Trait("memlock", "limit of locked memory, bytes", limit("memlock_bytes"), "RDMA needs it.", _LIMIT),
    Trait("nofile", "limit of open files", limit("nofile"), "jobs of many ranks and Ray need it.", _LIMIT),
    Trait(
        "container",
        "container runtime",
        values.container,
        "nodedoctor saw a container on some nodes and the host on others: compare like with like.",
        "Start it the same way on all nodes.",
    ),
    Trait(
        "nccl-variables",
        "variables of NCCL",
        values.nccl_variables,
        "ranks with different settings choose different transports for one connection, which hangs.",
        "Set them in one place for all nodes: the job script, or one /etc/nccl.conf.",
    ),
)
"""In the order people look: hardware that is missing first, then what breaks jobs, then what slows them.

NCCL's text: NVIDIA/nccl, src/bootstrap.cc. Ray's: ray-project/ray, python/ray/_private/utils.py
(check_version_info). That GPUs or rails are missing is a failure, as in the node's own checks; the rest is
ours.
"""

_MTU = "mtu:"
"""What begins the key of the trait of each interface."""
_MTU_ROW = Trait(
    _MTU,
    "MTU",
    lambda facts: "",
    "large packets of the others are dropped there, and connections hang once they carry data.",
    "Set the majority's MTU on the odd nodes and at their switch ports: ip link set dev NAME mtu N.",
)

_REPEATS = "errors that are repeated cost time, and one node that waits makes all wait."

READINGS: tuple[Measure, ...] = (
    Measure("pair", "slowest copy between GPUs", values.least_pair, _SPEED, _LOOK, "low", "GB/s", 0.1),
    Measure("to-gpu", "slowest copy to a GPU", values.least_to_gpu, _SPEED, _LOOK, "low", "GB/s", 0.1),
    Measure("gemm", "slowest GPU", values.least_gemm, _SPEED, _LOOK, "low", "TFLOP/s", 0.1),
    Measure("rail", "slowest rail", values.least_rail, _SPEED, _LOOK, "low", "Gb/s", 0.1),
    Measure("all-reduce", "all-reduce", values.all_reduce, _SPEED, _LOOK, "low", "GB/s", 0.1),
    Measure(
        "memory",
        "memory",
        values.size("machine", "memory_gib"),
        "a job sized for the others runs out of memory there; a memory module may have failed.",
        "Compare `sudo dmidecode -t memory` with a healthy node.",
        "low",
        "GiB",
        0.025,
    ),
    Measure(
        "shm",
        "/dev/shm",
        values.size("limits", "shm", "size_gib"),
        "NCCL and data loaders put their buffers there.",
        _LIMIT,
        "low",
        "GiB",
        0.1,
    ),
    Measure(
        "gpu-memory",
        "smallest GPU memory",
        values.least_gpu_memory,
        "a model that just fits on the others does not fit there.",
        _LOOK,
        "low",
        "MiB",
        0.02,
    ),
    Measure(
        "temperature",
        "hottest idle GPU",
        values.idle_temperature,
        "what is hot when idle throttles under load.",
        "Look at fans, air ducts and coolant of the odd nodes.",
        "high",
        "C",
        0.3,
        15.0,
    ),
    Measure(
        "nvlink-errors",
        "errors of NVLinks",
        values.link_errors,
        _REPEATS,
        _LOOK,
        "counter",
        absolute=1000,
    ),
    Measure(
        "ecc-corrected",
        "corrected ECC errors",
        values.gpu_total("ecc_aggregate_correctable"),
        "memory that is corrected often fails sooner.",
        _LOOK,
        "counter",
        absolute=1000,
    ),
    Measure(
        "ecc-uncorrected",
        "uncorrected ECC errors",
        values.gpu_total("ecc_aggregate_uncorrectable"),
        "each one ended a job.",
        _LOOK,
        "counter",
        absolute=10,
    ),
    Measure(
        "pcie-replays",
        "PCIe replays",
        values.gpu_total("pcie_replays"),
        _REPEATS,
        _LOOK,
        "counter",
        absolute=1000,
    ),
    Measure(
        "symbol-errors",
        "symbol errors of RDMA ports",
        values.port_total("symbol_error"),
        _REPEATS,
        _LOOK,
        "counter",
        absolute=100_000,
    ),
    Measure(
        "link-downed",
        "times an RDMA link went down",
        values.port_total("link_downed"),
        "each time stalls or ends the jobs on it.",
        _LOOK,
        "counter",
        absolute=50,
    ),
)
"""Shares and floors are ours, wide on purpose. A tenth below is the mark the checks of bandwidth use between
GPUs (checks/measured/bandwidth.py). One memory module of 32 that fails takes 3.1 % of the memory. NVLink
counters: a
thousand is where a single link draws a warning (checks/gpu/nvlink_errors.py). Counters of links and of
corrected memory grow on sound nodes too, by their age: only what is far above all others says something.
"""
