"""Lines of `nvidia-smi -q` that lost the blanks in front of them: their names tell what they are below."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from nodedoctor.facts.gpu.smi import fields
from nodedoctor.facts.gpu.smi.sections import Section, plain
from nodedoctor.patterns import regex

_COLON = regex(r"(?<=\S)\s+:(?=\s|$)|(?:(?<=\.total)|(?<=\.[ds]ram)):(?=\s)")
_MORE = (
    *("ecc_errors/volatile/single_bit/total", "ecc_errors/volatile/double_bit/total"),
    *("ecc_errors/aggregate/single_bit/total", "ecc_errors/aggregate/double_bit/total"),
    *("ecc_errors/aggregate_uncorrectable_sram_sources/sram_l2", "fabric/health/summary"),
    *("remapped_rows/bank_remap_availability_histogram/max", "clocks_event_reasons_counters/sw_power_cap"),
    *("clocks_event_reasons/idle", "clocks_throttle_reasons/idle", "processes/process_id"),
    "pci/bridge_chip/type",
)
"""Paths of what is no single field."""


def parse_line(content: str) -> Section:
    """A key with its value, or the heading of what follows."""
    if colon := _COLON.search(content):
        # R610 calls a threshold "GPU Slowdown T.Limit Temp Specification"
        key, value = content[: colon.start()], content[colon.end() :].lstrip()
        return Section(plain(key.removesuffix(" Specification")), value)
    return Section(plain(content))


def is_flat(device: re.Pattern[str], lines: Sequence[str]) -> bool:
    """Whether lines that are below others are as far left as these."""
    indents = {len(line) - len(line.lstrip()) for line in lines}
    return len(indents) == 1 and any(device.match(line) or plain(line) in _headings() for line in lines)


def nest_flat_lines(device: re.Pattern[str], lines: Sequence[str]) -> Section:
    """Each line below the nearest heading before it that has a line of its name, else below the last one."""
    root = gpu = Section("")
    branch = [("", root)]  # the headings around the line, each with its path below the GPU
    for line in lines:
        content = line.strip()
        if match := device.match(content):
            gpu = Section("gpu", match[1])
            root.parts.append(gpu)
            branch = [("", gpu)]
            continue
        section = parse_line(content)
        if not section.name or content.startswith("="):
            continue
        is_heading = _COLON.search(content) is None
        homes = [
            at for at, (path, _) in enumerate(branch) if _join_path(path, section.name) in _paths(is_heading)
        ]
        if homes or is_heading:
            del branch[max(homes, default=0) + 1 :]
        branch[-1][1].parts.append(section)
        if is_heading:
            branch.append((_join_path(branch[-1][0], section.name), section))
    return root


def _join_path(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


@cache
def _paths(headings: bool) -> frozenset[str]:
    """The paths of all values, or those of the headings above them."""
    values = (*(path for row in fields.rows() for path in row.paths), *_MORE)
    if not headings:
        return frozenset(values)
    parts = (path.split("/") for path in values)
    return frozenset("/".join(names[:end]) for names in parts for end in range(1, len(names)))


@cache
def _headings() -> frozenset[str]:
    """The names of headings that are below a GPU."""
    return frozenset(path for path in _paths(True) if "/" not in path)
