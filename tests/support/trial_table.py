"""The table of trials: how often each kind of hang was named, and how often work was taken for one.

A test says `record_property("trial", (kind, outcome))`; one that ended before it could say so counts as well,
by the kind it was going to try.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

TRIED, OUTCOME = "trial of", "trial"
OUTCOMES = ("right", "undetermined", "wrong", "false alarm", "no end")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, if anything was tried."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for word in ("passed", "failed"):
        for report in terminalreporter.stats.get(word, ()):
            told = dict(report.user_properties)
            if report.when == "call" and TRIED in told:
                table[told[TRIED]][told.get(OUTCOME, "no end")] += 1
    if not table:
        return
    terminalreporter.section("trials")
    terminalreporter.line(f"{'kind':42}{'times':>8}" + "".join(f"{word:>14}" for word in OUTCOMES))
    for kind, counts in table.items():
        row = "".join(f"{counts[word]:>14}" for word in OUTCOMES)
        terminalreporter.line(f"{kind:42}{counts.total():>8}{row}")


def outcome_of_hang(culprits: list[int | None], guilty: list[int]) -> str:
    """What a verdict on a job that hangs is worth."""
    if not culprits:
        return "undetermined"
    return "right" if culprits == guilty else "wrong"
