"""`--no-skips=FILE`: a skipped test fails the run, unless the file says that its reason is a good one.

What is skipped in silence is not tested. The file has one regular expression a line, which is searched in the
reason; what follows `#` says why nothing can be done about it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", metavar="FILE", type=Path, help="reasons for which tests may be skipped")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("no_skips")
    if file and not hasattr(config, "workerinput"):  # the workers of pytest-xdist report to the first process
        config.pluginmanager.register(NoSkips(file))


class NoSkips:
    """Collects what was skipped, and fails the run for what must not be."""

    def __init__(self, file: Path) -> None:
        lines = (line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines())
        self._good = [re.compile(line) for line in lines if line]
        self.bad: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._look(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._look(report)

    def _look(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(good.search(reason) for good in self._good):
            self.bad.append(f"{report.nodeid}: {reason}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.bad and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.bad:
            terminalreporter.section("skipped, and must not be")
            for line in self.bad:
                terminalreporter.line(line)
