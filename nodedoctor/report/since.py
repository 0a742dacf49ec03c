"""When a cause began, as far as its evidence is dated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodedoctor.facts.kernel.lines import When, edges
from nodedoctor.json_shapes import mapping, number
from nodedoctor.model import Cause, Evidence, Result, identifier

LOG = "kernel-log"
"""The probe whose quotes begin with the time of what they report, and the fact made of it."""


def beginnings(facts: Mapping[str, Any] | None, results: Iterable[Result]) -> Mapping[str, When]:
    """Of each finding, by its id, the time of its first dated quote."""
    boot = number(mapping((facts or {}).get(LOG)).get("booted"))
    return {
        identifier(result.check, finding.subject): when
        for result in results
        for finding in result.findings
        if (when := _first(finding.evidence, boot))
    }


def since(cause: Cause, beginnings: Mapping[str, When]) -> str | None:
    """When the cause began: its first dated quote, or that of what it explains."""
    dated = [beginnings[id] for id in (cause.id, *cause.explains) if id in beginnings]
    return min(dated, key=lambda when: when.seconds or 0.0).iso if dated else None


def _first(evidence: Iterable[Evidence], boot: float | None) -> When | None:
    quotes = (quote.text for quote in evidence if quote.probe == LOG and quote.kind == "quote")
    dated = [when for quote in quotes for when in edges(quote, boot) if when.iso]
    return min(dated, key=lambda when: when.seconds or 0.0, default=None)
