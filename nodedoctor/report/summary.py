"""The report as one line, for what has room for no more: a drain reason, a node condition, a prompt."""

from __future__ import annotations

from nodedoctor.model import Status
from nodedoctor.report.document import Finding, Report, problems_first, severity
from nodedoctor.report.inert import inert
from nodedoctor.report.text import tally

LONGEST = 200
"""Characters of the line (ours). The check and its subject come first: who cuts the line short keeps them."""

_BLIND = 2  # as `Finding.severity` ranks what could not be seen from here


def render(report: Report) -> str:
    """The verdict and the worst finding, and how many more are not well; the counts where all is.

    What could not be seen is counted only where nothing worse is told, as it is no fault of the node.
    """
    problems = _problems(report)
    if not problems:
        return _line(f"{Status(report['verdict']).word} {tally(report)}")
    check, worst = problems[0]
    least = min(severity(worst), _BLIND + 1)
    more = sum(severity(finding) >= least for _, finding in problems) - 1
    subject = f" {worst['subject']}" if worst["subject"] else ""
    tail = f" (and {more} more)" if more else ""
    return _line(f"{Status(worst['status']).word} {check}{subject}: {worst['summary']}", tail)


def _problems(report: Report) -> list[tuple[str, Finding]]:
    """Every finding that is not well with its check, the worst first, then by the id of the check."""
    ordered = (
        (result["check"], finding)
        for result in problems_first(report["results"])
        for finding in result["findings"]
    )
    return sorted(
        (pair for pair in ordered if severity(pair[1]) >= _BLIND), key=lambda pair: -severity(pair[1])
    )


def _line(text: str, tail: str = "") -> str:
    """One line, shortened before its tail."""
    room = LONGEST - len(tail)
    plain = " ".join(inert(text).split())
    return (plain if len(plain) <= room else f"{plain[: room - 3]}...") + tail + "\n"
