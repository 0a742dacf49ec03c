"""The report as metrics, for the textfile collector of node_exporter (or any reader of Prometheus text).

A check is one number that ranks how bad things are, so that a rule compares and a series never changes its
labels; what is wrong with which part is in series that exist only while something is wrong. Evidence,
addresses and host names are no labels: Prometheus itself says which node it read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.json_shapes import moment_of, number
from nodedoctor.model import Severity, Status
from nodedoctor.record import record
from nodedoctor.report.document import Finding, Report, severity, severity_of
from nodedoctor.report.inert import inert

MOST_FINDINGS = 200
"""Findings that are written, the worst first: a bound of ours; recorded nodes have eight at most."""
LONGEST_LABEL = 120
"""Characters of a label value; subjects are shorter, but hold names that the node chose (ours)."""

_ABOUT = ("driver", "cuda", "gpu", "torch", "container", "form", "kernel")

Sample = tuple[Mapping[str, Any], float]


@record
class _Metric:
    name: str
    help: str
    samples: tuple[Sample, ...]


def render(report: Report) -> str:
    """A `nodedoctor.report/1` as Prometheus text: every metric once, with its help, type and samples."""
    lines: list[str] = []
    for metric in _all_metrics(report):
        if metric.samples:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} gauge"]
            lines += [
                f"{metric.name}{_label_text(labels)} {_number_text(value)}"
                for labels, value in metric.samples
            ]
    return "".join(f"{line}\n" for line in lines)


def _all_metrics(report: Report) -> Iterator[_Metric]:
    yield from _run_metrics(report)
    yield from _verdict_metrics(report)
    yield from _finding_metrics(report)


def _run_metrics(report: Report) -> Iterator[_Metric]:
    node = report["node"]
    about: dict[str, Any] = {"version": report["tool"], "source": report["source"]}
    about |= {name: node.get(name) for name in _ABOUT}
    yield _Metric("nodedoctor_info", "What was looked at, and by which nodedoctor.", ((about, 1),))
    began = moment_of(report["started"])
    yield _Metric(
        "nodedoctor_last_run_timestamp_seconds",
        "When the last run began, in seconds since the epoch.",
        () if began is None else (({}, began.timestamp()),),
    )
    yield _Metric("nodedoctor_run_seconds", "How long the last run took.", (({}, report["seconds"]),))
    if (gpus := number(node.get("gpus"))) is not None:
        yield _Metric("nodedoctor_gpus", "GPUs that the driver shows.", (({}, gpus),))


def _verdict_metrics(report: Report) -> Iterator[_Metric]:
    verdict, counts = report["verdict"], report["counts"]
    yield _Metric(
        "nodedoctor_verdict",
        "1 for the status of the whole node, 0 for every other.",
        tuple(({"status": status.value}, int(status.value == verdict)) for status in Status),
    )
    yield _Metric(
        "nodedoctor_checks",
        "Checks that ended in this status.",
        tuple(({"status": status.value}, counts[status.value]) for status in Status),
    )
    yield _Metric(
        "nodedoctor_check_severity",
        "How bad a check ended: 0 skipped, 1 passed (or waived), 2 could not be seen from here, 3 warning,"
        " 4 hung, crashed or answered nonsense, 5 failed.",
        tuple(({"check": result["check"]}, severity_of(result)) for result in report["results"]),
    )


def _finding_metrics(report: Report) -> Iterator[_Metric]:
    """What is wrong with which part; the worst of those that would make the same series."""
    findings: dict[tuple[str, str], Finding] = {}
    waived = 0
    for result in report["results"]:
        for finding in result["findings"]:
            waived += bool(finding["waived"])
            key = result["check"], _part_label(finding)
            least = severity(findings[key]) if key in findings else Severity.BLIND
            if severity(finding) > least:
                findings[key] = finding
    worst = sorted(findings.items(), key=lambda item: -severity(item[1]))
    samples = tuple((_problem_labels(*key, finding), 1) for key, finding in worst[:MOST_FINDINGS])
    yield _Metric(
        "nodedoctor_finding",
        "1 while this part of the node is not well; action is the least drastic step that repairs it.",
        samples,
    )
    omitted = len(worst) - len(samples)
    yield _Metric(
        "nodedoctor_findings_left_out", "Problems without a sample of nodedoctor_finding.", (({}, omitted),)
    )
    yield _Metric("nodedoctor_findings_waived", "Findings that this site accepts for now.", (({}, waived),))


def _part_label(finding: Finding) -> str:
    """The subject; without the number of a process, which would make a new series every time."""
    return re.sub(r"^pid:\d+$", "pid", _label_value(finding["subject"]))


def _problem_labels(check: str, subject: str, finding: Finding) -> dict[str, Any]:
    return {
        "check": check,
        "subject": subject,
        "status": finding["status"],
        "reason": finding["reason"],
        "action": finding["fix"]["action"] if finding["fix"] else "investigate",
        "stage": "preview" if finding.get("preview") else None,
    }


def _label_text(labels: Mapping[str, Any]) -> str:
    """Labels as `{name="value"}`, escaped; one without a value is left out, which means the same."""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    written = (
        f'{name}="{_label_value(value).translate(escapes)}"' for name, value in labels.items() if value
    )
    text = ",".join(written)
    return f"{{{text}}}" if text else ""


def _label_value(value: Any) -> str:
    return inert(str(value or ""))[:LONGEST_LABEL]


def _number_text(value: float) -> str:
    """The shortest decimals that read back as the same number."""
    return str(int(value)) if value == int(value) else repr(float(value))
