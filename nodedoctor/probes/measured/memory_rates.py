"""Measure how fast processors copy memory, on their own NUMA node and from others; one JSON document.

    python -I memory_rates.py [--root DIR] [--mib 1024] [--load 0.25]

A thread a processor, each held there by its affinity, so that what it touches first lies on its node. Nothing
is measured where processors are in use: above `--load` of them by the load average.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import threading
import time
from itertools import permutations
from typing import Any

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.host.files_reading import text_below
from nodedoctor.probes.measured.host_pages import address, listed_numbers
from nodedoctor.probes.measured.step_document import StepDocument
from nodedoctor.probes.plain_args import options

sys.path.pop()

MIB = 1024**2
MOST_THREADS = 32
"""Of a node; ours: fewer saturate its memory channels."""
ROUNDS, ROUND_S = 3, 0.15
"""The best of three rounds counts; ours: whatever else runs only makes one slower."""
ALL_SECONDS = 8.0
"""After which no other pair of nodes is begun; ours."""
SHARE = 8
"""One part of so many of the memory that is free is taken at most; ours."""
LEAST_MIB = 256
"""Below it caches would be measured; ours."""

LIMITS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""The files of a control group's memory: of version 2, of version 1."""


def main() -> None:
    """Run as a program."""
    words, _ = options(__doc__, root="/", mib="1024", load="0.25")
    document = StepDocument({"schema": "nodedoctor.memory-rates/1"})
    tell(document, words["root"], int(words["mib"]), float(words["load"]))
    document.close()


def tell(document: StepDocument, root: str, wanted: int, most_load: float) -> None:
    """Each node by itself, then each with the first node of every other socket."""
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > most_load * cpus:
        document.step("left-out", why=f"processors are in use: load {load:.1f} on {cpus}")
        return
    mib = min(wanted, free_mib(root) // SHARE)
    if mib < LEAST_MIB:
        document.step("left-out", why=f"too little memory is free: {free_mib(root)} MiB")
        return
    nodes = processors_by_node(root)
    for node in nodes:
        attempt(document, (node, node), nodes, mib)
    for pair in permutations(first_of_each_socket(root, nodes), 2):
        attempt(document, pair, nodes, mib)


def attempt(document: StepDocument, pair: tuple[int, int], nodes: dict[int, list[int]], mib: int) -> None:
    """Measure one node's processors on one node's memory."""
    places = {"cpus_of": pair[0], "memory_of": pair[1]}
    if document.seconds > ALL_SECONDS:
        document.step("memory", **places, left="no time was left for it")
        return
    if not (nodes[pair[0]] and nodes[pair[1]]):
        document.step("memory", **places, left="this process may not run on its processors")
        return
    document.step("begin", what="memory", **places)
    document.step("memory", **places, **copied(nodes[pair[0]], nodes[pair[1]], mib))


def free_mib(root: str) -> int:
    """Memory that can be had, by the kernel and by the limit of our control group."""
    lines = (text_below(root, "/proc/meminfo") or "").splitlines()
    available = next((int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable:")), 0)
    for limit, used in LIMITS:
        limits = [(text_below("/", f"/sys/fs/cgroup/{name}") or "").strip() for name in (limit, used)]
        if all(map(str.isdecimal, limits)):
            available = min(available, int(limits[0]) - int(limits[1]) >> 20)
    return available


def processors_by_node(root: str) -> dict[int, list[int]]:
    """The processors of each node that we may use; a machine without NUMA is one node."""
    allowed = os.sched_getaffinity(0)
    folder = "/sys/devices/system/node"
    nodes = listed_numbers(text_below(root, f"{folder}/has_cpu") or "")
    if not nodes:
        return {0: sorted(allowed)[:MOST_THREADS]}
    cpus = {node: listed_numbers(text_below(root, f"{folder}/node{node}/cpulist") or "") for node in nodes}
    return {node: [cpu for cpu in cpus[node] if cpu in allowed][:MOST_THREADS] for node in nodes}


def first_of_each_socket(root: str, nodes: dict[int, list[int]]) -> list[int]:
    """A node for each processor package; one socket may have several nodes."""
    first_nodes: dict[str, int] = {}
    for node, cpus in nodes.items():
        if cpus:
            path = f"/sys/devices/system/cpu/cpu{cpus[0]}/topology/physical_package_id"
            first_nodes.setdefault(text_below(root, path) or "", node)
    return list(first_nodes.values())


def copied(cpus: list[int], memory_cpus: list[int], mib: int) -> dict[str, Any]:
    """GB/s, read and written, of all threads together."""
    size = mib * MIB // (2 * len(cpus)) // mmap.PAGESIZE * mmap.PAGESIZE
    start, end = (threading.Barrier(len(cpus) + 1) for _ in range(2))
    copies, problems = [0] * len(cpus), list[OSError]()
    memcpy = ctypes.CDLL(None).memcpy  # during which Python lets other threads run
    memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def work(number: int) -> None:
        try:
            os.sched_setaffinity(0, {memory_cpus[number % len(memory_cpus)]})  # of this thread alone
            source, target = (touched(size) for _ in range(2))
            os.sched_setaffinity(0, {cpus[number]})
        except OSError as error:
            problems.append(error)
        for _ in range(ROUNDS):
            start.wait()
            until = time.perf_counter() + ROUND_S
            while not problems and time.perf_counter() < until:
                memcpy(address(target), address(source), size)
                copies[number] += 1
            end.wait()

    for number in range(len(cpus)):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    best = 0.0
    for _ in range(ROUNDS):
        before = sum(copies)
        start.wait()
        round_start = time.perf_counter()
        end.wait()
        best = max(best, 2 * size * (sum(copies) - before) / (time.perf_counter() - round_start) / 1e9)
    if problems:
        return {"left": f"{problems[0].strerror}: a thread could not be held on its processor"}
    return {"threads": len(cpus), "gbytes_s": round(best, 2)}


def touched(size: int) -> mmap.mmap:
    """Memory that lies where the calling thread runs."""
    memory = mmap.mmap(-1, size)
    with contextlib.suppress(OSError):  # a kernel without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    ctypes.memset(address(memory), 1, size)
    return memory


if __name__ == "__main__":
    main()
