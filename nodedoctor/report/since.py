"""When a cause began, as far as its evidence is dated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodedoctor.facts.kernel.lines import When, edges
from nodedoctor.json_shapes import mapping, number
from nodedoctor.model import Cause, Evidence, Finding

LOG = "kernel-log"
"""The probe whose quotes begin with the time of what they report, and the fact made of it."""


def beginnings(facts: Mapping[str, Any] | None, findings: Mapping[str, Finding]) -> Mapping[str, When]:
    """Of each finding the time of its first dated quote."""
    boot = number(mapping((facts or {}).get(LOG)).get("booted"))
    first = {id: _first(finding.evidence, boot) for id, finding in findings.items()}
    return {id: when for id, when in first.items() if when}


def since(cause: Cause, beginnings: Mapping[str, When]) -> str | None:
    """When the cause began: its first dated quote, or that of what it explains."""
    dated = [beginnings[id] for id in (cause.id, *cause.explains) if id in beginnings]
    return min(dated, key=lambda when: when.seconds or 0.0).iso if dated else None


def _first(evidence: Iterable[Evidence], boot: float | None) -> When | None:
    quotes = (one.text for one in evidence if one.probe == LOG and one.kind == "quote")
    dated = [when for quote in quotes for when in edges(quote, boot) if when.iso]
    return min(dated, key=lambda when: when.seconds or 0.0, default=None)
