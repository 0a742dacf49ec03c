"""A minimal distributed job in the training Python: does it run, are its results right, how fast is it?

Line formats of its log: NVIDIA/nccl src/transport/*.cc, src/init.cc, src/transport/net_ib.cc, since 2.14.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.driver.nvidia_presence import reason_not_to_ask
from nodedoctor.facts.gpu.idle import idle
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.facts.measured.bandwidth import PASSIVE
from nodedoctor.json_shapes import Json, document, part, parts, text, whole_number
from nodedoctor.model import Observation, Outcome, Reason, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import field, record

SMOKE, ISOLATE = "collective", "collective-isolate"
AFTER = ("nvml", "processes", "target-python", "pci", "driver-files")
SUSPECTS = (
    "NCCL_P2P_DISABLE=1",
    "NCCL_SHM_DISABLE=1",
    "NCCL_IB_DISABLE=1",
    "NCCL_NVLS_ENABLE=0",
    "NCCL_CUMEM_ENABLE=0",
)
"""One path of NCCL switched off each.
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"""
CPU_RANKS = 4
RUN_SECONDS = 30
NO_GPU_SEEN = "NVIDIA hardware is here, but NVML shows no GPU that could be used"
_WAY_OUT = "Pass the training Python with --python PATH, or with --exec inside a container."
_SEE_DRIVER = "See what keeps NVML from the GPUs: nodedoctor driver gpu container; then run this again."


@probe(SMOKE, timeout=180, lane=Lane.GPU_LOAD, after=AFTER)
def smoke(
    options: Options,
    nvml: Observation,
    processes: Observation,
    target: Observation,
    pci: Observation,
    files: Observation,
) -> Command | Observation:
    """All-reduce, all-gather, reduce-scatter and broadcast of rising size on all idle GPUs, verified."""
    return _plan_job(SMOKE, options, (nvml, processes, target), not reason_not_to_ask(pci, files))


@probe(ISOLATE, timeout=400, lane=Lane.GPU_LOAD, after=(*AFTER, SMOKE))
def isolate(
    options: Options,
    nvml: Observation,
    processes: Observation,
    target: Observation,
    pci: Observation,
    files: Observation,
    earlier: Observation,
) -> Command | Observation:
    """The same job once more for each path of NCCL, with that path switched off, if the job fails."""
    collective = Collective.parse(earlier)
    if isinstance(collective, Unseen):
        return skipped(ISOLATE, f"the job itself was not run: {collective.note}")
    if collective.runs and collective.runs[0].ok:
        return skipped(ISOLATE, "the job runs: there is nothing to isolate")
    if collective.runs and collective.runs[0].backend != "nccl":
        return skipped(ISOLATE, "without GPUs NCCL takes no part")
    nvidia = not reason_not_to_ask(pci, files)
    return _plan_job(ISOLATE, options, (nvml, processes, target), nvidia, "--isolate", ",".join(SUSPECTS))


def _plan_job(
    name: str, options: Options, needs: tuple[Observation, Observation, Observation], nvidia: bool, *more: str
) -> Command | Observation:
    """The job on all GPUs; on CPU ranks only where there is no NVIDIA hardware, else it proves nothing."""
    if options.passive:
        return skipped(name, PASSIVE)
    nvml, processes, target = needs
    answer = document(target) or {}
    python = text(answer, "executable")
    if not python:
        return skipped(name, f"the training Python is not known: {target.note or target.outcome.value}")
    free = idle(nvml, processes)
    if free.busy:
        return skipped(name, "; ".join(f"GPU {index}: {why}" for index, why in free.busy))
    gpus = len(free.gpus)
    if nvidia and not gpus:
        return skipped(name, f"{NO_GPU_SEEN}: {_why_unseen(nvml)}")
    ranks, backend, largest = (gpus, "nccl", "256") if gpus else (CPU_RANKS, "gloo", "16")
    ladder = ",".join(str(fewer) for fewer in (2, 4, 8) if fewer < ranks)
    words = ["--ranks", str(ranks), "--backend", backend, "--largest", largest, "--limit", str(RUN_SECONDS)]
    prefix = ["--", *options.exec_prefix] if options.exec_prefix else []
    argv = child("in_python", python, "measured/collective", *words, "--ladder", ladder, *more, *prefix)
    return Command(argv, {"CUDA_VISIBLE_DEVICES": free.uuids} if free.uuids else {})


def _why_unseen(nvml: Observation) -> str:
    reading = NvmlReading.parse(nvml)
    if isinstance(reading, Unseen):
        return reading.note
    error = reading.gpus.init_error
    return f"{error.name} ({error.text})" if error else "it answers and lists none"


@record
class Operation:
    """One collective: bus bandwidth by nccl-tests' formula (doc/PERFORMANCE.md), on the first rank.

    None with one rank, which sends nothing anywhere.
    """

    name: str
    bytes: int
    busbw_gbytes_s: float | None


@record
class CollectiveRun:
    """One job. `died` ranks with how, `absent` ones that never joined, `waiting` ones with where they waited,
    `errors` what ranks raised, `wrong` results by rank. `setting` is what was switched off.
    """

    ranks: int
    backend: str
    ok: bool
    setting: str = ""
    died: Mapping[int, str] = field(default_factory=dict)
    absent: tuple[int, ...] = ()
    waiting: Mapping[int, str] = field(default_factory=dict)
    errors: Mapping[int, str] = field(default_factory=dict)
    wrong: Mapping[int, str] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()
    log: NcclLog | None = None

    @property
    def trouble(self) -> str:
        """What went wrong, the cause before its consequences; empty when nothing did."""
        if self.died:
            return "; ".join(f"rank {rank} {how}" for rank, how in self.died.items())
        if self.absent:
            return f"rank {', '.join(map(str, self.absent))} never joined"
        if self.wrong:
            return "; ".join(f"wrong result of {what} on rank {rank}" for rank, what in self.wrong.items())
        if self.errors:
            rank, error = next(iter(self.errors.items()))
            return f"rank {rank} raised {error.splitlines()[0][:160] if error else 'an error'}"
        if self.waiting:
            rank, place = next(iter(self.waiting.items()))
            return f"no end in {RUN_SECONDS} s: rank {rank} waits at {place}"
        return "" if self.ok else "it did not end"


@fact(SMOKE)
@record
class Collective:
    """The runs of the minimal distributed job: all ranks first, then fewer when that failed."""

    torch: str
    runs: tuple[CollectiveRun, ...]
    seconds: float | None = None

    @classmethod
    def parse(cls, observation: Observation) -> Collective | Unseen:
        """Read what probes/measured/collective.py prints, also with --isolate."""
        runs = _parse_runs(observation)
        return runs if isinstance(runs, Unseen) else cls(*runs)


@fact(ISOLATE)
@record
class Isolation(Collective):
    """The same job with one path of NCCL switched off at a time."""


def _parse_runs(observation: Observation) -> tuple[str, tuple[CollectiveRun, ...], float | None] | Unseen:
    if observation.outcome in (Outcome.SKIPPED, Outcome.MISSING):
        why = observation.note or "not recorded"
        if "Python that trains" in why or "the training Python" in why:  # as older recordings say
            return Unseen("not-visible-here", why, _WAY_OUT, observation.probe)
        if NO_GPU_SEEN in why:
            return Unseen("not-visible-here", why, _SEE_DRIVER, observation.probe)
        return Unseen.skip(f"not run: {why}")
    answer = document(observation)
    if answer and text(answer, "error"):
        missing = text(answer, "error") == "no-torch"
        way_out = f"Install torch there, or: {_WAY_OUT}" if missing else _WAY_OUT
        reason: Reason = "missing-tool" if missing else "denied"
        return Unseen(reason, f"{observation.probe}: {text(answer, 'text')}", way_out, observation.probe)
    if not answer or not parts(answer, "runs"):
        return Unseen.of(observation)
    seconds = answer.get("seconds")
    return (
        text(answer, "torch"),
        tuple(map(_read_run, parts(answer, "runs"))),
        float(seconds) if isinstance(seconds, (int, float)) else None,
    )


def _read_run(entry: Json) -> CollectiveRun:
    log = text(entry, "log")
    ranks = whole_number(entry, "ranks") or 0
    return CollectiveRun(
        ranks=ranks,
        backend=text(entry, "backend"),
        ok=entry.get("ok") is True,
        setting=text(entry, "setting"),
        died={
            whole_number(row, "rank") or 0: f"{text(row, 'how')} at {text(row, 'at')}"
            for row in parts(entry, "died")
        },
        absent=tuple(rank for rank in entry.get("absent") or () if isinstance(rank, int)),
        waiting=_by_rank(part(entry, "waiting")),
        errors=_by_rank(part(entry, "errors")),
        wrong={whole_number(row, "rank") or 0: text(row, "operation") for row in parts(entry, "wrong")},
        operations=tuple(
            Operation(
                text(row, "operation"), whole_number(row, "bytes") or 0, float(speed) if ranks > 1 else None
            )
            for row in parts(entry, "operations")
            if isinstance(speed := row.get("busbw_gbytes_s"), (int, float))
        ),
        log=read_log(log) if log else None,
    )


def _by_rank(by_rank: Json) -> Mapping[int, str]:
    return {int(rank): text(by_rank, rank) for rank in by_rank if rank.isdecimal() and len(rank) < 7}


_VIA = regex(r"Channel \d+(?:/\d+)? : (\d+)\[[^\]]*\] -> (\d+)\[[^\]]*\].* via (\S+)")
_NETWORK = regex(r"Using network (\S+)")
_PLUGIN = regex(r"NET/Plugin:? (.+)")
_INTERFACE = regex(r"Bootstrap\s*: Using (\S+?):|NET/(?:IB|Socket) : Using (.+)")
_VERSION = regex(r"NCCL version (\d[\w.+]*)")
_WARN = regex(r"NCCL WARN (.+)")
_MOST = 20


@record
class NcclLog:
    """`transports` by ordered pair `0-1`, as NCCL calls them: P2P/CUMEM, SHM/direct, NET/IB/0/GDRDMA ..."""

    version: str = ""
    network: str = ""
    interfaces: tuple[str, ...] = ()
    plugin: str = ""
    transports: Mapping[str, str] = field(default_factory=dict)
    rings: int = 0
    warnings: tuple[str, ...] = ()


def read_log(text: str) -> NcclLog:
    """Read the lines of all ranks together."""
    lines = text.splitlines()
    pairs = {f"{m[1]}-{m[2]}": m[3] for line in lines if (m := _VIA.search(line))}
    interfaces = [m[1] or m[2].strip() for line in lines if (m := _INTERFACE.search(line))]
    warnings = [m[1].strip() for line in lines if (m := _WARN.search(line))]
    return NcclLog(
        _first_match(_VERSION, lines),
        _first_match(_NETWORK, lines),
        tuple(dict.fromkeys(interfaces))[:_MOST],
        _first_match(_PLUGIN, lines),
        pairs,
        sum("Connected all rings" in line for line in lines),
        tuple(dict.fromkeys(warnings))[:_MOST],
    )


def _first_match(pattern: re.Pattern[str], lines: list[str]) -> str:
    return next((match[1].strip() for line in lines if (match := pattern.search(line))), "")
