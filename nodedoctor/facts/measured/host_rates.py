"""How fast this machine itself is: its file systems, and its memory from each of its processors."""

from __future__ import annotations

import re

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.files import Files
from nodedoctor.facts.gpu.idle import not_run
from nodedoctor.facts.host.disk import worth_asking
from nodedoctor.facts.host.mounts import mountinfo_of, parse_mountinfo
from nodedoctor.facts.measured.steps import BROKEN, cut_short, steps_of
from nodedoctor.json_shapes import Json, number, text, whole_number
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.record import record

DISKS, MEMORY = "disk-rates", "memory-rates"
MOST_DISKS = 16
"""File systems that are measured; ours: eight drives of data and those of the system."""
_MEASURED = re.compile(r"ext[234]|xfs|btrfs|zfs|f2fs|bcachefs")
_NO_LOAD = "--passive puts no load on this machine"
_ELSEWHERE = "below --root lies another machine's tree"


@probe(DISKS, timeout=30, lane=Lane.FS, after=("disk",))
def disk_rates(options: Options, disk: Observation) -> Command | Observation:
    """Writes and reads a nameless file of 1 GiB, one second each, on every local file system with room."""
    if options.passive or options.root != "/":
        return skipped(DISKS, _NO_LOAD if options.passive else _ELSEWHERE)
    files = Files.parse_json(disk)
    table = "" if isinstance(files, Unseen) else mountinfo_of(files) or ""
    mounts = [m for m in worth_asking(parse_mountinfo(table)) if _MEASURED.fullmatch(m.fstype)]
    points = [mount.point for mount in mounts if not mount.network and "\0" not in mount.point]
    if not points:
        return skipped(DISKS, "no local file system was found")
    return Command(child("measured/disk_rates", *points[:MOST_DISKS]))


@probe(MEMORY, timeout=30, lane=Lane.GPU_LOAD)
def memory_rates(options: Options) -> Command | Observation:
    """Copies 1 GiB of memory on every NUMA node and between sockets, half a second each."""
    if options.passive:
        return skipped(MEMORY, _NO_LOAD)
    return Command(child("measured/memory_rates", "--root", options.root))


@record
class DiskRate:
    """One file system: GB/s, or why it was left out. `model` is what its disk calls itself."""

    point: str
    model: str = ""
    write_gbytes_s: float | None = None
    read_gbytes_s: float | None = None
    left_out: str = ""


@fact(DISKS)
@record
class DiskRates:
    """What was measured of file systems. `hung` is the one that was under way when the child was given up."""

    disks: tuple[DiskRate, ...]
    hung: str = ""
    cut_short: str = ""

    @classmethod
    def parse(cls, observation: Observation) -> DiskRates | Unseen:
        """Read the lines of probes/measured/disk_rates.py, as far as they go."""
        steps = _read_steps(observation)
        if not steps:
            return _why_unmeasured(observation)
        disks = (_disk_rate(step) for step in steps if text(step, "step") == "disk")
        last = text(steps[-1], "point") if text(steps[-1], "step") == "begin" else ""
        return cls(tuple(disk for disk in disks if disk), last, cut_short(observation))


@record
class MemoryRate:
    """Copies by the processors of one NUMA node in the memory of one: GB/s, or why it was left out."""

    cpus_of: int
    memory_of: int
    threads: int = 0
    gbytes_s: float | None = None
    left_out: str = ""


@fact(MEMORY)
@record
class MemoryRates:
    """What was measured of memory; `left_out` says why nothing was."""

    pairs: tuple[MemoryRate, ...] = ()
    left_out: str = ""
    cut_short: str = ""

    @classmethod
    def parse(cls, observation: Observation) -> MemoryRates | Unseen:
        """Read the lines of probes/measured/memory_rates.py, as far as they go."""
        steps = _read_steps(observation)
        if not steps:
            return _why_unmeasured(observation)
        pairs = (_memory_rate(step) for step in steps if text(step, "step") == "memory")
        left_out = next((text(step, "why") for step in steps if text(step, "step") == "left-out"), "")
        return cls(tuple(pair for pair in pairs if pair), left_out, cut_short(observation))


def _read_steps(observation: Observation) -> list[Json]:
    """What a child wrote that ended, or had to be given up; nothing of one that did not run."""
    ran = observation.answered or observation.outcome in BROKEN
    return list(steps_of(observation.text)) if ran else []


def _why_unmeasured(observation: Observation) -> Unseen:
    """Why nothing was measured: it was not to be run, or brought no answer."""
    return (
        not_run(observation)
        if observation.outcome in (Outcome.SKIPPED, Outcome.MISSING)
        else Unseen.of(observation)
    )


def _disk_rate(step: Json) -> DiskRate | None:
    rates = (_positive_rate(step, "write_gbytes_s"), _positive_rate(step, "read_gbytes_s"))
    disk = DiskRate(text(step, "point"), text(step, "model"), *rates, text(step, "left"))
    return disk if disk.point and (disk.left_out or all(rates)) else None


def _memory_rate(step: Json) -> MemoryRate | None:
    cpus, memory = whole_number(step, "cpus_of"), whole_number(step, "memory_of")
    if cpus is None or memory is None:
        return None
    rate = _positive_rate(step, "gbytes_s")
    threads, left_out = whole_number(step, "threads") or 0, text(step, "left")
    return MemoryRate(cpus, memory, threads, rate, left_out) if rate or left_out else None


def _positive_rate(step: Json, key: str) -> float | None:
    rate = number(step.get(key))
    return rate if rate and rate > 0 else None
