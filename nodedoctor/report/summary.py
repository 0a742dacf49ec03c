"""The report as one line, for what has room for no more: a drain reason, a node condition, a prompt."""

from __future__ import annotations

from nodedoctor.model import Finding, Report, Result
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
        return _line(f"{report.verdict.word} {tally(report)}")
    result, worst = problems[0]
    least = min(worst.severity, _BLIND + 1)
    more = sum(finding.severity >= least for _, finding in problems) - 1
    subject = f" {worst.subject}" if worst.subject else ""
    tail = f" (and {more} more)" if more else ""
    return _line(f"{worst.status.word} {result.check}{subject}: {worst.summary}", tail)


def _problems(report: Report) -> list[tuple[Result, Finding]]:
    """Every finding that is not well, the worst first, then by the id of its check."""
    ordered = ((result, finding) for result in report.problems_first() for finding in result.findings)
    return sorted(
        (pair for pair in ordered if pair[1].severity >= _BLIND), key=lambda pair: -pair[1].severity
    )


def _line(text: str, tail: str = "") -> str:
    """One line, shortened before its tail."""
    room = LONGEST - len(tail)
    plain = " ".join(inert(text).split())
    return (plain if len(plain) <= room else f"{plain[: room - 3]}...") + tail + "\n"
