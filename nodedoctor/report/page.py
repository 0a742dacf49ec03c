"""What every view says of a node and of its causes, in the same words and order; the views only draw it.

The order is headline, owner, since, check, why, proof, fix, steps, ticket, verify, docs, what follows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from nodedoctor.knowledge.ownership import action_words, carries_out, owner_word
from nodedoctor.model import WORST_FIRST, Status
from nodedoctor.record import record
from nodedoctor.report.document import (
    Cause,
    Evidence,
    Finding,
    Fix,
    Report,
    Result,
    asides,
    full_summary,
    in_preview,
    marked,
    preview_mark,
    severity,
    worst,
)
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.report.steps import StepText, advice, repair_steps
from nodedoctor.wording import about, and_more, capitalised, count_with_noun, utc_time

OWNER, SINCE, CHECK, WHY, PROOF, FIX, TICKET, VERIFY, DOCS, FOLLOWS, SEE_IT = (
    "owner", "since", "check", "why", "proof", "fix", "ticket", "verify", "docs", "follows", "see it",
)  # fmt: skip
"""The word in front of each part of a page, in every view. `see it`: how to see what could not be seen."""

WRITE_TICKET = "nodedoctor --ticket ticket.md"
_SCHEDULABLE = {
    "yes": "new jobs may start here",
    "drain-when-idle": "drain the node when it is idle",
    "no": "start no new jobs here",
}
_TAKES_THE_NODE = ("replace-node", "reboot", "reset-gpu", "restart-service")
"""Actions that take the node, a GPU or a service away from jobs."""


@record
class Labelled:
    """A part of a page: the word in front of it, and its text."""

    label: str
    text: str


@record
class CausePage:
    """One cause as every view shows it, all inert; `id` is its finding's, `check` the check that found it.

    `opening` is what comes before the proof, and `closing` what comes behind the steps. `goal` is the step
    that does what the headline asks for. `finding` is the one that the cause was found by, `fix` its fix, of
    which the steps are made; `evidence` is its own, then that of the findings that follow from it.
    """

    id: str
    check: str
    status: Status
    mark: str
    headline: str
    opening: tuple[Labelled, ...]
    proof: tuple[str, ...]
    advice: str
    steps: tuple[StepText, ...]
    goal: StepText | None
    closing: tuple[Labelled, ...]
    follows: tuple[str, ...]
    finding: Finding | None
    fix: Fix | None
    evidence: tuple[Evidence, ...]


def cause_pages(report: Report) -> list[CausePage]:
    """The pages of all causes of a node, the worst first."""
    return [cause_page(report, cause) for cause in report["causes"]]


def cause_page(report: Report, cause: Cause) -> CausePage:
    """The page of one cause."""
    origin = root(report, cause)
    finding = origin[1] if origin else None
    fix = finding["fix"] if finding else None
    steps = tuple(repair_steps(fix))
    followers = _following_findings(report, cause, finding)
    rests_on = [*((finding,) if finding else ()), *(follower for _, follower in followers)]
    ticket = (Labelled(TICKET, WRITE_TICKET),) if cause["action"] == "replace-node" else ()
    return CausePage(
        cause["id"],
        origin[0] if origin else "",
        Status(cause["status"]),
        preview_mark(cause),
        inert(cause["headline"]),
        tuple(_opening_lines(report, cause, origin)),
        proof_lines(finding) if finding else (),
        inert(advice(fix)) if fix else "",
        steps,
        next((step for step in steps if carries_out(cause["action"], step.command)), None),
        (*ticket, *after_steps(fix)),
        tuple(_following_lines(cause, followers)),
        finding,
        fix,
        tuple(evidence for member in rests_on for evidence in member["evidence"]),
    )


def lead(report: Report) -> str:
    """One line of the worst cause, as `provider: GPU 3 lost 2 NVLinks; request a replacement`; else empty."""
    causes = report["causes"]
    return f"{cause_line(causes[0])}{and_more(len(causes) - 1)}" if causes else ""


def healthy_headline(report: Report) -> str:
    """What leads a report without a cause, as `PASS: no problem found`."""
    word, unseen = Status(report["verdict"]).word, report["counts"]["unknown"]
    if unseen:
        return f"{word}: no problem found; {unseen} of {len(report['results'])} checks could not judge"
    return f"{word}: no problem found" if report["counts"]["pass"] else f"{word}: nothing was checked"


def cause_line(cause: Cause) -> str:
    """A line of a cause for what has no room for more; of one in preview it says that first."""
    mark = preview_mark(cause)  # which says nothing of the node yet
    return _headline_line(f"{Status(cause['status']).word}{mark}", cause, "") if mark else owner_line(cause)


def owner_line(cause: Cause) -> str:
    """Whose move it is, what is broken and what to do, in one line."""
    word = owner_word(cause["owner"])
    return _headline_line(f"owner {word}" if word == "unknown" else word, cause, preview_mark(cause))


def headline_of(cause: Cause, mark: str | None = None) -> str:
    """What is broken, whether only a rule in preview says so, and how often earlier runs found it."""
    recurs = _recurrence_text(cause)
    shown = preview_mark(cause) if mark is None else mark
    return f"{inert(cause['headline'])}{shown}{f' ({recurs})' if recurs else ''}"


def _headline_line(first: str, cause: Cause, mark: str) -> str:
    action = action_of(cause)
    return f"{first}: {headline_of(cause, mark)}{f'; {action}' if action else ''}"


def action_of(cause: Cause) -> str:
    """What the owner of a cause has to do, in words; empty where nothing is."""
    return action_words(cause["action"], cause["owner"], cause["subjects"])


def first_command(cause: Cause) -> str:
    """What to type first, inert; empty where nothing is to be typed."""
    step = cause["first_step"]
    return inert(step["command"]) if step else ""


def root(report: Report, cause: Cause) -> tuple[str, Finding, str] | None:
    """The check, the finding and the why of a cause; of a failed probe, of the first finding it explains."""
    wanted = {cause["id"], *(cause["explains"] if cause["id"].startswith("probe:") else ())}
    origin = (
        (result["check"], finding, finding.get("why") or result["why"])
        for result in report["results"]
        for finding in result["findings"]
        if finding["id"] in wanted
    )
    return max(origin, key=lambda item: severity(item[1]), default=None)


def headline(node: Mapping[str, object]) -> str:
    """What this node is, in one line: name, GPUs, driver, CUDA, torch, container."""
    return inert("   ".join(identity(node)))


def identity(node: Mapping[str, object]) -> list[str]:
    """What this node is, the name first."""
    parts = [str(node.get("hostname") or "unnamed node")]
    if node.get("gpus"):
        parts.append(f"{node['gpus']}x {node.get('gpu') or 'GPU'}")
    elif node.get("gpus") == 0:
        parts.append("no NVIDIA GPU")
    elif node.get("gpus_on_bus"):
        parts.append(
            f"{count_with_noun(int(str(node['gpus_on_bus'])), 'GPU')} on the bus, none could be read"
        )
    for key, label in (("driver", "driver "), ("cuda", "CUDA "), ("torch", "torch "), ("container", "in ")):
        if node.get(key):
            parts.append(f"{label}{node[key]}")
    return parts


def moment(report: Report) -> str:
    """How long a run took, or when it was recorded that is judged again."""
    if report["source"] == "live":
        return f"in {report['seconds']:.1f} s"
    try:
        started = datetime.fromisoformat(report["started"].replace("Z", "+00:00"))
    except ValueError:
        return "recorded at an unknown time"
    return f"recorded {started:%Y-%m-%d %H:%M} UTC"


def tally(report: Report) -> str:
    """The counts in one line, worst first, without zeros; how many warnings are by rules in preview."""
    counts = report["counts"]
    few = sum(r["status"] == Status.WARN.value and in_preview(worst(r)) for r in report["results"])
    number = "" if few == counts[Status.WARN.value] else f"{few} "
    marks = {Status.WARN: f" ({number}preview)"} if few else {}
    return "  ".join(
        f"{counts[status.value]} {status.value}{marks.get(status, '')}"
        for status in WORST_FIRST
        if counts[status.value]
    )


def group_results(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results by what they say, in order; what passed always speaks for itself."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        summary = sentence(worst(result))
        own = result["status"] == Status.PASS.value or len(result["findings"]) > 1
        groups.setdefault(f"{result['check']}  {summary}" if own else summary, []).append(result)
    return groups


def sentence(finding: Finding) -> str:
    """Subject, summary, waiver and stage in one line."""
    return inert(about(finding["subject"] or "", full_summary(finding)) + asides(finding))


def other_problems(
    results: Sequence[Result], causes: Iterable[CausePage]
) -> list[tuple[list[Result], list[Finding]]]:
    """The findings that are not well and are the root of no cause, by check, the worst first.

    Checks that say the same share an entry, with the findings of the first of them.
    """
    root_ids = {cause.finding["id"] for cause in causes if cause.finding}
    others = {result["check"]: _other_findings(result, root_ids) for result in results}
    groups = group_results(result for result in results if others[result["check"]])
    return [(group, others[group[0]["check"]]) for group in groups.values()]


def _other_findings(result: Result, root_ids: Collection[str]) -> list[Finding]:
    bad = (f for f in result["findings"] if severity(f).is_problem and f["id"] not in root_ids)
    return sorted(bad, key=lambda finding: -severity(finding))


def proof_lines(finding: Finding) -> tuple[str, ...]:
    """Every line of what a finding rests on, marked as printed or as read."""
    return tuple(
        line
        for evidence in finding["evidence"]
        for line in marked(evidence, inert_lines(evidence["text"].strip("\n")))
    )


def after_steps(fix: Fix | None) -> Iterator[Labelled]:
    """How to see that a fix has worked, and where to read about it."""
    for label, text in ((VERIFY, fix["verify"]), (DOCS, fix["docs"])) if fix else ():
        if text:
            yield Labelled(label, inert(text))


def _opening_lines(
    report: Report, cause: Cause, origin: tuple[str, Finding, str] | None
) -> Iterator[Labelled]:
    jobs, action = _jobs_answer(report, cause), action_of(cause)
    yield Labelled(OWNER, "; ".join(filter(None, (owner_word(cause["owner"]), action, jobs))))
    if since := "; ".join(filter(None, (inert(utc_time(cause["since"] or "")), _recurrence_text(cause)))):
        yield Labelled(SINCE, since)
    if origin:
        check, finding, why = origin
        summary = sentence(finding)
        is_headline = summary.lower() in cause["headline"].lower()
        yield Labelled(CHECK, check if is_headline else f"{check}: {summary}")
        if why:
            yield Labelled(WHY, capitalised(inert(why)))


def _recurrence_text(cause: Cause) -> str:
    """On how many boots, or since when, runs have found it; nothing without a journal."""
    earlier = cause.get("recurs")
    if earlier is None:
        return ""
    if boots := earlier.get("boots"):
        reboots = count_with_noun(boots - 1, "reboot")
        return f"on {boots} boots in {earlier.get('days')} days, {reboots} between"
    return f"in {count_with_noun(earlier['times'], 'earlier run')} since {inert(earlier['first'][:10])}"


def _jobs_answer(report: Report, cause: Cause) -> str:
    """Whether new jobs may start; empty where "yes" would contradict what the same page asks for.

    A warning about a part that has to be replaced or reset keeps no job away by itself, and invites none;
    a paste, which has no time, shows a part of the node, and its scheduler may have taken it out.
    """
    if cause["schedulable"] == "yes" and (cause["action"] in _TAKES_THE_NODE or not report["started"]):
        return ""
    of_container = cause["action"] == "fix-job" or cause["id"].startswith("container.")
    broken = cause["status"] == Status.FAIL.value and cause["owner"] == "you" and of_container
    if cause["schedulable"] == "yes" and report["node"].get("container") and broken:
        return "start no new jobs in this container"
    return _SCHEDULABLE[cause["schedulable"]]


def _following_findings(
    report: Report, cause: Cause, finding: Finding | None
) -> list[tuple[Result, Finding]]:
    """The findings that follow from a cause, but for those of its own check about its other subjects."""
    own = {cause["id"], *(f"{cause['id'].partition('@')[0]}@{subject}" for subject in cause["subjects"])}
    own |= {finding["id"]} if finding else set()
    by_id = {f["id"]: (result, f) for result in report["results"] for f in result["findings"]}
    return [by_id[id] for id in cause["explains"] if id not in own and id in by_id]


def _following_lines(cause: Cause, followers: Iterable[tuple[Result, Finding]]) -> Iterator[str]:
    """What else is so because of it, a line each."""
    yield from (f"{result['check']}: {sentence(finding)}" for result, finding in followers)
    if cause["unjudged"]:
        yield f"{count_with_noun(cause['unjudged'], 'check')} could not be judged"
