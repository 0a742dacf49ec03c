"""A saved report as plain data, perhaps of another machine or another version: nothing in it is trusted.

It has the shape of `report/document.py` to the last key, as what `report/json.py` makes of a run has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from nodedoctor.json_shapes import Json, as_list, mapping, number, objects, part, text, whole_number, words
from nodedoctor.model import Action, Move, Outcome, Owner, Reason, Role, Schedulable, Status, identifier
from nodedoctor.model import Fix as ModelFix
from nodedoctor.record import as_dict
from nodedoctor.report.document import (
    SCHEMA,
    Cause,
    Evidence,
    Finding,
    Fix,
    Probe,
    Recurrence,
    Report,
    Result,
    Step,
    counts,
    severity,
    status_of,
    verdict,
)
from nodedoctor.steps import as_steps

_KIND: Mapping[type, str] = {list: "list", dict: "object"}
_STATUSES = frozenset(status.value for status in Status)
_ROLES = frozenset(get_args(Role))
_OUTCOMES = frozenset(outcome.value for outcome in Outcome)


def read(document: Mapping[str, Any]) -> Report:
    """A saved report in the shape above. Nothing in it is trusted to be there or to be of its type.

    What a result is called follows from its findings, whatever the report says of it.
    """
    results = [_read_result(entry) for entry in objects(document.get("results"))]
    return {
        "schema": SCHEMA,
        "tool": words(document.get("tool")),
        "source": words(document.get("source")),
        "started": words(document.get("started")),
        "seconds": number(document.get("seconds")) or 0.0,
        "node": dict(mapping(document.get("node"))),
        "verdict": verdict(results),
        "counts": counts(results),
        "causes": causes_of(document),
        "results": results,
        "probes": [_read_probe(entry) for entry in objects(document.get("probes"))],
        "facts": dict(mapping(document.get("facts"))),
    }


def causes_of(document: Mapping[str, Any]) -> list[Cause]:
    """The causes of a saved report; those without a name or a headline are left out."""
    return [cause for entry in objects(document.get("causes")) if (cause := _read_cause(entry))]


def damage(document: Mapping[str, Any]) -> str:
    """What in a report is not of the kind it has to be, the first of it; what is left out counts as nothing.

    Read on, such a report would lack results without a word, and so look better than it is.
    """
    for key, kind in (("results", list), ("facts", dict), ("node", dict)):
        if key in document and not isinstance(document[key], kind):
            return f"{key} is no {_KIND[kind]}"
    if "results" not in document:
        return "it has no results"
    for place, entry in enumerate(document["results"]):
        where = f"results[{place}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("check"), str):
            return f"{where} names no check"
        findings = entry.get("findings")
        if not isinstance(findings, list) or not findings:
            return f"{where} ({entry['check']}) has no findings"
        for item in findings:
            if not isinstance(item, dict) or str(item.get("status")) not in _STATUSES:
                return f"{where} ({entry['check']}) has a finding without a status"
    return ""


def finding(check: str, entry: Json) -> Finding:
    """One finding of a saved report."""
    status, reason = status_of(entry.get("status")), entry.get("reason")
    valid_reason = reason if reason in get_args(Reason) else "unparsable"
    subject = words(entry.get("subject"))
    read: Finding = {
        "id": identifier(check, subject),
        "status": status.value,
        "subject": subject or None,
        "summary": words(entry.get("summary")) or "(nothing is said)",
        "note": entry.get("note") is True,
        "reason": valid_reason if status is Status.UNKNOWN else None,
        "waived": words(entry.get("waived")) or None,
        "evidence": [_read_evidence(item) for item in objects(entry.get("evidence"))],
        "fix": fix(entry.get("fix")),
        "because_of": words(entry.get("because_of")) or None,
    }
    if without := words(entry.get("judged_without")):
        read["judged_without"] = without
    if why := words(entry.get("why")):
        read["why"] = why
    if entry.get("preview") is True and status is not Status.FAIL:
        read["preview"] = True
    return read


def _read_evidence(item: Json) -> Evidence:
    read: Evidence = {"probe": words(item.get("probe")), "text": words(item.get("text"))}
    kind, path = item.get("kind"), words(item.get("path"))
    if kind == "quote" or kind == "reading":
        read["kind"] = kind
    if line := whole_number(item, "line"):
        read["line"] = line
    if path:
        read["path"] = path
    if kind == "reading":
        read["source"], read["value"] = words(item.get("source")), item.get("value")
    return read


def fix(value: Any) -> Fix | None:
    """What to do, as saved reports and verdicts of triage write it."""
    if not isinstance(value, dict):
        return None
    action = value.get("action")
    return {
        "text": words(value.get("text")),
        "commands": [command for command in as_list(value.get("commands")) if isinstance(command, str)],
        "action": action if isinstance(action, str) and action in get_args(Action) else "investigate",
        "disturbs": words(value.get("disturbs")) or None,
        "verify": words(value.get("verify")) or None,
        "docs": words(value.get("docs")) or None,
        "steps": _read_steps(value),
    }


def _read_steps(value: Json) -> list[Step]:
    """The steps of a fix; a document of an earlier version has bare commands and how to verify."""
    if "steps" in value:
        steps = map(_read_step, objects(value["steps"]))
        return [step for step in steps if step["role"] in _ROLES and step["command"]]
    bare = as_steps(command for command in as_list(value.get("commands")) if isinstance(command, str))
    disturbs, verify = words(value.get("disturbs")), words(value.get("verify"))
    plan = ModelFix("", bare, disturbs=disturbs, verify=verify).plan
    return [_read_step(as_dict(step)) for step in plan]


def _read_step(entry: Json) -> Step:
    return {
        "role": words(entry.get("role")),
        "command": words(entry.get("command")),
        "when": words(entry.get("when")) or None,
        "disturbs": words(entry.get("disturbs")) or None,
        "needs_root": entry.get("needs_root") is True,
    }


def _read_result(entry: Json) -> Result:
    check = words(entry.get("check")) or "(no name)"
    silence = {
        "status": "unknown",
        "reason": "unparsable",
        "summary": "this report does not say what was found",
    }
    findings = [finding(check, item) for item in objects(entry.get("findings")) or (silence,)]
    decisive = max(findings, key=severity)
    read: Result = {
        "check": check,
        "title": words(entry.get("title")),
        "status": Status.PASS.value if decisive["waived"] is not None else decisive["status"],
        "seconds": number(entry.get("seconds")) or 0.0,
        "tags": [tag for tag in map(words, as_list(entry.get("tags"))) if tag],
        "why": words(entry.get("why")),
        "findings": findings,
    }
    if entry.get("stage") == "preview":
        read["stage"] = "preview"
    return read


def _read_cause(entry: Json) -> Cause | None:
    """One cause of a saved report; None for what names none. Its words must be ones that views know."""
    id, headline = words(entry.get("id")), words(entry.get("headline"))
    if not (id and headline):
        return None
    read: Cause = {
        "id": id,
        "headline": headline,
        "status": status_of(entry.get("status")).value,
        "subjects": [words(subject) for subject in as_list(entry.get("subjects"))],
        "explains": [words(finding_id) for finding_id in as_list(entry.get("explains"))],
        "unjudged": int(number(entry.get("unjudged")) or 0),
        "owner": _first_of(entry.get("owner"), get_args(Owner), "undetermined"),
        "action": _first_of(entry.get("action"), get_args(Move), "investigate"),
        "schedulable": _first_of(entry.get("schedulable"), get_args(Schedulable), "no"),
        "reason": words(entry.get("reason")),
        "first_step": _first_step(entry.get("first_step")),
        "since": words(entry.get("since")) or None,
    }
    if entry.get("preview") is True:
        read["preview"] = True
    if recurs := _read_recurrence(part(entry, "recurs")):
        read["recurs"] = recurs
    return read


def _read_recurrence(earlier: Json) -> Recurrence | None:
    times, boots, days = (whole_number(earlier, key) for key in ("times", "boots", "days"))
    if not times:
        return None
    recurs: Recurrence = {"times": times, "first": text(earlier, "first")}
    return {**recurs, "boots": boots, "days": days} if boots and days else recurs


def _first_step(value: Any) -> Step | None:
    step = _read_step(value) if isinstance(value, dict) else None
    return step if step and step["role"] in _ROLES and step["command"] else None


def _first_of(value: Any, choices: Iterable[str], otherwise: str) -> str:
    return value if isinstance(value, str) and value in choices else otherwise


def _read_probe(entry: Json) -> Probe:
    outcome, rc = text(entry, "outcome"), entry.get("rc")
    return {
        "name": words(entry.get("name")) or "(no name)",
        "argv": [words(word) for word in as_list(entry.get("argv"))],
        "outcome": outcome if outcome in _OUTCOMES else Outcome.CRASH.value,
        "rc": rc if isinstance(rc, int) and words(rc) else None,
        "seconds": number(entry.get("seconds")) or 0.0,
        "note": words(entry.get("note")) or None,
        "truncated": entry.get("truncated") is True,
    }
