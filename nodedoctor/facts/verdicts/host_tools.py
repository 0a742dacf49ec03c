"""What small tools say of a host: memory by NUMA node, sources of time, errors of memory, GPUs by the second.

Formats: numactl 2.0, numactl.c (`-H`); chrony 3 to 4.7, client.c (`sources`); edac-utils 0.18, edac-util.c;
rasdaemon 0.6 to 0.8, util/ras-mc-ctl.in (`--summary`); nvidia-smi of drivers 390 to 610 (`dmon`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from statistics import median, median_high

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Result, Verdict, make_verdict
from nodedoctor.patterns import regex
from nodedoctor.wording import count_with_noun

NUMA, TIME, ECC, DMON = "numactl", "chronyc-sources", "edac", "nvidia-smi-dmon"
numactl = pasted(NUMA, "The output of numactl -H.")
chronyc_sources = pasted(TIME, "The output of chronyc sources.")
edac = pasted(ECC, "The output of edac-util or ras-mc-ctl.")
dmon = pasted(DMON, "The output of nvidia-smi dmon.")

_CPUS = regex(r"^[ \t]{0,8}node (?P<node>\d{1,4}) cpus:(?P<cpus>[ \d]{0,9999})$", re.M)
_SIZE = regex(r"^[ \t]{0,8}node (?P<node>\d{1,4}) size: (?P<mib>\d{1,12}) MB", re.M)
LEAST_MEMORY = 0.75
"""Of the median of the nodes with CPUs; ours: what is reserved differs by a few percent."""


def memory_by_node(output: str) -> Iterator[Verdict]:
    """NUMA nodes with CPUs that have no memory, or much less than the others."""
    sizes = {match["node"]: (int(match["mib"]), match[0]) for match in _SIZE.finditer(output)}
    with_cpus = [match["node"] for match in _CPUS.finditer(output) if match["cpus"].strip()]
    rated = {node: sizes[node] for node in with_cpus if node in sizes}
    repeat = partial(make_verdict, NUMA, "numactl")
    usual = median_high([mib for mib, _ in rated.values()]) if rated else 0
    short = {node: entry for node, entry in rated.items() if entry[0] < LEAST_MEMORY * usual}
    for node, (mib, line) in short.items():
        memory = f"{mib / 1024:.0f} GiB of memory, others {usual / 1024:.0f} GiB"
        yield repeat("warn", f"NUMA node {node} has CPUs and {memory}", f"numa:{node}", line)
    if not short:
        yield repeat("pass", f"{count_with_noun(len(rated), 'NUMA node')} with CPUs and alike in memory")


_SOURCE = regex(
    r"^[ \t]{0,8}[\^=#](?P<state>[*+?x~-]) (?P<name>\S{1,80})[ \t]{1,40}\d{1,3}[ \t]{1,10}\d{1,3}"
    r"[ \t]{1,10}(?P<reach>[0-7]{1,3})[ \t]",
    re.M,
)


def time_sources(output: str) -> Iterator[Verdict]:
    """Whether a source of time was chosen; a warning where none answers."""
    rows = [*_SOURCE.finditer(output)]
    chosen = [row for row in rows if row["state"] == "*"]
    repeat = partial(make_verdict, TIME, "chronyc sources")
    count = count_with_noun(len(rows), "source")
    if chosen:
        yield repeat("pass", f"the clock follows {chosen[0]['name']}", "clock", chosen[0][0])
    elif rows and not any(int(row["reach"]) for row in rows):
        yield repeat("warn", f"none of {count} of time answers: the clock is not kept", "clock", rows[0][0])
    elif rows and all(row["state"] == "x" for row in rows):
        yield repeat("warn", f"{count} of time disagree: the clock is not kept", "clock", rows[0][0])
    else:
        yield repeat("note", f"none of {count} of time is chosen yet", "clock")


_EDAC = regex(
    r"^[ \t]{0,8}(?P<where>mc\d{1,3}:[^\n]{0,120}?):? (?P<count>\d{1,12}) (?P<kind>Unc|C)orrected Errors",
    re.M,
)
_RAS = regex(
    r"^[ \t]{0,8}(?P<kind>Unc|C)orrected on DIMM Label\(s\): '(?P<where>[^'\n]{1,120})' [^\n]{0,80}?"
    r"errors: (?P<count>\d{1,12})",
    re.M,
)
MANY_CORRECTED = 1000
"""Corrected errors from which a module is wearing out; ours: the time they took is unknown."""


def memory_errors(output: str) -> Iterator[Verdict]:
    """Errors by memory module: uncorrected ones fail, many corrected ones are a warning."""
    repeat = partial(make_verdict, ECC, "EDAC")
    rows = [*_EDAC.finditer(output), *_RAS.finditer(output)]
    erring = [row for row in rows if int(row["count"])]
    for row in erring:
        kind, count = "uncorrected" if row["kind"] == "Unc" else "corrected", int(row["count"])
        many: Result = "warn" if count >= MANY_CORRECTED else "note"
        words = f"{row['where']}: {count_with_noun(count, f'{kind} memory error')}"
        result: Result = "fail" if kind == "uncorrected" else many
        yield repeat(result, words, f"dimm:{row['where']}/{kind}", row[0])
    if not erring:
        yield repeat("pass", "no memory error was counted")


LOADED, LOW_CLOCK = 50, 0.7
"""Percent of the time from which a GPU is loaded, and what of its peers' clock is low; ours."""
LOADED_GPUS = 3


def gpu_samples(output: str) -> Iterator[Verdict]:
    """A loaded GPU whose clock is far below that of the others: the last sample of each counts."""
    lines = output.splitlines()
    head = next((line.lstrip("# ").split() for line in lines if line.startswith("# gpu ")), [])
    samples: dict[str, tuple[dict[str, str], str]] = {}
    for line in lines:
        cells = line.split()
        if cells and len(cells) == len(head) and cells[0].isdecimal():
            samples[cells[0]] = (dict(zip(head, cells, strict=True)), line)
    clocks = {gpu: int(sample["pclk"]) for gpu, (sample, _) in samples.items() if _is_loaded(sample)}
    usual = median(clocks.values()) if len(clocks) >= LOADED_GPUS else 0
    repeat = partial(make_verdict, DMON, "nvidia-smi dmon")
    slow = [gpu for gpu, clock in clocks.items() if clock < LOW_CLOCK * usual]
    for gpu in slow:
        sample, line = samples[gpu]
        violation = sample.get("pviol", "0")
        why = "" if violation in ("0", "-") else f" ({violation} % of the time held back for power)"
        words = f"{clocks[gpu]} MHz under load{why}, others {usual:.0f} MHz"
        yield repeat("warn", words, f"gpu:{gpu}", line)
    if not slow:
        count = count_with_noun(len(clocks), "GPU")
        yield repeat("note", f"{count} under load, none far below the clock of the others")


def _is_loaded(sample: dict[str, str]) -> bool:
    load, clock = sample.get("sm", ""), sample.get("pclk", "")
    return load.isdecimal() and clock.isdecimal() and len(clock) < 9 and int(load[:9]) >= LOADED
