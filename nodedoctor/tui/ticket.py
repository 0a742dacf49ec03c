"""A result as Markdown, ready to paste into a ticket: what, where, evidence, fix."""

from __future__ import annotations

from nodedoctor.model import Status
from nodedoctor.report.document import Finding, Report, Result, severity, worst
from nodedoctor.report.inert import inert
from nodedoctor.report.markdown import fenced


def markdown(result: Result, report: Report) -> str:
    """One result with every finding that is not well (or the worst one), as Markdown."""
    host = report["node"].get("hostname") or "unnamed node"
    shown = [finding for finding in result["findings"] if severity(finding) > 1] or [worst(result)]
    parts = [
        f"**{Status(result['status']).word} `{result['check']}`** on `{inert(str(host))}`",
        f"{report['started']}, nodedoctor {report['tool']}",
        *(_finding(finding) for finding in shown),
    ]
    if result["why"]:
        parts.append(f"Why it matters: {inert(result['why'])}")
    return "\n\n".join(parts) + "\n"


def commands(result: Result) -> tuple[str, ...]:
    """The fix commands of the findings that are not well, worst first, each once."""
    order = sorted(result["findings"], key=lambda finding: -severity(finding))
    fixes = [finding["fix"] for finding in order if severity(finding) > 1 or finding["note"]]
    return tuple(dict.fromkeys(command for fix in fixes if fix for command in fix["commands"]))


def _finding(finding: Finding) -> str:
    subject = f"{finding['subject']}: " if finding["subject"] else ""
    parts = [inert(f"{subject}{finding['summary']}")]
    parts += [fenced(evidence["text"], f"# {evidence['probe']}") for evidence in finding["evidence"]]
    if fix := finding["fix"]:
        parts.append(f"Fix: {inert(fix['text'])}")
        if fix["commands"]:
            parts.append(fenced("\n".join(fix["commands"]), "", "sh"))
        for label, value in (("Disturbs", fix["disturbs"]), ("Verify", fix["verify"]), ("Docs", fix["docs"])):
            if value:
                parts.append(f"{label}: {inert(value)}")
    return "\n\n".join(parts)
