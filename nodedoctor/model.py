"""Core data types of every part of nodedoctor: observation, finding, fix, result, report.

All of them are frozen: data flows one way, from what was seen to what is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum, IntEnum
from typing import Any, Literal

from nodedoctor.record import field, record, replace

Action = Literal[
    "none",
    "restart-job",
    "config",
    "restart-service",
    "reset-gpu",
    "reboot",
    "drain",
    "replace",
    "investigate",
]
"""What a machine can act on: the least drastic step that repairs the finding."""

Role = Literal["look", "keep", "repair", "last-resort", "verify"]
"""What a step of a fix is for. `look` and `keep` change nothing, a last resort ends the work of others."""

Reason = Literal["denied", "missing-tool", "not-visible-here", "timeout", "stuck", "crash", "unparsable"]
"""Why something is unknown. The first three are blind, the others broken."""

BLIND: frozenset[str] = frozenset({"denied", "missing-tool", "not-visible-here"})
"""Reasons that say from where to see more; every other reason is news in itself."""


Stage = Literal["stable", "preview"]
"""Whether a check was seen on real output of its kind of hardware; what was not is preview."""

Provenance = Literal["real", "pasted", "synthetic"]
"""Where a recorded node comes from: recorded on the machine itself, put together from what a real machine
printed and somebody posted, or made up (a stand-in for a library, or written by hand)."""


class Status(str, Enum):
    """The state of one thing. The value is what scripts read, `word` what people read."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIP = "skip"

    @property
    def word(self) -> str:
        """The four letters shown on screen; they survive no colour, copying and grep."""
        return "UNKN" if self is Status.UNKNOWN else self.value.upper()


WORST_FIRST = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS, Status.SKIP)
"""The order in which statuses are counted and listed, in every view."""


class Severity(IntEnum):
    """How bad a finding is, for sorting and verdicts. What is unknown is blind or broken by its reason."""

    SKIP = 0
    PASS = 1
    BLIND = 2  # unknown: could not be seen from here
    WARN = 3
    BROKEN = 4  # unknown: something hung, crashed or answered nonsense
    FAIL = 5

    @classmethod
    def of(
        cls, status: Status, reason: str | None = None, waived: str | None = None, preview: bool = False
    ) -> Severity:
        """The severity of a finding; waived it is as bad as a pass, in preview at most as a warning."""
        if waived is not None:
            return cls.PASS
        if status is Status.UNKNOWN:
            severity = cls.BLIND if reason in BLIND else cls.BROKEN
        else:
            severity = _SEVERITIES[status]
        return min(severity, cls.WARN) if preview else severity

    def counted(self, preview: bool) -> Severity:
        """The severity in verdicts and exit codes: what is in preview is no problem there."""
        return min(self, Severity.PASS) if preview else self

    @property
    def is_problem(self) -> bool:
        """Whether there is something to do or to find out: all but pass and skip."""
        return self > Severity.PASS

    @property
    def status(self) -> Status:
        """The status that findings of this severity have."""
        return _STATUSES.get(self, Status.UNKNOWN)


_SEVERITIES = {
    Status.SKIP: Severity.SKIP,
    Status.PASS: Severity.PASS,
    Status.WARN: Severity.WARN,
    Status.FAIL: Severity.FAIL,
}
_STATUSES = {severity: status for status, severity in _SEVERITIES.items()}


class Outcome(str, Enum):
    """What became of a question put to the node."""

    OK = "ok"  # it answered; rc may still be non-zero
    MISSING = "missing"  # no such command, file or recorded text
    DENIED = "denied"  # the operating system refused
    TIMEOUT = "timeout"  # no answer in time; the child died when killed
    STUCK = "stuck"  # no answer in time, and SIGKILL had no effect
    CRASH = "crash"  # the child was ended by a signal of its own
    SKIPPED = "skipped"  # not asked, the note says why


@record
class Observation:
    """The raw answer to one probe, exactly what a recording keeps.

    `text` is what was printed (the tail of it when `truncated`), `note` what the engine or stderr had to say.
    """

    probe: str
    outcome: Outcome = Outcome.OK
    text: str = ""
    rc: int | None = None
    seconds: float = 0.0
    note: str = ""
    argv: tuple[str, ...] = ()
    truncated: bool = False

    @property
    def answered(self) -> bool:
        """True when there is an answer to read."""
        return self.outcome is Outcome.OK


@record
class Unseen:
    """Why a fact is not known: the value a parser returns instead of raising.

    `way_out` says what would make it visible; it becomes the fix of the UNKNOWN finding.
    With `applies=False` there is nothing to see on this node, which makes the check SKIP.
    """

    reason: Reason
    note: str
    way_out: str = ""
    probe: str = ""
    applies: bool = True

    @classmethod
    def skip(cls, note: str) -> Unseen:
        """There is nothing of the kind on this node."""
        return cls("not-visible-here", note, applies=False)

    @classmethod
    def of(cls, observation: Observation, way_out: str = "") -> Unseen:
        """Explain an observation that brought no usable answer."""
        reasons: dict[Outcome, Reason] = {
            Outcome.OK: "unparsable",
            Outcome.MISSING: "missing-tool",
            Outcome.DENIED: "denied",
            Outcome.TIMEOUT: "timeout",
            Outcome.STUCK: "stuck",
            Outcome.CRASH: "crash",
            Outcome.SKIPPED: "not-visible-here",
        }
        note = observation.note or (
            observation.outcome.value if not observation.answered else "the answer could not be read"
        )
        return cls(reasons[observation.outcome], f"{observation.probe}: {note}", way_out, observation.probe)


@record
class Expect:
    """What the person says this node must have (`--expect gpus=8`): absence of it is a failure.

    Given to every check that asks for it; `values` is empty when nothing was said.
    """

    values: Mapping[str, str] = field(default_factory=dict)

    def get(self, key: str) -> str | None:
        """The expected value of a key, None when nothing is expected."""
        return self.values.get(key)


@record
class Moment:
    """When the node was looked at (not when a recording is replayed). Checks have no other clock.

    `started` is aware UTC; `since` is how far back logs count, None for since boot.
    """

    started: datetime
    since: datetime | None = None


@record
class Evidence:
    """What a finding rests on: a quote of what a probe printed, or a reading of one value in it.

    A check says where its proof is: `Evidence(probe, text)` for a slice of the output, `reading(probe, path)`
    for a value. The engine finds it there and fills in the rest (`engine/evidence.py` describes paths);
    what is not there is left out. Of a quote, `line` counts from 1 in the output, or in the text under `path`
    where the output relays several. Of a reading, `text` is made of `source`, `path` and `value`; `otherwise`
    are the paths of other versions of the output, of which the first that exists is read. `at` is the offset
    of the line a quote is of, where the same words may be more than once; `like` a pattern whose first
    match, or the group in it, is quoted.
    """

    probe: str
    text: str = ""
    path: str = ""
    kind: Literal["quote", "reading"] = "quote"
    line: int | None = None
    source: str = ""
    value: Any = None
    otherwise: tuple[str, ...] = ()
    at: int | None = None
    like: str = ""


def reading(probe: str, path: str, *otherwise: str, like: str = "") -> Evidence:
    """The value under a path of what a probe printed, or under the first of the others that exists.

    Where the same is pasted as text, the first match of `like` is quoted.
    """
    return Evidence(probe, path=path, kind="reading", otherwise=otherwise, like=like)


def quoted_like(probe: str, pattern: str, path: str = "") -> Evidence:
    """The first match of a pattern in what a probe printed, or of the group in it; `^` begins any line."""
    return Evidence(probe, path=path, like=pattern)


def file_reading(probe: str, file: str, section: str = "files") -> Evidence:
    """The text of one file that a probe has read."""
    return reading(probe, f'{section}["{file}"]')


@record
class Step:
    """One command of a fix: whole, quoted, ready to run; made by the functions of `nodedoctor.steps`.

    `when` is the condition in words ("" for always), `disturbs` what the command interrupts.
    """

    role: Role
    command: str
    when: str = ""
    disturbs: str = ""
    needs_root: bool = False


@record
class Fix:
    """What to do: prose apart from commands, and each command a step with its part in the whole.

    `disturbs` holds for every repair that does not say itself what it disturbs; `verify` is the command that
    shows whether it worked.
    """

    text: str
    steps: tuple[Step, ...] = ()
    action: Action = "investigate"
    disturbs: str = ""
    verify: str = ""
    docs: str = ""

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that look and repair, in order; never a last resort."""
        return tuple(step.command for step in self.steps if step.role in ("look", "repair"))

    @property
    def plan(self) -> tuple[Step, ...]:
        """All steps, each with what it interrupts, and the one that verifies."""
        steps = [
            replace(step, disturbs=self.disturbs) if step.role == "repair" and not step.disturbs else step
            for step in self.steps
        ]
        verify = [Step("verify", self.verify, disturbs="nothing")] if self.verify else []
        return (*steps, *verify)


@record
class Finding:
    """One judgement about one subject. Checks build it with `ok warn fail unknown skip`.

    `why` is what it means for training, where that is not what its check says; `headline` a clause that makes
    sense alone ("GPU 3 lost 2 NVLinks") and leads a report, if the summary is not one. `explainers` name what
    would explain this finding if it is sick too (see `explained_by`), `missing` the probe that did not give
    what this judgement needs. `because_of` is the id of the cause; only the engine sets it, and `without`:
    what would have made it a PASS and was not seen. With `preview`
    the rule was never seen on real output: the finding is shown, is no failure, and counts in no verdict.
    """

    status: Status
    summary: str
    subject: str = ""
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    note: bool = False
    reason: Reason | None = None
    waived: str | None = None
    why: str = ""
    headline: str = ""
    explainers: tuple[str, ...] = ()
    missing: str = ""
    without: str = ""
    because_of: str | None = None
    preview: bool = False

    @classmethod
    def ok(cls, summary: str, *, subject: str = "", evidence: Iterable[Evidence] = ()) -> Finding:
        """It was looked at and is as it must be."""
        return cls(Status.PASS, summary, subject, tuple(evidence))

    @classmethod
    def info(
        cls, summary: str, *, subject: str = "", evidence: Iterable[Evidence] = (), fix: Fix | None = None
    ) -> Finding:
        """It is as it must be, and there is something worth knowing: a pass with a note."""
        return cls(Status.PASS, summary, subject, tuple(evidence), fix, note=True)

    @classmethod
    def warn(
        cls, summary: str, *, subject: str = "", evidence: Iterable[Evidence] = (), fix: Fix | None = None
    ) -> Finding:
        """It works, but slower, riskier or about to break."""
        return cls(Status.WARN, summary, subject, tuple(evidence), fix)

    @classmethod
    def fail(
        cls, summary: str, *, subject: str = "", evidence: Iterable[Evidence] = (), fix: Fix | None = None
    ) -> Finding:
        """It will break or cripple training."""
        return cls(Status.FAIL, summary, subject, tuple(evidence), fix)

    @classmethod
    def unknown(
        cls,
        reason: Reason,
        summary: str,
        *,
        subject: str = "",
        evidence: Iterable[Evidence] = (),
        fix: Fix | None = None,
    ) -> Finding:
        """It applies here and could not be judged; the fix says how to make it visible."""
        return cls(Status.UNKNOWN, summary, subject, tuple(evidence), fix, reason=reason)

    @classmethod
    def skip(cls, summary: str, *, subject: str = "") -> Finding:
        """It does not apply to this node, and the summary says why."""
        return cls(Status.SKIP, summary, subject)

    @classmethod
    def unseen(cls, why: Unseen, *, subject: str = "") -> Finding:
        """The finding for a fact that is not known."""
        if not why.applies:
            return cls.skip(why.note, subject=subject)
        fix = Fix(why.way_out, action="none") if why.way_out else None
        finding = cls.unknown(why.reason, why.note, subject=subject, fix=fix)
        return replace(finding, missing=why.probe) if why.probe else finding

    def explained_by(self, *names: str) -> Finding:
        """The same finding, which only follows from what is named, where that is as sick.

        `nvlink.links` means that check's finding about the same subject or what it is part of,
        `nvlink.links@gpu:3` that one finding, `fabric.manager@node` the one about the whole node,
        `nvlink.links@all` the same on all like devices, `driver.answers@any` any of that check's.
        """
        return replace(self, explainers=(*self.explainers, *names))

    def matters_as(self, why: str) -> Finding:
        """The same finding with its own sentence on what it means for training."""
        return replace(self, why=why)

    def led_by(self, headline: str) -> Finding:
        """The same finding with a clause that can lead a report."""
        return replace(self, headline=headline)

    def in_preview(self) -> Finding:
        """The same finding, by a rule of a stable check that was never seen on real output."""
        return replace(self, preview=True)

    @property
    def blind(self) -> bool:
        """Unknown only because of where we run (no permission, no tool, a container)."""
        return self.status is Status.UNKNOWN and self.reason in BLIND

    @property
    def broken(self) -> bool:
        """Unknown because something hung, crashed or answered nonsense."""
        return self.status is Status.UNKNOWN and self.reason not in BLIND

    @property
    def severity(self) -> Severity:
        """How bad it is, for sorting."""
        return Severity.of(self.status, self.reason, self.waived, self.preview)


def identifier(check: str, subject: str | None) -> str:
    """The id of a finding, stable between runs: waivers, comparisons and fleets go by it."""
    return f"{check}@{subject}" if subject else check


@record
class Result:
    """What one check found."""

    check: str
    title: str
    findings: tuple[Finding, ...]
    seconds: float = 0.0
    tags: tuple[str, ...] = ()
    why: str = ""
    stage: Stage = "stable"

    @property
    def worst(self) -> Finding:
        """The finding that decides the status; the first of the most severe ones."""
        return max(self.findings, key=lambda finding: finding.severity)

    @property
    def status(self) -> Status:
        """The status of the worst finding; a waived one counts as pass."""
        return Status.PASS if self.worst.waived is not None else self.worst.status

    @property
    def severity(self) -> Severity:
        """The severity of the worst finding."""
        return self.worst.severity


Owner = Literal["you", "administrator", "provider", "job-code", "undetermined"]
"""Whose move it is."""

Move = Literal[
    "none",
    "fix-config",
    "restart-service",
    "reset-gpu",
    "reboot",
    "replace-node",
    "fix-job",
    "investigate",
]
"""What the owner of a cause is asked to do."""

Schedulable = Literal["yes", "drain-when-idle", "no"]
"""Whether new jobs may start on the node."""


@record
class Cause:
    """One illness: the finding everything else follows from (its `id`), or a failed probe (`probe:NAME`).

    `explains` are the ids of the findings that follow from it, `unjudged` the number of checks that could not
    be judged because of it. `reason` is at most 80 characters, for `scontrol update reason=`.
    """

    id: str
    headline: str
    status: Status
    subjects: tuple[str, ...]
    explains: tuple[str, ...]
    unjudged: int
    owner: Owner
    action: Move
    schedulable: Schedulable
    reason: str
    fix: Fix | None = None
    preview: bool = False


@record
class Report:
    """Everything one run has found; every view is made from its document (report/json.py)."""

    tool: str
    source: str
    started: str
    seconds: float
    node: Mapping[str, Any]
    results: tuple[Result, ...]
    observations: tuple[Observation, ...] = ()
    facts: Mapping[str, Any] | None = None
    causes: tuple[Cause, ...] = ()

    def __repr__(self) -> str:
        """Short: asyncio.run() writes out what it returns, twice, which took a fifth of a replay."""
        return f"Report(source={self.source!r}, results={len(self.results)})"
