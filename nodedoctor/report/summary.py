"""The report as one line, for what has room for no more: a drain reason, a node condition, a prompt."""

from __future__ import annotations

from nodedoctor.model import Severity, Status
from nodedoctor.report.document import Finding, Report, full_summary, is_blind, problems_first, severity
from nodedoctor.report.inert import inert
from nodedoctor.report.page import cause_line, healthy_headline, tally
from nodedoctor.wording import about, and_more

LONGEST = 200
"""Characters of the line (ours). The check and its subject come first: who cuts the line short keeps them."""


def render(report: Report) -> str:
    """The worst cause, whose move it is, and how many more there are; the counts where nothing is wrong.

    What could not be seen is counted only where nothing worse is shown, as it is no fault of the node. A
    report of an earlier version has no causes: its worst finding leads.
    """
    if causes := report["causes"]:
        return _short_line(cause_line(causes[0]), and_more(len(causes) - 1))
    problems = _problem_findings(report)
    if not problems:
        return _short_line(f"{Status(report['verdict']).word} {tally(report)}")
    check, worst = problems[0]
    least = min(severity(worst), Severity.WARN)
    more = sum(severity(finding) >= least for _, finding in problems) - 1
    summary = about(worst["subject"] or "", full_summary(worst))
    if more and is_blind(worst):
        return _short_line(healthy_headline(report))
    return _short_line(f"{Status(worst['status']).word} {check}: {summary}", and_more(more))


def _problem_findings(report: Report) -> list[tuple[str, Finding]]:
    """Every finding that is not well with its check, the worst first, then by the id of the check."""
    ordered = (
        (result["check"], finding)
        for result in problems_first(report["results"])
        for finding in result["findings"]
    )
    return sorted(
        (pair for pair in ordered if severity(pair[1]).is_problem), key=lambda pair: -severity(pair[1])
    )


def _short_line(text: str, tail: str = "") -> str:
    """One line, shortened before its tail."""
    room = LONGEST - len(tail)
    plain = " ".join(inert(text).split())
    return (plain if len(plain) <= room else f"{plain[: room - 3]}...") + tail + "\n"
