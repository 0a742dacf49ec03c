"""Measure copies between GPUs and with the host, and verify what arrives; one JSON document on stdout.

    python -I bandwidth.py --json [--deep] [--root DIR] [--gpus 0=0000:18:00.0,...] [--leave 3=why]

Each step is on a line of its own and is announced before it begins, so that a copy that never ends is
named by the last line. `--gpus` names the GPUs to use by number and place on the bus, all by default;
`--leave` says why one is left alone. Quick: 64 MiB a GPU and 3 s of copying; with --deep 1 GiB and 40 s.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.measured import host_pages
from nodedoctor.probes.measured.bandwidth_copy import Copier, Device
from nodedoctor.probes.measured.cuda_driver import LIBRARY, Cuda, CudaError, Handle, Size
from nodedoctor.probes.measured.step_document import StepDocument

sys.path.pop()

SCHEMA = "nodedoctor.bandwidth/1"
MIB = 1024**2
QUICK = (32 * MIB, 4 * MIB, 3.0, 0.004)  # bytes of a buffer, of the pattern; seconds of copying: all, one
DEEP = (512 * MIB, 64 * MIB, 40.0, 0.05)


def tell(document: StepDocument, words: dict[str, str], deep: bool) -> None:
    """Write all steps."""
    size, tile, budget, aim = DEEP if deep else QUICK
    for index, why in chosen(words["leave"]).items():
        document.step("left-out", index=int(index), why=why)
    document.step("begin", what="cuInit")
    try:
        cuda = Cuda()
        count = cuda.number("cuDeviceGetCount")
    except OSError as error:
        document.step("init", error="NO_LIBRARY", text=f"{LIBRARY}: {error}")
        return
    except CudaError as error:
        document.step("init", **error.told())
        return
    document.step("init", version=cuda.number("cuDriverGetVersion"), devices=count)
    copier = Copier(cuda, size, tile, aim, host_pages.pages(size, None))
    devices = list(opened(document, copier, count, chosen(words["gpus"])))
    if devices:
        where = Handle(host_pages.address(copier.host))
        cuda.call("cuMemHostRegister", where, Size(size), 1)
        measure(document, copier, devices, words["root"], budget, deep)


def measure(
    document: StepDocument, copier: Copier, devices: list[Device], root: str, budget: float, deep: bool
) -> None:
    """Hosts first: they are few and tell whether a GPU copies at all; then every ordered pair."""
    cuda = copier.cuda

    def measured(step: str, subject: dict[str, Any], work: Callable[[], dict[str, Any]]) -> None:
        attempt(document, cuda.copied >= budget, step, subject, work)

    for device in devices:
        for kind, node in places(root, device.bus_id):
            subject = {"index": device.index, "kind": kind, "node": node}
            measured("host", subject, partial(from_node, copier, device, node))
    for device in devices if deep else ():
        measured("memory", {"index": device.index}, partial(copier.memory, device))
    for source, target in permutations(devices, 2):
        pair = {"source": source.index, "target": target.index}
        measured("pair", pair, partial(copier.pair, source, target))
        if source.index > target.index:
            both = {"source": target.index, "target": source.index}
            measured("both", both, partial(copier.both, target, source))


def attempt(
    document: StepDocument,
    late: bool,
    step: str,
    subject: dict[str, Any],
    work: Callable[[], dict[str, Any]],
) -> None:
    """Announce, measure and write one step; once the budget is spent, say that it was not measured."""
    if late:
        document.step(step, **subject, error="NO_TIME")
        return
    document.step("begin", what=step, **subject)
    try:
        answer = work()
    except CudaError as error:
        answer = error.told()
    except OSError as error:
        answer = {"error": "REFUSED", "text": error.strerror or str(error)}
    document.step(step, **subject, **answer)


def opened(document: StepDocument, copier: Copier, count: int, wanted: dict[str, str]) -> Iterator[Device]:
    """Contexts on the wanted GPUs, found by their place on the bus."""
    numbers = {bus_id.lower(): int(index) for index, bus_id in wanted.items()}
    for ordinal in range(count):
        try:
            bus_id = copier.cuda.bus_id(copier.cuda.number("cuDeviceGet", ordinal))
            if wanted and bus_id not in numbers:
                continue
            index = numbers.get(bus_id, ordinal)
            document.step("begin", what="gpu", index=index)
            device = copier.open(index, ordinal, bus_id)
        except CudaError as error:
            document.step("gpu", index=numbers.get(bus_id, ordinal), **error.told())
            continue
        document.step("gpu", index=index, bus_id=bus_id)
        yield device


def places(root: str, bus_id: str) -> list[tuple[str, int | None]]:
    """The NUMA nodes to copy from: next to the GPU and, where there are more, one far from it."""
    near, nodes = host_pages.node_of(root, bus_id), host_pages.nodes_with_memory(root)
    if near is None or near not in nodes:
        return [("near", None)]
    far = [("far", node) for node in nodes if node != near]
    return [("near", near), *far[-1:]]


def from_node(copier: Copier, device: Device, node: int | None) -> dict[str, Any]:
    """Copies between a GPU and pinned pages of a node."""
    memory = host_pages.pages(copier.size, node)
    return copier.to_and_from(device, memory)


def chosen(text: str) -> dict[str, str]:
    """`0=a,1=b` as a dictionary."""
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {key: value for key, _, value in pairs if key.isdecimal()}


def options() -> tuple[dict[str, str], set[str]]:
    """The command line: options with a value, and plain ones; exits 2 when it makes no sense."""
    values, plain, words = {"root": "/", "gpus": "", "leave": ""}, set(), sys.argv[1:]
    while words:
        word = words.pop(0)
        if word in ("--json", "--deep"):
            plain.add(word[2:])
        elif word[2:] in values and words:
            values[word[2:]] = words.pop(0)
        else:
            sys.stderr.write(f"{__doc__}\n")
            sys.exit(2)
    return values, plain


def main() -> None:
    """Run as a program."""
    words, plain = options()
    deep = "deep" in plain
    about = {"schema": SCHEMA, "deep": deep, "buffer_mib": (DEEP if deep else QUICK)[0] // MIB}
    document = StepDocument(about)
    with contextlib.suppress(BrokenPipeError):  # the reader is gone
        tell(document, words, deep)
        document.close()
    os._exit(0)  # what the driver does at exit may hang, and everything has been said


if __name__ == "__main__":
    main()
