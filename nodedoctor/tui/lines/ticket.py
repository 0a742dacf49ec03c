"""A result as Markdown, ready to paste into a ticket: what, where, evidence, fix."""

from __future__ import annotations

from collections.abc import Sequence

from nodedoctor.model import Status
from nodedoctor.report.document import (
    Finding,
    Fix,
    Report,
    Result,
    Step,
    full_summary,
    place_of,
    severity,
    worst,
)
from nodedoctor.report.inert import inert
from nodedoctor.report.steps import advice, repair_steps
from nodedoctor.report.ticket import fenced
from nodedoctor.wording import about

_ORDER = ("look", "keep", "repair", "verify", "last-resort")
SAFE_KEYS = "123456789abdefhilmnoprstuvwxyz"
LAST_KEYS = "ABDEFHIJKLMOPQRSTUVWXYZ"
"""Keys that copy a step, and those for last resorts; without those that move and leave: c g j k q C G N."""


def markdown(result: Result, report: Report) -> str:
    """One result with every finding that is not well (or the worst one), as Markdown."""
    host = report["node"].get("hostname") or "unnamed node"
    shown = [finding for finding in result["findings"] if severity(finding).is_problem] or [worst(result)]
    parts = [
        f"**{Status(result['status']).word} `{result['check']}`** on `{inert(str(host))}`",
        f"{report['started']}, nodedoctor {report['tool']}",
        *(_finding_text(finding) for finding in shown),
    ]
    if result["why"]:
        parts.append(f"Why it matters: {inert(result['why'])}")
    return "\n\n".join(parts) + "\n"


def steps(result: Result) -> tuple[Step, ...]:
    """What can be copied: the steps of the fixes, worst finding first, each once.

    Look-ups come first, last resorts last.
    """
    order = sorted(result["findings"], key=lambda finding: -severity(finding))
    return steps_of([finding["fix"] for finding in order if severity(finding).is_problem or finding["note"]])


def steps_of(fixes: Sequence[Fix | None]) -> tuple[Step, ...]:
    """The steps of some fixes as `steps` gives those of a check."""
    by_command = {step["command"]: step for fix in reversed(fixes) if fix for step in reversed(fix["steps"])}
    return tuple(sorted(reversed(by_command.values()), key=lambda step: _ORDER.index(step["role"])))


def keyed(steps: Sequence[Step]) -> dict[str, Step]:
    """Steps by the key that copies each."""
    last = [step for step in steps if step["role"] == "last-resort"]
    safe = [step for step in steps if step["role"] != "last-resort"]
    return {**dict(zip(SAFE_KEYS, safe, strict=False)), **dict(zip(LAST_KEYS, last, strict=False))}


def _finding_text(finding: Finding) -> str:
    parts = [inert(about(finding["subject"] or "", full_summary(finding)))]
    parts += [fenced(evidence["text"], place_of(evidence)) for evidence in finding["evidence"]]
    if fix := finding["fix"]:
        parts.append(f"Fix: {inert(advice(fix))}")
        for step in repair_steps(fix):
            parts += [f"{step.heading[:1].upper()}{step.heading[1:]}", fenced(step.command, "", "sh")]
        for label, value in (("Verify", fix["verify"]), ("Docs", fix["docs"])):
            if value:
                parts.append(f"{label}: {inert(value)}")
    return "\n\n".join(parts)
