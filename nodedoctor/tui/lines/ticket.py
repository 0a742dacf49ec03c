"""A result as Markdown, ready to paste into a ticket: what, where, evidence, fix."""

from __future__ import annotations

import re

from nodedoctor.model import Finding, Report, Result
from nodedoctor.report.inert import inert, inert_lines


def markdown(result: Result, report: Report) -> str:
    """One result with every finding that is not well (or the worst one), as Markdown."""
    host = report.node.get("hostname") or "unnamed node"
    shown = [finding for finding in result.findings if finding.severity > 1] or [result.worst]
    parts = [
        f"**{result.status.word} `{result.check}`** on `{inert(str(host))}`",
        f"{report.started}, nodedoctor {report.tool}",
        *(_finding(finding) for finding in shown),
    ]
    if result.why:
        parts.append(f"Why it matters: {inert(result.why)}")
    return "\n\n".join(parts) + "\n"


def commands(result: Result) -> tuple[str, ...]:
    """The fix commands of the findings that are not well, worst first, each once."""
    order = sorted(result.findings, key=lambda finding: -finding.severity)
    fixes = [finding.fix for finding in order if finding.fix and (finding.severity > 1 or finding.note)]
    return tuple(dict.fromkeys(command for fix in fixes for command in fix.commands))


def _finding(finding: Finding) -> str:
    subject = f"{finding.subject}: " if finding.subject else ""
    parts = [inert(f"{subject}{finding.summary}")]
    parts += [_fenced(evidence.text, f"# {evidence.probe}") for evidence in finding.evidence]
    if finding.fix:
        parts.append(f"Fix: {inert(finding.fix.text)}")
        if finding.fix.commands:
            parts.append(_fenced("\n".join(finding.fix.commands), "", "sh"))
        for label in ("disturbs", "verify", "docs"):
            value = getattr(finding.fix, label)
            if value:
                parts.append(f"{label.capitalize()}: {inert(value)}")
    return "\n\n".join(parts)


def _fenced(text: str, title: str, language: str = "") -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    lines = [inert(title), *inert_lines(text.strip("\n"))] if title else inert_lines(text.strip("\n"))
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])
