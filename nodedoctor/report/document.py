"""A report as plain data: its shape, which every view is made from, and what follows from it.

`report/json.py` makes it of what a run has found, `read` of a report that was saved, perhaps by another
machine or another version: both have this shape to the last key, so that a view need not ask where its
report comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, get_args

from nodedoctor.json_shapes import Json, listed, mapping, number, objects, text, whole, words
from nodedoctor.model import (
    BLIND,
    Action,
    Move,
    Outcome,
    Owner,
    Reason,
    Role,
    Schedulable,
    Severity,
    Status,
    identifier,
)
from nodedoctor.model import Fix as ModelFix
from nodedoctor.model import Step as ModelStep
from nodedoctor.steps import as_steps

SCHEMA = "nodedoctor.report/1"


class _Place(TypedDict, total=False):
    kind: str
    line: int
    path: str
    source: str
    value: Any


class Evidence(_Place):
    """What a finding rests on, and the probe that printed it.

    A quote has the `line` it begins at, and the `path` of the text it is from where there are several; a
    reading has `source`, `path` and `value`. Documents of earlier versions have only probe and text.
    """

    probe: str
    text: str


class Step(TypedDict):
    """One command of a fix: what it is for, its condition, and what it interrupts."""

    role: str
    command: str
    when: str | None
    disturbs: str | None
    needs_root: bool


class Fix(TypedDict):
    """What to do. `commands` are the look-ups and repairs among the steps; a last resort never is."""

    text: str
    commands: list[str]
    action: str
    disturbs: str | None
    verify: str | None
    docs: str | None
    steps: list[Step]


class _Rare(TypedDict, total=False):
    judged_without: str
    why: str
    preview: bool


class Finding(_Rare):
    """One judgement about one subject. `status` is a value of Status; `why` is there if not the check's.

    `because_of` is the cause it follows from. `judged_without` is there where only what it names kept it from
    a PASS, `preview`, which is true, where the finding counts in no verdict.
    """

    id: str
    status: str
    subject: str | None
    summary: str
    note: bool
    reason: str | None
    waived: str | None
    evidence: list[Evidence]
    fix: Fix | None
    because_of: str | None


class _Staged(TypedDict, total=False):
    stage: str


class Result(_Staged):
    """What one check found: at least one finding. `status` is that of the worst.

    `stage` is there where it is `preview`.
    """

    check: str
    title: str
    status: str
    seconds: float
    tags: list[str]
    why: str
    findings: list[Finding]


class _Counted(TypedDict, total=False):
    preview: bool


class Cause(_Counted):
    """What findings follow from, and whose move it is; see `model.Cause`."""

    id: str
    headline: str
    status: str
    subjects: list[str]
    explains: list[str]
    unjudged: int
    owner: str
    action: str
    schedulable: str
    reason: str
    first_step: Step | None


class Probe(TypedDict):
    """How a question to the node went; what it printed is in a recording, not in a report."""

    name: str
    argv: list[str]
    outcome: str
    rc: int | None
    seconds: float
    note: str | None
    truncated: bool


class Report(TypedDict):
    """Everything one run says. `node` and `facts` are of any shape: views take what they know."""

    schema: str
    tool: str
    source: str
    started: str
    seconds: float
    node: dict[str, Any]
    verdict: str
    counts: dict[str, int]
    causes: list[Cause]
    results: list[Result]
    probes: list[Probe]
    facts: dict[str, Any]


def severity(finding: Mapping[str, Any]) -> Severity:
    """How bad a finding is. A fleet's problem is one, too."""
    preview = finding.get("preview") is True
    return Severity.of(
        status_of(finding.get("status")), finding.get("reason"), finding.get("waived"), preview
    )


def counted(finding: Mapping[str, Any]) -> Severity:
    """How bad a finding is for the verdict: one in preview is no problem there."""
    return severity(finding).counted(finding.get("preview") is True)


def full_summary(finding: Mapping[str, Any]) -> str:
    """The summary, and what it was judged without."""
    without = finding.get("judged_without")
    return f"{finding['summary']}; judged without {without}" if without else str(finding["summary"])


def asides(finding: Mapping[str, Any]) -> str:
    """What follows a summary: who accepts it, and that its rule is in preview."""
    waived = f" [waived: {finding['waived']}]" if finding.get("waived") else ""
    return f"{waived}{' [preview]' if in_preview(finding) else ''}"


def in_preview(finding: Mapping[str, Any]) -> bool:
    """Whether a finding is a warning by a rule in preview. Of what is unknown no rule spoke."""
    return finding.get("preview") is True and finding.get("status") == Status.WARN.value


def is_blind(finding: Mapping[str, Any]) -> bool:
    """Unknown only because of where we stand (no permission, no tool, a container), waived or not."""
    return finding["status"] == Status.UNKNOWN.value and finding.get("reason") in BLIND


def is_broken(finding: Mapping[str, Any]) -> bool:
    """Unknown because something hung, crashed or answered nonsense, waived or not."""
    return finding["status"] == Status.UNKNOWN.value and not is_blind(finding)


def worst(result: Result) -> Finding:
    """The finding that decides the status; the first of the most severe ones."""
    return max(result["findings"], key=severity)


def word_of(result: Result) -> str:
    """The word in front of a result: NOTE where nothing is wrong and something is worth knowing."""
    status = Status(result["status"])
    return "NOTE" if status is Status.PASS and worst(result)["note"] else status.word


def severity_of(result: Result) -> Severity:
    """How bad a check ended: its worst finding."""
    return max(map(severity, result["findings"]))


def problems_first(results: Iterable[Result]) -> list[Result]:
    """Results by severity, then id: the order people read in."""
    return sorted(results, key=lambda result: (-severity_of(result), result["check"]))


def verdict(results: Iterable[Result]) -> str:
    """The status of the worst result, previews aside; skip when nothing was looked at."""
    found = (counted(finding) for result in results for finding in result["findings"])
    return max(found, default=Severity.SKIP).status.value


def counts(results: Iterable[Result]) -> dict[str, int]:
    """How many checks ended in each status."""
    found = [result["status"] for result in results]
    return {status.value: found.count(status.value) for status in Status}


def status_of(value: Any) -> Status:
    """A status; what is none of ours is unknown, never well."""
    try:
        return Status(value)
    except ValueError:
        return Status.UNKNOWN


def read(document: Mapping[str, Any]) -> Report:
    """A saved report in the shape above. Nothing in it is trusted to be there or to be of its type.

    What a result is called follows from its findings, whatever the report says of it.
    """
    results = [_result(entry) for entry in objects(document.get("results"))]
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
        "probes": [_probe(entry) for entry in objects(document.get("probes"))],
        "facts": dict(mapping(document.get("facts"))),
    }


def causes_of(document: Mapping[str, Any]) -> list[Cause]:
    """The causes of a saved report; those without a name or a headline are left out."""
    return [cause for entry in objects(document.get("causes")) if (cause := _cause(entry))]


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


_KIND: Mapping[type, str] = {list: "list", dict: "object"}
_STATUSES = frozenset(status.value for status in Status)
_ROLES = frozenset(get_args(Role))
_OUTCOMES = frozenset(outcome.value for outcome in Outcome)


def finding(check: str, entry: Json) -> Finding:
    """One finding of a saved report."""
    status, reason = status_of(entry.get("status")), entry.get("reason")
    known = reason if reason in get_args(Reason) else "unparsable"
    subject = words(entry.get("subject"))
    own: _Rare = {}
    if without := words(entry.get("judged_without")):
        own["judged_without"] = without
    if why := words(entry.get("why")):
        own["why"] = why
    if entry.get("preview") is True and status is not Status.FAIL:
        own["preview"] = True
    return {
        "id": identifier(check, subject),
        "status": status.value,
        "subject": subject or None,
        "summary": words(entry.get("summary")) or "(nothing is said)",
        "note": entry.get("note") is True,
        "reason": known if status is Status.UNKNOWN else None,
        "waived": words(entry.get("waived")) or None,
        "evidence": [_evidence(item) for item in objects(entry.get("evidence"))],
        "fix": fix(entry.get("fix")),
        "because_of": words(entry.get("because_of")) or None,
        **own,
    }


def _evidence(item: Json) -> Evidence:
    read: Evidence = {"probe": words(item.get("probe")), "text": words(item.get("text"))}
    kind, path = item.get("kind"), words(item.get("path"))
    if kind == "quote" or kind == "reading":
        read["kind"] = kind
    if line := whole(item, "line"):
        read["line"] = line
    if path:
        read["path"] = path
    if kind == "reading":
        read["source"], read["value"] = words(item.get("source")), item.get("value")
    return read


def is_reading(evidence: Evidence) -> bool:
    """Whether it is a value that was read, and not a quote of what was printed."""
    return evidence.get("kind") == "reading"


def place_of(evidence: Evidence) -> str:
    """Where evidence stands, as a comment above it."""
    if is_reading(evidence):
        return f"# {evidence['probe']}, value read"
    return f"# {evidence['probe']}" + (f", line {evidence['line']}" if "line" in evidence else "")


def marked(evidence: Evidence, lines: Iterable[str]) -> list[str]:
    """Lines of evidence as text shows them: `|` before what was printed, `=` before a value that was read."""
    mark = "=" if is_reading(evidence) else "|"
    return [f"{mark} {line}" for line in lines]


def fix(value: Any) -> Fix | None:
    """What to do, as saved reports and verdicts of triage write it."""
    if not isinstance(value, dict):
        return None
    action = value.get("action")
    return {
        "text": words(value.get("text")),
        "commands": [command for command in listed(value.get("commands")) if isinstance(command, str)],
        "action": action if isinstance(action, str) and action in get_args(Action) else "investigate",
        "disturbs": words(value.get("disturbs")) or None,
        "verify": words(value.get("verify")) or None,
        "docs": words(value.get("docs")) or None,
        "steps": _steps(value),
    }


def _steps(value: Json) -> list[Step]:
    """The steps of a fix; a document of an earlier version has bare commands and how to verify."""
    if "steps" in value:
        steps = map(_step, objects(value["steps"]))
        return [step for step in steps if step["role"] in _ROLES and step["command"]]
    bare = as_steps(command for command in listed(value.get("commands")) if isinstance(command, str))
    disturbs, verify = words(value.get("disturbs")), words(value.get("verify"))
    plan = ModelFix("", bare, disturbs=disturbs, verify=verify).plan
    return [step_of(step) for step in plan]


def _step(entry: Json) -> Step:
    return {
        "role": words(entry.get("role")),
        "command": words(entry.get("command")),
        "when": words(entry.get("when")) or None,
        "disturbs": words(entry.get("disturbs")) or None,
        "needs_root": entry.get("needs_root") is True,
    }


def step_of(step: ModelStep) -> Step:
    """A step as the document has it."""
    return {
        "role": step.role,
        "command": step.command,
        "when": step.when or None,
        "disturbs": step.disturbs or None,
        "needs_root": step.needs_root,
    }


def _result(entry: Json) -> Result:
    check = words(entry.get("check")) or "(no name)"
    silence = {
        "status": "unknown",
        "reason": "unparsable",
        "summary": "this report does not say what was found",
    }
    found = [finding(check, item) for item in objects(entry.get("findings")) or (silence,)]
    decisive = max(found, key=severity)
    staged: _Staged = {"stage": "preview"} if entry.get("stage") == "preview" else {}
    return {
        "check": check,
        "title": words(entry.get("title")),
        "status": Status.PASS.value if decisive["waived"] is not None else decisive["status"],
        "seconds": number(entry.get("seconds")) or 0.0,
        "tags": [tag for tag in map(words, listed(entry.get("tags"))) if tag],
        "why": words(entry.get("why")),
        "findings": found,
        **staged,
    }


def _cause(entry: Json) -> Cause | None:
    """One cause of a saved report; None for what names none. Its words must be ones that views know."""
    id, headline = words(entry.get("id")), words(entry.get("headline"))
    if not (id and headline):
        return None
    return {
        "id": id,
        "headline": headline,
        "status": status_of(entry.get("status")).value,
        "subjects": [words(subject) for subject in listed(entry.get("subjects"))],
        "explains": [words(one) for one in listed(entry.get("explains"))],
        "unjudged": int(number(entry.get("unjudged")) or 0),
        "owner": _one_of(entry.get("owner"), get_args(Owner), "undetermined"),
        "action": _one_of(entry.get("action"), get_args(Move), "investigate"),
        "schedulable": _one_of(entry.get("schedulable"), get_args(Schedulable), "no"),
        "reason": words(entry.get("reason")),
        "first_step": _first_step(entry.get("first_step")),
        **_in_preview(entry),
    }


def _in_preview(entry: Json) -> _Counted:
    return {"preview": True} if entry.get("preview") is True else {}


def _first_step(value: Any) -> Step | None:
    step = _step(value) if isinstance(value, dict) else None
    return step if step and step["role"] in _ROLES and step["command"] else None


def _one_of(value: Any, known: Iterable[str], otherwise: str) -> str:
    return value if isinstance(value, str) and value in known else otherwise


def _probe(entry: Json) -> Probe:
    outcome, rc = text(entry, "outcome"), entry.get("rc")
    return {
        "name": words(entry.get("name")) or "(no name)",
        "argv": [words(word) for word in listed(entry.get("argv"))],
        "outcome": outcome if outcome in _OUTCOMES else Outcome.CRASH.value,
        "rc": rc if isinstance(rc, int) and words(rc) else None,
        "seconds": number(entry.get("seconds")) or 0.0,
        "note": words(entry.get("note")) or None,
        "truncated": entry.get("truncated") is True,
    }
