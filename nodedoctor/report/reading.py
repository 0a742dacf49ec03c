"""A report document read back into nouns; it may come from another machine, another version, a damaged file.

Nothing in it is trusted to be there or to be of its type. What cannot be understood is unknown, never well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast, get_args

from nodedoctor.model import (
    Action,
    Evidence,
    Finding,
    Fix,
    Observation,
    Outcome,
    Reason,
    Report,
    Result,
    Status,
)


def report(document: Mapping[str, Any]) -> Report:
    """The report a `nodedoctor.report/1` document tells of."""
    node, facts = document.get("node"), document.get("facts")
    return Report(
        tool=words(document.get("tool")),
        source=words(document.get("source")),
        started=words(document.get("started")),
        seconds=number(document.get("seconds")),
        node=node if isinstance(node, dict) else {},
        results=tuple(_result(entry) for entry in entries(document.get("results"))),
        observations=tuple(_probe(entry) for entry in entries(document.get("probes"))),
        facts=facts if isinstance(facts, dict) else {},
    )


def damage(document: Mapping[str, Any]) -> str:
    """What in a report is not of the kind it has to be, the first of it; what is left out counts as nothing.

    Read on, such a report would lack results without a word, and so look better than it is.
    """
    for key, kind in (("results", list), ("facts", dict), ("node", dict)):
        if key in document and not isinstance(document[key], kind):
            return f"{key} is no {_KIND[kind]}"
    if "results" not in document:
        return "it has no results"
    for number, entry in enumerate(document["results"]):
        where = f"results[{number}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("check"), str):
            return f"{where} names no check"
        findings = entry.get("findings")
        if not isinstance(findings, list) or not findings:
            return f"{where} ({entry['check']}) has no findings"
        for finding in findings:
            if not isinstance(finding, dict) or str(finding.get("status")) not in _STATUSES:
                return f"{where} ({entry['check']}) has a finding without a status"
    return ""


_KIND: Mapping[type, str] = {list: "list", dict: "object"}
_STATUSES = frozenset(status.value for status in Status)


def fix(value: Any) -> Fix | None:
    """What to do, as reports and verdicts write it."""
    if not isinstance(value, dict):
        return None
    action = value.get("action")
    return Fix(
        text=words(value.get("text")),
        commands=tuple(command for command in listed(value.get("commands")) if isinstance(command, str)),
        action=cast("Action", action) if action in get_args(Action) else "investigate",
        disturbs=words(value.get("disturbs")),
        verify=words(value.get("verify")),
        docs=words(value.get("docs")),
    )


def words(value: Any) -> str:
    """A string, or a number as one; "" for anything else."""
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if plain else ""


def number(value: Any) -> float:
    """A number that is not negative; 0 for anything else."""
    plain = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if plain else 0.0


def listed(value: Any) -> list[Any]:
    """A list; an empty one for anything else."""
    return list(value) if isinstance(value, list | tuple) else []


def entries(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a list."""
    return (entry for entry in listed(value) if isinstance(entry, dict))


def status(value: Any) -> Status:
    """A status; what is none of ours is unknown."""
    try:
        return Status(value)
    except ValueError:
        return Status.UNKNOWN


def _result(entry: Mapping[str, Any]) -> Result:
    findings = tuple(_finding(item) for item in entries(entry.get("findings")))
    return Result(
        check=words(entry.get("check")) or "(no name)",
        title=words(entry.get("title")),
        findings=findings or (Finding.unknown("unparsable", "this report does not say what was found"),),
        seconds=number(entry.get("seconds")),
        tags=tuple(filter(None, map(words, listed(entry.get("tags"))))),
        why=words(entry.get("why")),
    )


def _finding(entry: Mapping[str, Any]) -> Finding:
    stands, reason = status(entry.get("status")), entry.get("reason")
    known = cast("Reason", reason) if reason in get_args(Reason) else "unparsable"
    return Finding(
        status=stands,
        summary=words(entry.get("summary")) or "(nothing is said)",
        subject=words(entry.get("subject")),
        evidence=tuple(
            Evidence(words(item.get("probe")), words(item.get("text")))
            for item in entries(entry.get("evidence"))
        ),
        fix=fix(entry.get("fix")),
        note=entry.get("note") is True,
        reason=known if stands is Status.UNKNOWN else None,
        waived=words(entry.get("waived")) or None,
        because_of=words(entry.get("because_of")) or None,
    )


def _probe(entry: Mapping[str, Any]) -> Observation:
    outcome, rc = entry.get("outcome"), entry.get("rc")
    known = {one.value: one for one in Outcome}
    return Observation(
        probe=words(entry.get("name")) or "(no name)",
        outcome=known.get(outcome, Outcome.CRASH) if isinstance(outcome, str) else Outcome.CRASH,
        rc=rc if isinstance(rc, int) else None,
        seconds=number(entry.get("seconds")),
        note=words(entry.get("note")),
        argv=tuple(map(words, listed(entry.get("argv")))),
        truncated=entry.get("truncated") is True,
    )
