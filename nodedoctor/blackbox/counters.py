"""Error counters of adapters, interfaces, GPUs and NVLinks: what they gained while a job was watched.

Totals say little, as they count from the last boot; what a counter gained during the job is worth a line.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.facts.files import Files, whole_number
from nodedoctor.knowledge import infiniband
from nodedoctor.model import Observation
from nodedoctor.record import record

DEADLINE = 6.0
"""Seconds for all of them: counters of mlx5 are asked from firmware, and a driver that has lost a GPU may
never answer."""
EACH = "2"
"""Seconds for one path, so that one adapter that hangs hides no other."""
MOST = 12
"""Counters that are named."""

_PORTS, _NETS = "/sys/class/infiniband", "/sys/class/net"
_NET = ("statistics/rx_errors", "statistics/tx_errors", "statistics/rx_crc_errors", "carrier_down_count")
_PORT = re.compile(rf"{_PORTS}/([^/]+)/ports/(\d+)/\w+/(\w+)")
_INTERFACE = re.compile(rf"{_NETS}/([^/]+)/(?:statistics/)?(\w+)")


@record
class Counters:
    """One reading. `gpus` is what NVML's child said of them; None where there are none."""

    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    gpus: Observation | None = None

    def gained_since(self, before: Counters) -> tuple[str, ...]:
        """What grew, as `mlx5_0/1 link_downed +2`; a counter that went back was reset, and is left out."""
        gains = [
            f"{whose} {name} +{now - then}"
            for (whose, name), now in sorted(self.counts.items())
            if (then := before.counts.get((whose, name))) is not None and now > then
        ]
        return (*gains, *_gpu_growth(before.gpus, self.gpus))


async def read(root: str = "/") -> Counters:
    """All counters now; those that cannot be read are left out."""
    names = {f"{row.folder}/{row.counter}" for row in infiniband.counters() if row.limit is not None}
    words = [f"read:{_PORTS}/*/ports/*/{name}" for name in sorted(names)]
    words += [f"read:{_NETS}/*/{name}" for name in _NET]
    argv = child("host/files", "--root", root, "--each", EACH, *words)
    observation, gpus = await asyncio.gather(
        child_process.run("counters", Command(argv), DEADLINE), _ask_gpus()
    )
    files = Files.parse_json(observation)
    return Counters(dict(_read_counts(files)) if isinstance(files, Files) else {}, gpus)


def note(gained: tuple[str, ...]) -> tuple[str, ...]:
    """The same as a line for a verdict."""
    if not gained:
        return ()
    more = f" and {len(gained) - MOST} more" if len(gained) > MOST else ""
    return (f"error counters that grew while the job was watched: {', '.join(gained[:MOST])}{more}",)


def _read_counts(files: Files) -> Iterator[tuple[tuple[str, str], int]]:
    for path, text in files.files.items():
        value = whole_number(text.strip())
        if value is None:
            continue
        if port := _PORT.fullmatch(path):
            yield (f"{port[1]}/{port[2]}", port[3]), value
        elif interface := _INTERFACE.fullmatch(path):
            yield (interface[1], interface[2]), value


async def _ask_gpus() -> Observation | None:
    if not os.path.exists("/dev/nvidiactl"):
        return None
    argv = child("gpu/nvml_growth", "0.1", packages=True)
    return await child_process.run("nvml-growth", Command(argv), DEADLINE)


def _gpu_growth(before: Observation | None, now: Observation | None) -> Iterator[str]:
    from nodedoctor.facts.gpu.links.error_growth import ErrorGrowth

    if before is None or now is None or not (before.answered and now.answered):
        return
    first, last = before.text.splitlines()[:1], now.text.splitlines()[-1:]
    growth = ErrorGrowth.parse(replace(now, text="\n".join((*first, *last))))
    for gpu in growth.gpus if isinstance(growth, ErrorGrowth) else ():
        yield from (f"GPU {gpu.index} {name} +{count}" for name, count in gpu.gained.items() if count)
        for link in gpu.links:
            gains = (f"{name} +{count}" for name, count in link.gained.items() if count)
            yield from (f"GPU {gpu.index} NVLink {link.link} {gain}" for gain in gains)
