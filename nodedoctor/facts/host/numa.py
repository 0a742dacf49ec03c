"""NUMA nodes: which processors and how much memory belong together, and how far apart they are."""

from __future__ import annotations

import re
from typing import Any

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe
from nodedoctor.facts.files import Files
from nodedoctor.facts.shapes import kib_to_gib
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import as_dict, record

NODES = "/sys/devices/system/node"
MOST_CPUS = 1 << 16  # far above what any machine has; a list beyond it is garbage


@probe("numa", timeout=5, lane=Lane.FS)
def numa_nodes(options: Options) -> Command:
    """Processors, memory and distances of every NUMA node, from sysfs."""
    names = ("cpulist", "meminfo", "distance")
    words = [f"read:{NODES}/node*/{name}" for name in names]
    return Command(child("host/files", "--root", options.root, *words, "read:/sys/devices/system/cpu/online"))


@record
class NumaNode:
    """One node; `cpus` is empty for memory-only nodes (the GPU memory of Grace-Hopper shows as such)."""

    node: int
    cpus: tuple[int, ...] = ()
    memory_gib: float | None = None
    free_gib: float | None = None
    distances: tuple[int, ...] = ()


@fact("numa")
@record
class Numa:
    """The NUMA nodes of this machine."""

    nodes: tuple[NumaNode, ...]
    online_cpus: tuple[int, ...] = ()

    @classmethod
    def parse(cls, observation: Observation) -> Numa | Unseen:
        """Read the sysfs files; a kernel without NUMA support has none of them, which is no fault."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        numbers = sorted(
            int(name[4:]) for name in files.children(NODES) if re.fullmatch(r"node\d{1,5}", name)
        )
        if not numbers and files.error(NODES) == "ENOENT":
            return Unseen.skip("the kernel shows no NUMA nodes")
        online = cpu_list(files.text("/sys/devices/system/cpu/online") or "")
        return cls(tuple(_numa_node(files, number) for number in numbers), online)

    def node_of_cpu(self, cpu: int) -> int | None:
        """The node a processor belongs to."""
        return next((node.node for node in self.nodes if cpu in node.cpus), None)

    def public(self) -> dict[str, Any]:
        """The nodes, with processors as ranges."""
        nodes = [as_dict(node) | {"cpus": cpu_text(node.cpus)} for node in self.nodes]
        return {"nodes": nodes, "online_cpus": cpu_text(self.online_cpus)}


def cpu_list(text: str) -> tuple[int, ...]:
    """`0-3,8` as numbers; parts that are not such are left out."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part.strip())
        if match:
            first, last = int(match.group(1)), int(match.group(2) or match.group(1))
            cpus.update(range(first, min(last, MOST_CPUS) + 1))
    return tuple(sorted(cpus))


def cpu_text(cpus: tuple[int, ...]) -> str:
    """Processor numbers as people and the kernel write them: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _numa_node(files: Files, number: int) -> NumaNode:
    here = f"{NODES}/node{number}"
    meminfo = files.meminfo(here)
    distances = (files.text(f"{here}/distance") or "").split()
    return NumaNode(
        node=number,
        cpus=cpu_list(files.text(f"{here}/cpulist") or ""),
        memory_gib=kib_to_gib(meminfo.get("MemTotal")),
        free_gib=kib_to_gib(meminfo.get("MemFree")),
        distances=tuple(int(word) for word in distances if re.fullmatch(r"\d{1,3}", word)),
    )
