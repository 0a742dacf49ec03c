"""Headlines of causes: one clause that makes sense alone, without what is for the evidence."""

from __future__ import annotations

import re

from nodedoctor.model import Finding
from nodedoctor.patterns import regex
from nodedoctor.wording import SUMMARY, about, label_if_unnamed, shortened

_NUMBER = regex(r"\d(?:\d|[.,]\d)*")
_WHEN = re.compile(
    r"(?:, \d+ times)?(?: (?:at|from|to) (?:(?:(?:[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2}|\d{4}-\d\d-\d\d)"
    r"[ T])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?: \d{4})?"
    r"|\d+(?:\.\d+)? s(?: after boot|(?= to \d+(?:\.\d+)? s after boot))))+"
)
_ADDRESS = regex(r"\b(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b|\b[0-9a-f]{12,}\b")


def headline(finding: Finding, shared: int) -> str:
    """One clause that makes sense alone; when it happened is for the evidence."""
    summary = _WHEN.sub("", finding.summary)
    if shared > 1:
        kind = "GPUs" if finding.subject.startswith("gpu:") else "ports"
        return shortened(f"all {shared} {kind}: {summary}", SUMMARY)
    if finding.headline:
        return shortened(finding.headline, SUMMARY)
    short = shortened(about(finding.subject, summary), SUMMARY)
    name = label_if_unnamed(finding.subject, short)
    # A device that its own words name late must not be lost where they are cut.
    return shortened(f"{name}: {summary}", SUMMARY) if name else short


def masked(summary: str) -> str:
    """A summary without the numbers and addresses that differ from device to device."""
    return _NUMBER.sub("#", _ADDRESS.sub("#", summary))
