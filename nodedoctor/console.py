"""How nodedoctor speaks to shells: exit codes, usage errors, standard output."""

from __future__ import annotations

import argparse
import os
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from nodedoctor.model import Report


class Exit(IntEnum):
    """What scripts branch on. Nagios numbers for verdicts, sysexits(3) for the rest."""

    OK = 0
    WARN = 1
    FAIL = 2
    UNKNOWN = 3
    USAGE = 64
    BUG = 70
    OUTPUT = 74  # the report could not be written
    INTERRUPTED = 130
    TERMINATED = 143


class Parser(argparse.ArgumentParser):
    """argparse, exiting with our usage code: its own 2 would read as a failed node."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and how to get help; exit 64."""
        self.exit(Exit.USAGE, f"{self.prog}: {message} (see `{self.prog} --help`)\n")


def complain(message: str) -> int:
    """One line on stderr for something that was asked for and cannot be; returns the usage code."""
    from nodedoctor.report.inert import inert

    print(f"nodedoctor: {inert(message)}", file=sys.stderr)
    return Exit.USAGE


def exit_code(report: Report, fail_on: str = "fail") -> int:
    """The verdict as a number: see README, "Exit codes"."""
    from nodedoctor.model import Status

    findings = [f for result in report.results for f in result.findings if f.waived is None]
    if any(f.status is Status.FAIL for f in findings):
        return Exit.FAIL
    if any(f.broken for f in findings):
        return Exit.UNKNOWN
    if fail_on == "warn" and any(f.status is Status.WARN for f in findings):
        return Exit.WARN
    if fail_on in ("warn", "unknown") and any(f.blind for f in findings):
        return Exit.UNKNOWN
    return Exit.OK


def emit(text: str) -> bool:
    """Write to stdout; False, with a line on stderr, when it does not take it (a full disk)."""
    try:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"nodedoctor: cannot write the report: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return False
    return True
