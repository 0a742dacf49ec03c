"""Reads `nvidia-smi -q` into sections by its indentation; the width of the key column does not matter."""

from __future__ import annotations

import re

from nodedoctor.facts.gpu.smi.sections import Section, inert, plain

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])$")
_PARTS = frozenset(
    plain(heading)
    for heading in (
        *("ECC Mode", "ECC Errors", "Remapped Rows", "Retired Pages", "Temperature", "Clocks", "Max Clocks"),
        *("GPU Power Readings", "Clocks Event Reasons", "Clocks Throttle Reasons", "PCI", "Fabric"),
        *("FB Memory Usage", "Utilization", "MIG Mode", "Processes"),
    )
)
"""Headings of a GPU's sections, by which a paste without the line that names the GPU is known."""
_KEYED = re.compile(r"(?P<key>.*?\S)\s+:(?:\s+(?P<value>.*))?$")


def read_q(text: str) -> Section | None:
    """A root that holds the header's keys and one `gpu` section per device, None when there is neither.

    Sections cut out of the text of one GPU are that GPU's, though its name and address are not told.
    """
    root = Section("")
    branch = [(-1, root)]  # the sections around the line, each with its indentation
    for line in inert(text).expandtabs().splitlines():
        content = line.strip()
        if not content:
            continue
        indent = len(line) - len(line.lstrip())
        device = _GPU.match(content)
        while branch[-1][0] >= indent or (device and len(branch) > 1):
            branch.pop()
        section = Section("gpu", device[1]) if device else _section(content)
        branch[-1][1].parts.append(section)
        branch.append((indent, section))
    if root.find("gpu") or root.find("attached_gpus"):
        return root
    names = [part.name for part in root.parts]
    cut = len(set(names)) == len(names) and any(part.parts and part.name in _PARTS for part in root.parts)
    return Section("", parts=[Section("gpu", parts=root.parts)]) if cut else None


def _section(content: str) -> Section:
    """A key with its value, or the heading of what follows."""
    if keyed := _KEYED.match(content):
        # R610 calls a threshold "GPU Slowdown T.Limit Temp Specification"
        return Section(plain(keyed["key"].removesuffix(" Specification")), keyed["value"] or "")
    return Section(plain(content))
