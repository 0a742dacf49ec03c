"""The numbers nodedoctor exits with, and which of them a report is worth."""

from __future__ import annotations

from enum import IntEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from nodedoctor.model import Severity
    from nodedoctor.report.document import Report


class Exit(IntEnum):
    """What scripts branch on. Nagios numbers for verdicts, sysexits(3) for the rest."""

    OK = 0
    WARN = 1
    FAIL = 2
    UNKNOWN = 3
    USAGE = 64
    DRAIN_WHEN_IDLE = 4  # only with --gate
    RESTART = 10  # this and the next three only with --decide
    RESTART_WITHOUT = 11
    STOP = 12
    LOOK = 13
    BUG = 70
    OUTPUT = 74  # the report could not be written
    INTERRUPTED = 130
    TERMINATED = 143


def outcome_code(outcome: str) -> int:
    """The number of a verdict of triage, by its outcome."""
    codes = {"clean": Exit.OK, "recovered": Exit.OK, "failure": Exit.FAIL}
    return codes.get(outcome, Exit.UNKNOWN)


def exit_code(report: Report, fail_on: str = "fail") -> int:
    """The verdict as a number: see README, "Exit codes"."""
    from nodedoctor.report.document import counted

    severities = {counted(finding) for result in report["results"] for finding in result["findings"]}
    return severity_code(severities, fail_on)


def severity_code(severities: Collection[Severity], fail_on: str) -> int:
    """The number of all severities that were found, of a node, of a fleet or between nodes."""
    from nodedoctor.model import Severity

    if Severity.FAIL in severities:
        return Exit.FAIL
    if Severity.BROKEN in severities:
        return Exit.UNKNOWN
    if fail_on == "warn" and Severity.WARN in severities:
        return Exit.WARN
    if fail_on in ("warn", "unknown") and Severity.BLIND in severities:
        return Exit.UNKNOWN
    return Exit.OK
