"""`kubectl describe node`: its conditions, and the GPUs that the device plugin counts as healthy; and of a
pod why it waits, how its containers ended, and what its events warn of.

Format: kubernetes/kubectl 1.10 to 1.35, pkg/describe/describe.go (describeNode, describePod).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Result, Verdict, make_verdict
from nodedoctor.patterns import regex
from nodedoctor.wording import count_with_noun

NODE, POD = "kubernetes-node", "kubernetes-pod"
kubernetes_node = pasted(NODE, "The output of kubectl describe node.")
kubernetes_pod = pasted(POD, "The output of kubectl describe pod.")
_of_node = partial(make_verdict, NODE, "kubectl describe node")
_of_pod = partial(make_verdict, POD, "kubectl describe pod")

_CONDITION = regex(
    r"^[ \t]{1,8}(?P<type>[A-Z]\w{2,60})[ \t]{1,60}(?P<status>True|False|Unknown)[ \t][^\n]{0,800}$",
    re.MULTILINE,
)
_DATED = regex(
    r"^[ \t]{0,8}(?P<type>[A-Z]\w{2,60})[ \t]{1,60}(?P<status>True|False|Unknown)[ \t]{1,40}"
    r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}[ \t][^\n]{0,800}$",
    re.MULTILINE,
)
"""The row of a condition by its own form: where the heading above it was left out."""
_GPUS = regex(
    r"^[ \t]{1,8}(?P<name>nvidia\.com/(?:gpu|mig-[\w.-]{1,40}))[:=]?[ \t]{1,60}"
    r"(?P<count>\d{1,5})[ \t]{0,20}$",
    re.MULTILINE,
)
_DATES = regex(r"(?:[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}|<unknown>)[ \t]{0,20}")
_WANTED = regex(r"(?:Ready|Healthy|Available)$")
"""Conditions that are True on a healthy node."""
_NEUTRAL = regex(r"(?:IsVoter|Enabled|Running|Synced|Succeeded|O[Kk])$")
"""Conditions whose True is no fault, and whose False is none either."""
_UNWANTED = regex(
    r"Pressure|Problem|Error|Fail|Fault|Unavailable|Unhealthy|Deadlock|Readonly|Corrupt|Frequent|Lost|Hung|Xid"
)
"""Conditions that are False on a healthy node: kubelet's and those of node-problem-detector."""
_NO_FAULT = regex(r"No[A-Z]")
"""In a reason, before what is absent: KernelHasNoDeadlock."""
_UNHEALTHY = regex(r"[a-z]NotHealthy\b|\bErrorCode:|\bRecommended ?Action=(?!NONE\b)")
"""How NVSentinel words a fault, whatever the condition's name: NVIDIA/NVSentinel, platform-connectors."""
_CORDONED = regex(r"^[ \t]{0,8}Unschedulable:[ \t]{1,40}true[ \t]*$", re.MULTILINE)
_EVENT = regex(
    r"^[ \t]{1,8}Warning[ \t]{1,20}(?P<reason>(?:SystemOOM|OOMKilling|NodeNotReady|KernelOops|TaskHung"
    r"|\w{0,40}(?:GPU|Gpu|Xid|XID))\w{0,40})"
    r"[ \t][^\n]{0,800}$",
    re.MULTILINE,
)
_SPACE_EVENT = regex(
    r"^[ \t]{1,8}Warning[ \t]{1,20}(?P<reason>EvictionThresholdMet|FreeDiskSpaceFailed|ImageGCFailed)"
    r"[ \t][^\n]{0,800}$",
    re.MULTILINE,
)
"""What the kubelet lacks room for, and what it tried."""
_SECTIONS = ("Conditions:", "Capacity:", "Allocatable:", "Events:")


def node(output: str) -> Iterator[Verdict]:
    """Conditions that are not as on a healthy node, GPUs that pods do not get, and what is well."""
    parts = _split_sections(output)
    conditions = [*_CONDITION.finditer(parts.get("Conditions:", ""))] or [*_DATED.finditer(output)]
    known_count = 0
    for row in conditions:
        if result := _result_of(row):
            columns = " ".join(_columns(row))
            words = " ".join([f"{row['type']} is {row['status']}", *([f"({columns})"] if columns else [])])
            if result == "note":
                words = f"{words}: whether that is a fault is not known, not judged"
            yield _of_node(result, words, f"condition:{row['type']}", row[0])
        known_count += result != "note"
    if cordoned := _CORDONED.search(output):
        yield _of_node("note", "the node is cordoned (Unschedulable: true)", "cordoned", cordoned[0])
    yield from _gpu_verdicts(parts)
    for event in _EVENT.finditer(parts.get("Events:", "")):
        yield _of_node("warn", " ".join(event[0].split()), f"event:{event['reason']}", event[0])
    for event in _SPACE_EVENT.finditer(parts.get("Events:", "")):
        yield _of_node("note", " ".join(event[0].split()), f"event:{event['reason']}", event[0])
    ready = next((row for row in conditions if row["type"] == "Ready" and row["status"] == "True"), None)
    if ready:
        count = count_with_noun(len(conditions), "condition")
        count = f"{count} read" if known_count == len(conditions) else f"{known_count} of {count} judged"
        yield _of_node("pass", f"Ready is True, {count}", quote=ready[0])


def _columns(row: re.Match[str]) -> list[str]:
    """A condition's reason and message, without the dates."""
    return " ".join(_DATES.sub("", row[0]).split()).split(None, 3)[2:]


def _result_of(row: re.Match[str]) -> Result | None:
    """What a condition is: a fault, None where all is well, a note where its name and reason say neither."""
    if _WANTED.search(row["type"]):
        if row["status"] == "True":
            return None
        return "fail" if row["type"] == "Ready" else "warn"
    if row["status"] != "True":
        return None
    reason = next(iter(_columns(row)), "")
    is_fault = (
        _UNWANTED.search(row["type"])
        or _UNHEALTHY.search(row[0])
        or (_UNWANTED.search(reason) and not _NO_FAULT.search(reason))
    )
    if is_fault:
        return "warn"
    return None if _NEUTRAL.search(row["type"]) else "note"


def _gpu_verdicts(parts: dict[str, str]) -> Iterator[Verdict]:
    has, gives = (
        {row["name"]: row for row in _GPUS.finditer(parts.get(name, ""))} for name in _SECTIONS[1:3]
    )
    for name, row in gives.items():
        if not has:
            words = f"{row['count']} {name} allocatable; how many it has was not pasted"
            yield _of_node("note", words, f"resource:{name}", row[0])
    for name, row in has.items():
        if name not in gives:
            continue
        all_of, usable = int(row["count"]), int(gives[name]["count"])
        if usable < all_of:
            words = (
                f"{usable} of {all_of} {name} allocatable: the device plugin counts the others as unhealthy"
            )
            yield _of_node("fail", words, f"resource:{name}", gives[name][0])
        elif not all_of and name == "nvidia.com/gpu" and len(has) == 1:
            words = f"no {name}: the device plugin offers none"
            yield _of_node("warn", words, f"resource:{name}", row[0])
        elif all_of:
            yield _of_node("pass", f"{usable} of {all_of} {name} allocatable", quote=row[0])


def _split_sections(output: str) -> dict[str, str]:
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


_STATUS = regex(r"^[ \t]{0,40}Status:[ \t]{1,40}(?P<status>\w{3,30})[ \t]*$", re.M)
_TERMINATED = regex(
    r"^[ \t]{1,40}(?:Last )?State:[ \t]{1,20}Terminated[ \t]*\n"
    r"[ \t]{1,40}Reason:[ \t]{1,20}(?P<reason>\w{2,40})"
    r"(?:[^\n]{0,200}\n[ \t]{1,40}(?:Message:[^\n]{0,400}\n[ \t]{1,40})?"
    r"Exit Code:[ \t]{1,20}(?P<code>\d{1,3}))?",
    re.M,
)
_WAITS = regex(
    r"^[ \t]{1,40}State:[ \t]{1,20}Waiting[ \t]*\n[ \t]{1,40}Reason:[ \t]{1,20}(?P<reason>\w{2,60})", re.M
)
_WARNING = regex(r"^[ \t]{1,40}Warning[ \t]{1,20}(?P<reason>[A-Z]\w{2,40})[ \t][^\n]{0,1000}$", re.M)
_AGE = regex(r"^Warning \w+ \S{1,20}(?: \(x\d{1,9} over \S{1,20}\))? [\w.-]{1,60}(?:, \S{1,80})? ")
_STARTING = ("ContainerCreating", "PodInitializing")
"""Reasons for which every pod waits at first."""
_FINE = ("Completed",)


def pod(output: str) -> Iterator[Verdict]:
    """Warnings of its events, containers that wait or ended badly; its status where there is none."""
    problems = False
    for row in _TERMINATED.finditer(output):
        if row["reason"] not in _FINE and row["code"] != "0":
            problems = True
            code = f", exit code {row['code']}" if row["code"] else ""
            yield _of_pod(
                "warn", f"a container ended: {row['reason']}{code}", f"ended:{row['reason']}", row[0]
            )
    for row in _WAITS.finditer(output):
        if row["reason"] not in _STARTING:
            problems = True
            yield _of_pod("warn", f"a container waits: {row['reason']}", f"waits:{row['reason']}", row[0])
    reasons = set()
    for row in _WARNING.finditer(output):
        if row["reason"] not in reasons:
            problems = True
            reasons.add(row["reason"])
            message = _AGE.sub("", " ".join(row[0].split()))
            yield _of_pod("warn", f"{row['reason']}: {message}", f"event:{row['reason']}", row[0])
    status = _STATUS.search(output)
    if status and not problems:
        is_well = status["status"] in ("Running", "Succeeded")
        yield _of_pod("pass" if is_well else "note", f"status {status['status']}", quote=status[0])
