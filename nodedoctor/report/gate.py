"""May new jobs start on this node? The answer of `--gate`, made from a report and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nodedoctor.knowledge.gates import may_refuse
from nodedoctor.report.document import Cause, Finding, Gate, Report, full_summary, is_broken
from nodedoctor.report.page import cause_line
from nodedoctor.wording import about, and_more, count_with_noun

PASS, REFUSE, UNJUDGED, DRAIN_WHEN_IDLE = 0, 2, 3, 4
STRICTEST = (REFUSE, UNJUDGED, DRAIN_WHEN_IDLE, PASS)
"""The exit codes in the order in which they decide."""

WORDS: Mapping[int, str] = {
    PASS: "pass",
    REFUSE: "refuse",
    UNJUDGED: "unjudged",
    DRAIN_WHEN_IDLE: "drain-when-idle",
}

_USE = (
    "driver.answers",
    "driver.gpus-present",
    "driver.module-userspace",
    "driver.libcuda",
    "driver.modules",
)
"""Checks by which a program here can use no GPU, whatever the node outside of its container does."""
_DRIVER = ("nvml", "nvidia-smi")
"""What the names of probes that ask the driver begin with."""
_HUNG = ("timeout", "stuck")


def gate_of(report: Report) -> Gate:
    """Exit code, word and the ids that decide: causes, or findings that could not be judged."""
    causes = [cause for cause in report["causes"] if not cause.get("preview")]
    refusing = [cause["id"] for cause in causes if cause["schedulable"] == "no"]
    unjudged = [finding["id"] for finding in _unjudged_findings(report)]
    waiting = [cause["id"] for cause in causes if cause["schedulable"] == "drain-when-idle"]
    if unusable := _container_without_gpus(report):
        return _gate_entry(UNJUDGED, unusable)
    if refusing:
        return _gate_entry(REFUSE, refusing)
    if unjudged:
        return _gate_entry(UNJUDGED, unjudged)
    return _gate_entry(DRAIN_WHEN_IDLE if waiting else PASS, waiting)


def render(report: Report, gate: Gate) -> str:
    """One line: the worst cause that decides and what to do, or why the node was not judged."""
    deciding = [cause for cause in report["causes"] if cause["id"] in gate["causes"]]
    if gate["exit"] in (REFUSE, DRAIN_WHEN_IDLE):
        return f"{cause_line(deciding[0])}{and_more(len(deciding) - 1)}\n"
    if gate["exit"] == UNJUDGED:
        if _container_without_gpus(report):
            return "UNKN: this container is unusable; the node was not judged\n"
        findings = list(_unjudged_findings(report))
        first = findings[0]
        check = first["id"].partition("@")[0]
        more = and_more(len(findings) - 1)
        return f"UNKN: {check}: {about(first['subject'] or '', full_summary(first))}{more}\n"
    return f"PASS: new jobs may start here{_uncounted_problems(report['causes'])}\n"


def _gate_entry(code: int, causes: Sequence[str]) -> Gate:
    return {"exit": code, "word": WORDS[code], "causes": list(causes)}


def _uncounted_problems(causes: Sequence[Cause]) -> str:
    """The problems that keep no job away."""
    if not causes:
        return ""
    return f"; {count_with_noun(len(causes), 'problem')} listed, not counted: {cause_line(causes[0])}"


def _counted_findings(report: Report) -> Iterator[tuple[str, Finding]]:
    for result in report["results"]:
        for finding in result["findings"]:
            if finding["waived"] is None and not finding.get("preview"):
                yield result["check"], finding


def _unjudged_findings(report: Report) -> Iterator[Finding]:
    """What hung, crashed or was denied, of the checks that may refuse jobs."""
    for check, finding in _counted_findings(report):
        if (is_broken(finding) or finding["reason"] == "denied") and may_refuse(check):
            yield finding


def _container_without_gpus(report: Report) -> list[str]:
    """The findings by which this container can use no GPU; none outside of one, or where the driver hangs."""
    hangs = any(probe["name"].startswith(_DRIVER) and probe["outcome"] in _HUNG for probe in report["probes"])
    if hangs or not report["node"].get("container"):
        return []
    failed = (
        (check, f) for check, f in _counted_findings(report) if f["status"] == "fail" and not f["subject"]
    )
    return [finding["id"] for check, finding in failed if check in _USE]
