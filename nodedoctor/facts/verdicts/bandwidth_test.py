"""Copies between host and GPU as CUDA's sample `bandwidthTest` prints them.

Format: NVIDIA/cuda-samples 9 to 12.8, Samples/1_Utilities/bandwidthTest; before 10.2 in MB/s.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Verdict, make_verdict
from nodedoctor.knowledge.floors import host_copy_floors
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.patterns import regex

PROBE = "bandwidth-test"
bandwidth_test = pasted(PROBE, "The output of bandwidthTest of CUDA's samples, one run for each GPU.")
_verdict = partial(make_verdict, PROBE, "bandwidthTest")

_DEVICE = regex(r"^[ \t]{0,8}Device (?P<device>\d{1,3}): (?P<name>[^\n]{3,60})$")
_DIRECTION = regex(
    r"^[ \t]{0,8}(?P<direction>Host to Device|Device to Host) Bandwidth, (?P<devices>\d{1,3}) Device"
)
_KIND = regex(r"^[ \t]{0,8}(?P<kind>PINNED|PAGEABLE) Memory Transfers")
_UNIT = regex(r"Bandwidth ?\((?P<unit>[GM])B/s\)")
_ROW = regex(r"^[ \t]{1,8}\d{6,12}[ \t]{1,8}(?P<rate>\d{1,7}(?:\.\d{1,4})?)[ \t]{0,8}$")
_HALF = 0.5
"""Share of the peers' rate, or of its generation's floor: a slot of one generation before has more. Ours."""
_PEERS = 2


def verdicts(output: str) -> Iterator[Verdict]:
    """Each run of one GPU with pinned memory: its slowest direction, against its peers and its generation."""
    runs = [run for run in _runs(output) if run[2]]
    lowest = [min(rates.values()) for _, _, rates, _ in runs]
    for place, (device, name, rates, quote) in enumerate(runs):
        direction, rate = min(rates.items(), key=lambda item: item[1])
        model = gpu_model(name)
        floors = host_copy_floors(model.pcie_gen, model.pcie_width) if model else []
        others = lowest[:place] + lowest[place + 1 :]
        words = f"device {device} ({name}): {rate:g} GB/s {direction}"
        if len(others) >= _PEERS and rate < _HALF * median(others):
            reason = f", others {median(others):g}"
        elif floors and rate < _HALF * floors[0].least:
            reason = f", at least {floors[0].least:g} expected over {floors[0].fabric}"
        else:
            reason = ""
        yield _verdict("warn" if reason else "pass", f"{words}{reason}", f"copies:{device}", quote)


def _runs(output: str) -> Iterator[tuple[str, str, dict[str, float], str]]:
    """Device, name, the highest rate in each direction, and the line of the first of them."""
    device, name, direction, scale, quote = "", "", "", 1.0, ""
    is_pinned = False
    rates: dict[str, float] = {}
    for line in output.splitlines():
        if match := _DEVICE.match(line):
            if device:
                yield device, name, rates, quote
            device, name, direction, rates, quote = match["device"], match["name"].strip(), "", {}, ""
        elif match := _DIRECTION.match(line):
            direction = match["direction"].lower() if match["devices"] == "1" else ""
        elif match := _KIND.match(line):
            is_pinned = match["kind"] == "PINNED"
        elif match := _UNIT.search(line):
            scale = 1.0 if match["unit"] == "G" else 0.001
        elif device and direction and is_pinned and (match := _ROW.match(line)):
            rates[direction] = max(float(match["rate"]) * scale, rates.get(direction, 0.0))
            quote = quote or line
    if device:
        yield device, name, rates, quote
