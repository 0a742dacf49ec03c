"""What there is to say about a check, under fixed headings: for `nodedoctor explain CHECK` and for its page.

All of it comes from the check's own docstring and from the table of what it was seen on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from nodedoctor.declare.registry import Check, probes_of
from nodedoctor.knowledge.tested_hardware import missing_for, seen_on
from nodedoctor.model import Provenance
from nodedoctor.record import record
from nodedoctor.report.document import Finding, Result, severity, worst
from nodedoctor.wording import capitalised

UNSEEN = "Never on real hardware: the check is in preview, and what it finds counts only with --preview."
_NOTHING = "Not documented."


@record
class PageSection:
    """One heading with its paragraphs; `items` are short lines of a list below them."""

    heading: str
    paragraphs: tuple[str, ...]
    items: tuple[str, ...] = ()


@record
class SampleFinding:
    """A finding of a check on a recorded node, and where that comes from."""

    node: str
    provenance: Provenance
    result: Result
    finding: Finding


def sections(check: Check) -> tuple[PageSection, ...]:
    """Every section of a check's page, always the same ones in the same order."""
    doc = {name: " ".join(text.split()) for name, text in check.doc.items()}
    fix = [doc.get("Fix", ""), f"A repair interrupts: {check.disturbs}" if check.disturbs else ""]
    return (
        PageSection("What it looks at", _describe_check(check.what)),
        PageSection("Why it matters for training", _describe_check(check.why)),
        PageSection(
            "When it fails, warns, is unknown", _describe_check(doc.get("Judges", ""), _unknown_line(check))
        ),
        PageSection("How to fix", _describe_check(*fix)),
        PageSection("Where the threshold comes from", _describe_check(doc.get("Threshold", ""))),
        PageSection("Known false positives", _describe_check(doc.get("False positives", ""))),
        _hardware_seen(check),
    )


def error_texts(check: Check) -> tuple[str, ...]:
    """The literal error messages by which people meet what the check finds."""
    lines = check.doc.get("Error texts", "").splitlines()
    return tuple(line.strip().removeprefix("- ") for line in lines if line.strip())


def samples(folders: Iterable[Path], checks: tuple[Check, ...] | None = None) -> dict[str, SampleFinding]:
    """The worst finding of each of these checks, or of all, on recorded nodes; of the first that has it."""
    from nodedoctor.engine.session import Request, Session
    from nodedoctor.report.json import document

    by_check: dict[str, SampleFinding] = {}
    for folder in folders:
        session = Session(Request(replay=folder, preview=True))
        provenance = (session.snapshot.provenance if session.snapshot else None) or "synthetic"
        report = document(asyncio.run(session.diagnosis(checks).run()))
        for result in report["results"]:
            finding, worst_sample = worst(result), by_check.get(result["check"])
            sick = finding["status"] in ("fail", "warn")
            if sick and (worst_sample is None or severity(finding) > severity(worst_sample.finding)):
                by_check[result["check"]] = SampleFinding(folder.name, provenance, result, finding)
    return by_check


def _describe_check(*paragraphs: str) -> tuple[str, ...]:
    return tuple(map(capitalised, filter(None, paragraphs))) or (_NOTHING,)


def _unknown_line(check: Check) -> str:
    """UNKNOWN is the same for all checks: what they need could not be read."""
    probes = ", ".join(sorted(probes_of(check)))
    return f"UNKNOWN when what it needs could not be read (probes: {probes})." if probes else ""


def _hardware_seen(check: Check) -> PageSection:
    rows = seen_on(check.id)
    items = tuple(
        f"{row.hardware}: {row.output}, {row.shows} ({row.provenance}; {row.source})" for row in rows
    )
    if rows:
        return PageSection("Seen on", (), items)
    missing = f"{UNSEEN} Not seen yet: {missing_for(check.id)}."
    words = missing if check.stage == "preview" else "Not recorded."
    return PageSection("Seen on", (words,))
