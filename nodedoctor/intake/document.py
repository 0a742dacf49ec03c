"""What was read as one JSON document, `nodedoctor.read/1`; within /1 keys are only ever added."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from nodedoctor import __version__
from nodedoctor.intake.all_shapes import SHAPES
from nodedoctor.intake.judge import Reading, Recognised, Unrecognised
from nodedoctor.intake.shape import Shape
from nodedoctor.patterns import regex
from nodedoctor.report.document import Report
from nodedoctor.report.page import lead
from nodedoctor.wording import about, and_more, comma_list, count_with_noun

SCHEMA = "nodedoctor.read/1"
_ABSENT = regex(r"no (?P<what>.{3,60}) in (?P<where>(?P<lines>\d+) lines? .*)")
"""How checks of the kernel's log say that there is nothing."""
_PARTLY_READ = "not every line was read: "
"""How checks say that an output was read, and lines of it were not."""
FEW_LINES = 10
"""Lines of the kernel's log below which what is not among them shows nothing: somebody chose them. Ours."""
LONGEST_FIRST = 60
"""Characters of a line that was not recognised in the headline; ours."""
COMMANDS = 4
"""Commands that are named as those which would decide the rest; ours."""

_ORDER = ("kernel-log", "nvidia-smi-q", "nvidia-smi-topo", "nvidia-smi-nvlink", "ibv-devinfo", "env")
"""Outputs by how much of what one paste leaves open each of them decides; ours."""
_NEXT: Mapping[str, tuple[str, ...]] = {
    "gpu": ("nvidia-smi-q", "kernel-log", "nvidia-smi-nvlink", "nvidia-smi-topo"),
    "rdma": ("ibv-devinfo", "ibstat", "kernel-log"),
    "kernel": ("nvidia-smi-q", "nvidia-smi-nvlink"),
    "pci": ("nvidia-smi-q", "kernel-log"),
    "network": ("ibv-devinfo", "kernel-log"),
    "job": ("nvidia-smi-topo", "ibv-devinfo"),
    "stack": ("nvidia-smi",),
    "cluster": ("nvidia-smi-q", "kernel-log"),
    "services": ("kernel-log", "nvidia-smi-q"),
    "measured": ("nvidia-smi-q", "nvidia-smi-topo"),
}
"""What tells of the same thing and decides more, by what an output is about."""


def document(reading: Reading) -> dict[str, Any]:
    """The reading as plain data."""
    reports = [node.report for node in reading.nodes]
    return {
        "schema": SCHEMA,
        "tool": __version__,
        "headline": headline(reading),
        "recognised": [_recognised_row(item) for item in reading.recognised],
        "unrecognised": [_unrecognised_row(item) for item in reading.unrecognised],
        "notes": list(reading.notes),
        "shows": statements(reports[0]) if len(reports) == 1 else [],
        "next": next_commands(reading),
        "report": reports[0] if len(reports) == 1 else None,
        "fleet": reading.fleet,
        "triage": reading.triage,
    }


def render(lines: Mapping[str, Any]) -> str:
    """The document as text, ASCII only."""
    return json.dumps(lines, indent=1) + "\n"


def headline(reading: Reading) -> str:
    """The one sentence: what is wrong, else what can be said, else that nothing was recognised."""
    parts = []
    failed = reading.triage is not None and reading.triage.get("outcome") == "failure"
    if len(reading.nodes) == 1:
        report = reading.nodes[0].report
        is_rest = failed and not lead(report) and statements(report)
        parts.append("the rest shows no problem" if is_rest else _of_node(report, reading))
    elif reading.fleet is not None:
        parts.append(of_fleet(reading.fleet, is_part=bool(reading.silent)))
    if parts and reading.silent:
        parts.insert(0, f"{comma_list(reading.silent, 4)} did not answer")
    if reading.triage is not None:
        parts.insert(0 if failed else len(parts), str(reading.triage.get("headline", "")))
    if parts:
        return "; ".join(part.rstrip(".") for part in parts if part)
    if reading.recognised:
        return f"{comma_list(kinds(reading), 3)}, from which nothing can be judged"
    return "nothing was recognised"


def _of_node(report: Report, reading: Reading) -> str:
    if led := lead(report):
        return led
    lines, measured = statements(report)[:2], _unjudged_text(report)
    read = "this paste" if len(reading.recognised) == 1 else "these outputs"
    nothing_else = _unread_text(reading) or f"; nothing else was in {read}"
    if lines:
        result = f"{measured}; otherwise no problem found" if measured else "no problem found"
        return f"{result}: {'; '.join(lines)}{nothing_else}"
    if measured:
        return f"{measured}{nothing_else}"
    return f"nothing in {comma_list(kinds(reading), 3)} can be judged by itself"


def is_judged(report: Report) -> bool:
    """Whether anything can be stated of a node: without a statement it is unknown, not well."""
    return bool(lead(report) or statements(report) or _unjudged_text(report))


def _unread_text(reading: Reading) -> str:
    """How much was given and not read, which no other statement covers; "" where all was."""
    if not reading.unrecognised:
        return ""
    lines = sum(item.lines for item in reading.unrecognised)
    first = min(reading.unrecognised, key=lambda item: (item.name, item.line)).first.strip()
    shown = first if len(first) <= LONGEST_FIRST else f"{first[: LONGEST_FIRST - 3]}..."
    verb = "was" if lines == 1 else "were"
    begin = "it is" if lines == 1 else "the first is"
    return f"; {count_with_noun(lines, 'line')} {verb} not recognised and not judged ({begin} {shown!r})"


def _unjudged_text(report: Report) -> str:
    """What was read and has no bound without another output."""
    findings = (finding for result in report["results"] for finding in result["findings"])
    match = (
        item
        for item in findings
        if item["status"] == "unknown"
        and (item["evidence"] or item["summary"].startswith(_PARTLY_READ))
        and not item.get("judged_without")
    )
    return next((about(item["subject"] or "", item["summary"]) for item in match), "")


def of_fleet(fleet: Mapping[str, Any], *, is_part: bool = False) -> str:
    """How a fleet is, in one clause; `is_part` where other nodes did not answer."""
    nodes = [node for node in fleet.get("nodes") or () if isinstance(node, dict)]
    number = count_with_noun(len(nodes), "node")
    for status, words in (("fail", "failed"), ("warn", "have warnings")):
        if hosts := [node["host"] for node in nodes if status in (node.get("status"), node.get("verdict"))]:
            return f"{len(hosts)} of {number} {words}: {comma_list(hosts, 4)}"
    oddities = [oddity for oddity in fleet.get("oddities") or () if isinstance(oddity, dict)]
    if oddities:
        first, more = oddities[0], and_more(len(oddities) - 1)
        return f"{number} differ: {first['title']}: {first['summary']}{more}"
    if (verdict := fleet.get("verdict")) in ("fail", "warn"):
        return f"{number}: {verdict}"
    return f"no problem found on the {len(nodes)} that did" if is_part else f"no problem found on {number}"


def kinds(reading: Reading) -> list[str]:
    """What was recognised, each once."""
    return list(dict.fromkeys(item.what for item in reading.recognised))


def statements(report: Report) -> list[str]:
    """What the outputs show: what passed or is noted, also where something was not there."""
    match = [
        finding
        for result in report["results"]
        for finding in result["findings"]
        if finding["status"] == "pass"
        or (
            finding["status"] == "unknown"
            and finding.get("judged_without")
            and finding["reason"] != "unparsable"
        )
    ]
    return _merge_summaries(
        dict.fromkeys(about(finding["subject"] or "", finding["summary"]) for finding in match)
    )


def _merge_summaries(summaries: Iterable[str]) -> list[str]:
    """`no A in 99 lines` and `no B in 99 lines` as one statement; not of a few lines."""
    absent: dict[str, list[str]] = {}
    lines: list[str] = []
    for summary in summaries:
        if match := _ABSENT.fullmatch(summary):
            if int(match["lines"]) >= FEW_LINES:
                absent.setdefault(match["where"], []).append(match["what"])
        else:
            lines.append(summary)
    return [*lines, *(f"no {', '.join(what)} in {where}" for where, what in absent.items())]


def next_commands(reading: Reading) -> list[str]:
    """The commands whose outputs would decide what these leave open."""
    have = {item.probe for item in reading.recognised}
    if not have - {""} or len(reading.nodes) != 1:
        return []
    if "nvidia-smi-xml" in have:
        have.add("nvidia-smi-q")
    shapes = {shape.probe: shape for shape in reversed(SHAPES)}
    wanted: dict[str, Shape] = {}
    for probe in sorted(have - {""}):
        for candidate in _NEXT.get(shapes[probe].about if probe in shapes else "", ()):
            if candidate not in have:
                wanted[candidate] = shapes[candidate]
    ordered = sorted(wanted, key=lambda probe: _ORDER.index(probe) if probe in _ORDER else len(_ORDER))
    return [wanted[probe].tool for probe in ordered][:COMMANDS]


def _recognised_row(item: Recognised) -> dict[str, Any]:
    return {
        "name": item.name,
        "line": item.line,
        "what": item.what,
        "probe": item.probe or None,
        "lines": item.lines,
        "node": item.node or None,
    }


def _unrecognised_row(item: Unrecognised) -> dict[str, Any]:
    return {"name": item.name, "line": item.line, "lines": item.lines, "first": item.first}
