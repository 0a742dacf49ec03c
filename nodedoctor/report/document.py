"""A report as plain data: its shape, which every view is made from, and what follows from it.

`report/saved.py` reads it out of a saved report, and out of what `report/json.py` says of a run: both have
this shape to the last key, so that a view need not ask where its report comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from nodedoctor.model import BLIND, Severity, Status

if TYPE_CHECKING:
    from typing_extensions import NotRequired  # typing has it from Python 3.11 on

SCHEMA = "nodedoctor.report/1"


class Evidence(TypedDict):
    """What a finding rests on, and the probe that printed it.

    A quote has the `line` it begins at, and the `path` of the text it is from where there are several; a
    reading has `source`, `path` and `value`. Documents of earlier versions have only probe and text.
    """

    probe: str
    text: str
    kind: NotRequired[str]
    line: NotRequired[int]
    path: NotRequired[str]
    source: NotRequired[str]
    value: NotRequired[Any]


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


class Finding(TypedDict):
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
    judged_without: NotRequired[str]
    why: NotRequired[str]
    preview: NotRequired[bool]


class Result(TypedDict):
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
    stage: NotRequired[str]


class Recurrence(TypedDict):
    """How often earlier runs in the journal found a cause, and when first.

    `boots` are there where it was found on several boots of the last `days`, this one included.
    """

    times: int
    first: str
    boots: NotRequired[int]
    days: NotRequired[int]


class Cause(TypedDict):
    """What findings follow from, and whose move it is; see `model.Cause`.

    `since` is the time of the first dated quote in its evidence, null without one. `preview` is there where
    nothing but checks in preview spoke of it, `recurs` where the journal knows it.
    """

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
    since: str | None
    preview: NotRequired[bool]
    recurs: NotRequired[Recurrence]


class Probe(TypedDict):
    """How a question to the node went; what it printed is in a recording, not in a report."""

    name: str
    argv: list[str]
    outcome: str
    rc: int | None
    seconds: float
    note: str | None
    truncated: bool


class Gate(TypedDict):
    """May new jobs start here: the exit code of `--gate`, its word, and the ids of what decides."""

    exit: int
    word: str
    causes: list[str]


class Report(TypedDict):
    """Everything one run says. `node` and `facts` are of any shape: views take what they know.

    `gate` is there only in reports of `--gate`.
    """

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
    gate: NotRequired[Gate]


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
    return f"{waived}{preview_mark(finding)}"


def preview_mark(entry: Mapping[str, Any]) -> str:
    """How every view marks a warning, or a cause, of which only rules in preview speak."""
    return " (preview)" if in_preview(entry) else ""


def in_preview(finding: Mapping[str, Any]) -> bool:
    """Whether a finding is a warning by a rule in preview. Of what is unknown no rule spoke."""
    return finding.get("preview") is True and finding.get("status") == Status.WARN.value


def is_blind(finding: Mapping[str, Any]) -> bool:
    """Unknown only because of where we run (no permission, no tool, a container), waived or not."""
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
    severities = (counted(finding) for result in results for finding in result["findings"])
    return max(severities, default=Severity.SKIP).status.value


def counts(results: Iterable[Result]) -> dict[str, int]:
    """How many checks ended in each status."""
    statuses = [result["status"] for result in results]
    return {status.value: statuses.count(status.value) for status in Status}


def status_of(value: Any) -> Status:
    """A status; what is none of ours is unknown, never well."""
    try:
        return Status(value)
    except ValueError:
        return Status.UNKNOWN


def is_reading(evidence: Evidence) -> bool:
    """Whether it is a value that was read, and not a quote of what was printed."""
    return evidence.get("kind") == "reading"


def place_of(evidence: Evidence) -> str:
    """Where evidence is from, as a comment above it."""
    if is_reading(evidence):
        return f"# {evidence['probe']}, value read"
    return f"# {evidence['probe']}" + (f", line {evidence['line']}" if "line" in evidence else "")


def marked(evidence: Evidence, lines: Iterable[str]) -> list[str]:
    """Lines of evidence as text shows them: `|` before what was printed, `=` before a value that was read."""
    mark = "=" if is_reading(evidence) else "|"
    return [f"{mark} {line}" for line in lines]
