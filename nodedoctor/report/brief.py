"""The report in one screen: each cause with why it matters, the proof and the steps; `-v` has the rest.

Linear like the long form, and no longer than a terminal is high where one thing is wrong. Commands are
alone on lines that start with `$`.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodedoctor.model import Status
from nodedoctor.report.cause_text import write_short
from nodedoctor.report.document import (
    Cause,
    Report,
    Result,
    full_summary,
    is_blind,
    severity_of,
    worst,
)
from nodedoctor.report.page import (
    SEE_IT,
    cause_page,
    first_command,
    group_results,
    headline,
    healthy_headline,
    lead,
    moment,
    owner_line,
    tally,
)
from nodedoctor.report.writer import INDENT, Writer
from nodedoctor.wording import count_with_noun

_FULL = 3
"""Causes that are written out; the others get a line and what to type first."""
_BLIND_GROUPS = 3


def render(report: Report, *, width: int = 80, colour: bool = False, quiet: bool = False) -> str:
    """The causes, the worst first; with `quiet` nothing else."""
    to = Writer(width, colour)
    _write_head(to, report)
    causes = report["causes"]
    as_bad = [cause for cause in causes if cause["status"] == causes[0]["status"]][:_FULL]
    for cause in as_bad:
        to.line("")
        write_short(to, cause_page(report, cause))
    _write_others(to, causes[len(as_bad) :])
    if not quiet:
        _write_foot(to, report)
    return to.page()


def _write_head(to: Writer, report: Report) -> None:
    """What is broken, which node it is, how the checks ended."""
    status = Status(report["verdict"])
    to.line(lead(report) or healthy_headline(report), headline(report["node"]))
    to.line(f"{to.paint(status, status.word)}  {tally(report)}   {moment(report)}")


def _write_others(to: Writer, causes: Sequence[Cause]) -> None:
    """The causes that are not written out, two lines each."""
    to.line(*[""][: len(causes)])
    for cause in causes:
        to.status(Status(cause["status"]), owner_line(cause), most=2)
        if command := first_command(cause):
            to.line(f"{INDENT}$ {command}")


def _write_foot(to: Writer, report: Report) -> None:
    """What could not be seen, what is waived, and where the rest is."""
    results = report["results"]
    unseen = [r for r in results if r["status"] == Status.UNKNOWN.value and is_blind(worst(r))]
    waived = [f for result in results for f in result["findings"] if f["waived"] is not None]
    if waived:
        to.line("")
        to.labelled("waived", ", ".join(f"{f['id']} ({f['waived']})" for f in waived), 2)
    if unseen and not report["causes"]:
        to.line("")
        _write_unseen(to, unseen)
    few = (
        [f"{count_with_noun(len(unseen), 'check')} could not judge (no access or no data)"] if unseen else []
    )
    healthy = [result for result in results if not severity_of(result).is_problem]
    to.line("", "; ".join([*few, f"{len(healthy)} passed or do not apply", "-v shows everything"]))


def _write_unseen(to: Writer, unseen: Sequence[Result]) -> None:
    """The reasons most checks share for not seeing enough, and the way out of each."""
    groups = sorted(group_results(unseen).values(), key=len, reverse=True)
    for group in groups[:_BLIND_GROUPS]:
        finding = worst(group[0])
        count = count_with_noun(len(group), "check") if len(group) > 1 else group[0]["check"]
        to.status(Status.UNKNOWN, f"{count}: {full_summary(finding)}", most=2)
        if finding["fix"]:
            to.labelled(SEE_IT, finding["fix"]["text"], 2)
