"""`kubectl describe node`: its conditions, and the GPUs that the device plugin counts as healthy.

Format: kubernetes/kubectl 1.10 to 1.35, pkg/describe/describe.go (describeNode).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import WORDS, Verdict
from nodedoctor.patterns import regex
from nodedoctor.wording import count_with_noun

PROBE = "kubernetes-node"
TOOL = "kubectl describe node"
kubernetes_node = pasted(PROBE, "The output of kubectl describe node.")

_CONDITION = regex(
    r"^[ \t]{1,8}(?P<type>[A-Z]\w{2,60})[ \t]{1,60}(?P<status>True|False|Unknown)[ \t][^\n]{0,800}$",
    re.MULTILINE,
)
_GPUS = regex(
    r"^[ \t]{1,8}(?P<name>nvidia\.com/(?:gpu|mig-[\w.-]{1,40}))[:=]?[ \t]{1,60}"
    r"(?P<count>\d{1,5})[ \t]{0,20}$",
    re.MULTILINE,
)
_DATES = regex(r"(?:[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}|<unknown>)[ \t]{0,20}")
_WANTED = regex(r"(?:Ready|Healthy|Available)$")
"""Conditions that are True on a healthy node."""
_UNWANTED = regex(
    r"Pressure|Problem|Error|Fail|Fault|Unavailable|Unhealthy|Deadlock|Readonly|Corrupt|Frequent|Lost|Hung|Xid"
)
"""Conditions that are False on a healthy node: kubelet's and those of node-problem-detector."""
_EVENT = regex(
    r"^[ \t]{1,8}Warning[ \t]{1,20}(?P<reason>(?:SystemOOM|OOMKilling|NodeNotReady|KernelOops|TaskHung"
    r"|\w{0,40}(?:GPU|Gpu|Xid|XID))\w{0,40})"
    r"[ \t][^\n]{0,800}$",
    re.MULTILINE,
)
_SECTIONS = ("Conditions:", "Capacity:", "Allocatable:", "Events:")


def verdicts(output: str) -> Iterator[Verdict]:
    """Conditions that are not as on a healthy node, GPUs that pods do not get, and what is well."""
    parts = _parts(output)
    conditions = [*_CONDITION.finditer(parts.get("Conditions:", ""))]
    for row in conditions:
        wanted, status = bool(_WANTED.search(row["type"])), row["status"]
        if (wanted and status != "True") or (
            _UNWANTED.search(row["type"]) and not wanted and status == "True"
        ):
            columns = " ".join(_DATES.sub("", row[0]).split()).split(None, 2)
            words = " ".join([f"{row['type']} is {status}", *([f"({columns[2]})"] if columns[2:] else [])])
            grave = row["type"] == "Ready"
            yield Verdict(
                PROBE,
                TOOL,
                "fail" if grave else "warn",
                words[:WORDS],
                f"condition:{row['type']}",
                row[0].strip(),
            )
    yield from _gpus(parts)
    for event in _EVENT.finditer(parts.get("Events:", "")):
        yield Verdict(
            PROBE,
            TOOL,
            "warn",
            " ".join(event[0].split())[:WORDS],
            f"event:{event['reason']}",
            event[0].strip(),
        )
    ready = next((row for row in conditions if row["type"] == "Ready" and row["status"] == "True"), None)
    if ready:
        count = count_with_noun(len(conditions), "condition")
        yield Verdict(PROBE, TOOL, "pass", f"Ready is True, {count} read", quote=ready[0].strip())


def _gpus(parts: dict[str, str]) -> Iterator[Verdict]:
    has, gives = (
        {row["name"]: row for row in _GPUS.finditer(parts.get(name, ""))} for name in _SECTIONS[1:3]
    )
    for name, row in gives.items():
        if not has:
            words = f"{row['count']} {name} allocatable; how many it has was not pasted"
            yield Verdict(PROBE, TOOL, "note", words, f"resource:{name}", row[0].strip())
    for name, row in has.items():
        if name not in gives:
            continue
        all_of, usable = int(row["count"]), int(gives[name]["count"])
        if usable < all_of:
            words = (
                f"{usable} of {all_of} {name} allocatable: the device plugin counts the others as unhealthy"
            )
            yield Verdict(PROBE, TOOL, "fail", words, f"resource:{name}", gives[name][0].strip())
        elif not all_of and name == "nvidia.com/gpu" and len(has) == 1:
            words = f"no {name}: the device plugin offers none"
            yield Verdict(PROBE, TOOL, "warn", words, f"resource:{name}", row[0].strip())
        elif all_of:
            yield Verdict(
                PROBE, TOOL, "pass", f"{usable} of {all_of} {name} allocatable", quote=row[0].strip()
            )


def _parts(output: str) -> dict[str, str]:
    """The lines below each heading that are indented further than it is."""
    sections: dict[str, list[str]] = {}
    heading, margin = "", 0
    for line in output.splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and (indent <= margin or line.strip() in _SECTIONS):
            heading, margin = line.split(None, 1)[0], indent
        elif heading in _SECTIONS:
            sections.setdefault(heading, []).append(line[margin:])
    return {name: "\n".join(lines) for name, lines in sections.items()}
