"""The report as one JSON document, `nodedoctor.report/1`; within /1 keys are only ever added.

Here, and nowhere else, what a run has found becomes the data that every view is made from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from nodedoctor.facts.kernel.lines import When, edges
from nodedoctor.json_shapes import Json, mapping, number
from nodedoctor.model import Cause, Evidence, Finding, Fix, Report, Result, identifier
from nodedoctor.record import field_names
from nodedoctor.report import document as shape
from nodedoctor.report.saved import read


def document(report: Report) -> shape.Report:
    """The report as plain data, read as one that was saved: there is one place that knows its shape."""
    dated = beginnings(report.facts, report.results)
    return read(
        {
            **_fields(report),
            "causes": [_cause_entry(cause, since(cause, dated)) for cause in report.causes],
            "results": [_result_entry(result) for result in report.results],
            "probes": [
                {**_fields(observation), "name": observation.probe} for observation in report.observations
            ],
            "facts": _plain_value(report.facts or {}),
        }
    )


def gated(document: shape.Report, gate: shape.Gate) -> shape.Report:
    """The document with the answer of `--gate`, before the long lists."""
    later = ("results", "probes", "facts")
    first = {key: value for key, value in document.items() if key not in later}
    ordered: Any = {**first, "gate": gate, **{key: document[key] for key in later}}  # type: ignore[literal-required]
    return cast("shape.Report", ordered)


def render(document: shape.Report) -> str:
    """The document as text, a result, probe or fact a line. ASCII only: valid anywhere, inert on a terminal.

    Indenting throughout would leave json's C encoder unused and take 20 ms. The lines also let a reader of
    thousands of reports take only those it wants (fleet/reports/skim.py).
    """
    lines = (f"{_encoded(key)}: {_in_lines(value)}" for key, value in document.items())
    return "{" + ",\n".join(lines) + "}"


_encoded = json.JSONEncoder(separators=(",", ":")).encode
"""Blanks between items would be a tenth of a report, without any use."""


def _in_lines(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n " + ",\n ".join(map(_encoded, value)) + "\n]"
    if isinstance(value, dict) and any(isinstance(inner, dict) for inner in value.values()):
        items = (f"{_encoded(key)}: {_encoded(item)}" for key, item in value.items())
        return "{\n " + ",\n ".join(items) + "\n}"
    return _encoded(value)


def _result_entry(result: Result) -> Json:
    return {**_fields(result), "findings": [_finding_entry(finding) for finding in result.findings]}


def _finding_entry(finding: Finding) -> Json:
    return {
        **_fields(finding),
        "judged_without": finding.without,
        "evidence": [_fields(evidence) for evidence in finding.evidence],
        "fix": _fix_entry(finding.fix),
    }


def _fix_entry(fix: Fix | None) -> Json | None:
    """What to do, with what follows from its steps: the commands, and the plan that they are of."""
    if fix is None:
        return None
    return {**_fields(fix), "commands": fix.commands, "steps": [_fields(step) for step in fix.plan]}


def _cause_entry(cause: Cause, since: str | None) -> Json:
    """A cause with when it began, and what to type first: the first step that looks or repairs."""
    steps = (step for step in (cause.fix.plan if cause.fix else ()) if step.role in ("look", "repair"))
    first = next(steps, None)
    return {**_fields(cause), "since": since, "first_step": first and _fields(first)}


def _fields(value: Any) -> Json:
    """The fields of one of our nouns as plain data, but without the nouns in it."""
    told = ((name, getattr(value, name)) for name in field_names(type(value)))
    return {name: _plain_value(field) for name, field in told if name not in _NOUNS}


def _plain_value(value: Any) -> Any:
    """What JSON makes of a value, so that a saved report reads as the live one.

    A fact is its fields, a set a sorted list, and what JSON does not know is shown by its text.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if issubclass(kind, dict):
        return {_plain_key(key): _plain_value(item) for key, item in value.items()}
    if issubclass(kind, list | tuple):
        return [_plain_value(item) for item in value]
    if names := field_names(kind):
        return {name: _plain_value(getattr(value, name)) for name in names}
    if issubclass(kind, set | frozenset):
        return [_plain_value(item) for item in sorted(value)]
    return json.loads(json.dumps(value, default=str))


_NOUNS = frozenset({"evidence", "findings", "fix", "steps", "results", "observations", "causes", "facts"})
_SCALARS = frozenset({str, int, float, bool, type(None)})


def _plain_key(key: Any) -> str:
    return str.__str__(key) if isinstance(key, str) else json.dumps(key, default=str)


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
