"""The report as one JSON document, `nodedoctor.report/1`; within /1 keys are only ever added."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nodedoctor.model import Evidence, Finding, Fix, Observation, Report, Result, Status

SCHEMA = "nodedoctor.report/1"


def document(report: Report) -> dict[str, Any]:
    """The report as plain data."""
    return {
        "schema": SCHEMA,
        "tool": report.tool,
        "source": report.source,
        "started": report.started,
        "seconds": report.seconds,
        "node": dict(report.node),
        "verdict": report.verdict.value,
        "counts": report.counts,
        "results": [_result(result) for result in report.results],
        "probes": [_probe(seen) for seen in report.observations],
        "facts": dict(report.facts or {}),
    }


def render(report: Report) -> str:
    """The document as text, a result, probe or fact a line. ASCII only: valid anywhere, inert on a terminal.

    Indenting throughout would leave json's C encoder unused and take 20 ms. The lines also let a reader of
    thousands of reports take only those it wants (fleet/reports/skim.py).
    """
    lines = (f"{json.dumps(key)}: {_lines(value)}" for key, value in document(report).items())
    return "{" + ",\n".join(lines) + "}"


def severity(finding: Mapping[str, Any]) -> int:
    """How bad a finding of a document is, ranked as `Finding.severity`, for views made from a document."""
    status, reason, waived = Status(finding["status"]), finding.get("reason"), finding.get("waived")
    return Finding(status, "", reason=reason, waived=waived).severity


def _lines(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n " + ",\n ".join(json.dumps(item, default=_plain) for item in value) + "\n]"
    if isinstance(value, dict) and any(isinstance(inner, dict) for inner in value.values()):
        items = (f"{json.dumps(str(key))}: {json.dumps(item, default=_plain)}" for key, item in value.items())
        return "{\n " + ",\n ".join(items) + "\n}"
    return json.dumps(value, default=_plain)


def _result(result: Result) -> dict[str, Any]:
    return {
        "check": result.check,
        "title": result.title,
        "status": result.status.value,
        "seconds": result.seconds,
        "tags": list(result.tags),
        "why": result.why,
        "findings": [_finding(result.check, finding) for finding in result.findings],
    }


def _finding(check: str, finding: Finding) -> dict[str, Any]:
    return {
        "id": f"{check}@{finding.subject}" if finding.subject else check,
        "status": finding.status.value,
        "subject": finding.subject or None,
        "summary": finding.summary,
        "note": finding.note,
        "reason": finding.reason,
        "waived": finding.waived,
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
        "fix": _fix(finding.fix) if finding.fix else None,
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {"probe": evidence.probe, "text": evidence.text}


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        "text": fix.text,
        "commands": list(fix.commands),
        "action": fix.action,
        "disturbs": fix.disturbs or None,
        "verify": fix.verify or None,
        "docs": fix.docs or None,
    }


def _probe(seen: Observation) -> dict[str, Any]:
    return {
        "name": seen.probe,
        "argv": list(seen.argv),
        "outcome": seen.outcome.value,
        "rc": seen.rc,
        "seconds": seen.seconds,
        "note": seen.note or None,
        "truncated": seen.truncated,
    }


def _plain(value: Any) -> Any:
    """Sets become sorted lists; anything else is shown by its text."""
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
