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

    What could not be seen is counted only where nothing worse is told, as it is no fault of the node. A
    report of an earlier version has no causes: its worst finding leads.
    """
    if causes := report["causes"]:
        return _line(cause_line(causes[0]), and_more(len(causes) - 1))
    problems = _problems(report)
    if not problems:
        return _line(f"{Status(report['verdict']).word} {tally(report)}")
    check, worst = problems[0]
    least = min(severity(worst), Severity.WARN)
    more = sum(severity(finding) >= least for _, finding in problems) - 1
    said = about(worst["subject"] or "", full_summary(worst))
    if more and is_blind(worst):
        return _line(healthy_headline(report))
    return _line(f"{Status(worst['status']).word} {check}: {said}", and_more(more))


def _problems(report: Report) -> list[tuple[str, Finding]]:
    """Every finding that is not well with its check, the worst first, then by the id of the check."""
    ordered = (
        (result["check"], finding)
        for result in problems_first(report["results"])
        for finding in result["findings"]
    )
    return sorted(
        (pair for pair in ordered if severity(pair[1]).is_problem), key=lambda pair: -severity(pair[1])
    )


def _line(text: str, tail: str = "") -> str:
    """One line, shortened before its tail."""
    room = LONGEST - len(tail)
    plain = " ".join(inert(text).split())
    return (plain if len(plain) <= room else f"{plain[: room - 3]}...") + tail + "\n"
