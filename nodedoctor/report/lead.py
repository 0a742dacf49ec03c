"""What every view of a report says first: what is broken, and whose move it is."""

from __future__ import annotations

from collections.abc import Sequence

from nodedoctor.knowledge.ownership import action_words, owner_word
from nodedoctor.model import Status
from nodedoctor.report.document import Cause, Finding, Report, preview_mark, severity
from nodedoctor.report.inert import inert
from nodedoctor.wording import count_with_noun

_SCHEDULABLE = {
    "yes": "new jobs may start here",
    "drain-when-idle": "drain the node when it is idle",
    "no": "start no new jobs here",
}

_TAKES_THE_NODE = ("replace-node", "reboot", "reset-gpu", "restart-service")
"""Actions that take the node, a GPU or a service away from jobs."""


def lead(report: Report) -> str:
    """One line of the worst cause, as `provider: GPU 3 lost 2 NVLinks; request a replacement`; else empty."""
    causes = report["causes"]
    return f"{of_cause(causes[0])}{and_more(causes)}" if causes else ""


def healthy_headline(report: Report) -> str:
    """What leads a report without a cause, as `PASS: no problem found`."""
    word, unseen = Status(report["verdict"]).word, report["counts"]["unknown"]
    if unseen:
        return f"{word}: no problem found; {unseen} of {len(report['results'])} checks could not judge"
    return f"{word}: no problem found" if report["counts"]["pass"] else f"{word}: nothing was checked"


def of_cause(cause: Cause) -> str:
    """Whose move it is, what is broken and what to do, in one line."""
    action = action_words(cause["action"], cause["owner"], cause["subjects"])
    tail = f"; {action}" if action else ""
    mark = preview_mark(cause)  # which says nothing of the node yet
    first = f"{Status(cause['status']).word}{mark}" if mark else leading_word(cause["owner"])
    return f"{first}: {inert(cause['headline'])}{recurrence(cause)}{tail}"


def leading_word(owner: str) -> str:
    """The word in front of a line about a cause: whose move it is."""
    word = owner_word(owner)
    return f"owner {word}" if word == "unknown" else word


def recurrence(cause: Cause) -> str:
    """Since when earlier runs have found it; nothing without a journal."""
    earlier = cause.get("recurs")
    if earlier is None:
        return ""
    runs = count_with_noun(earlier["times"], "earlier run")
    return f" (in {runs} since {inert(earlier['first'][:10])})"


def and_more(causes: Sequence[Cause]) -> str:
    """How many other causes there are."""
    return f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""


def whose(report: Report, cause: Cause) -> str:
    """Whose move it is, and whether new jobs may start, in words."""
    jobs = _jobs(report, cause)
    word = owner_word(cause["owner"])
    return f"{word}; {jobs}" if jobs else word


def _jobs(report: Report, cause: Cause) -> str:
    """Whether new jobs may start; empty where "yes" would contradict what the same page asks for.

    A warning about a part that has to be replaced or reset keeps no job away by itself, and invites none.
    """
    if cause["schedulable"] == "yes" and cause["action"] in _TAKES_THE_NODE:
        return ""
    of_container = cause["action"] == "fix-job" or cause["id"].startswith("container.")
    broken = cause["status"] == Status.FAIL.value and cause["owner"] == "you" and of_container
    if cause["schedulable"] == "yes" and report["node"].get("container") and broken:
        return "start no new jobs in this container"
    return _SCHEDULABLE[cause["schedulable"]]


def root(report: Report, cause: Cause) -> tuple[str, Finding, str] | None:
    """The check, the finding and the why of a cause; of a failed probe, of the first finding it explains."""
    wanted = {cause["id"], *(cause["explains"] if cause["id"].startswith("probe:") else ())}
    found = (
        (result["check"], finding, finding.get("why") or result["why"])
        for result in report["results"]
        for finding in result["findings"]
        if finding["id"] in wanted
    )
    return max(found, key=lambda item: severity(item[1]), default=None)


def first_command(cause: Cause) -> str:
    """What to type first, inert; empty where nothing is to be typed."""
    step = cause["first_step"]
    return inert(step["command"]) if step else ""
