"""Reads `nvidia-smi -q` into sections by its indentation; the width of the key column does not matter."""

from __future__ import annotations

import re

from nodedoctor.facts.smi_tree import Section, inert

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])$")
_KEYED = re.compile(r"(?P<key>.*?\S)\s+:(?:\s+(?P<value>.*))?$")


def read_q(text: str) -> Section | None:
    """A root that holds the header's keys and one `GPU` section per device, None when there is neither."""
    root = Section("")
    open_sections = [(-1, root)]
    for line in inert(text).expandtabs().splitlines():
        content = line.strip()
        if not content:
            continue
        indent = len(line) - len(line.lstrip())
        section = _section(content)
        if section.name == "GPU":
            del open_sections[1:]
        while open_sections[-1][0] >= indent:
            open_sections.pop()
        open_sections[-1][1].parts.append(section)
        open_sections.append((indent, section))
    return root if root.find("GPU") or root.find("Attached GPUs") else None


def _section(content: str) -> Section:
    """A device heading, a key with its value, or the heading of what follows."""
    if gpu := _GPU.match(content):
        return Section("GPU", gpu["bus"] if "bus" in gpu.groupdict() else gpu[1])
    if keyed := _KEYED.match(content):
        return Section(keyed["key"], keyed["value"] or "")
    return Section(content)
