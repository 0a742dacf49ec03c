"""The table of trials: how often each hang was named, or work taken for one, and the most memory of ours.

A test says `record_property("trial", (kind, outcome))`; one that ended before it could say so counts as well,
by the kind it was going to try.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

TRIED, OUTCOME, MIB = "trial of", "trial", "MiB"
OUTCOMES = ("right", "undetermined", "wrong", "false alarm", "no end")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, if anything was tried."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    most: dict[str, float] = defaultdict(float)
    for word in ("passed", "failed"):
        for report in terminalreporter.stats.get(word, ()):
            told = dict(report.user_properties)
            if report.when == "call" and TRIED in told:
                table[told[TRIED]][told.get(OUTCOME, "no end")] += 1
                most[told[TRIED]] = max(most[told[TRIED]], told.get(MIB, 0.0))
    if not table:
        return
    terminalreporter.section("trials")
    outcomes = "".join(f"{word:>14}" for word in OUTCOMES)
    terminalreporter.line(f"{'kind':42}{'times':>8}{outcomes}{MIB:>8}")
    for kind, counts in table.items():
        row = "".join(f"{counts[word]:>14}" for word in OUTCOMES)
        terminalreporter.line(f"{kind:42}{counts.total():>8}{row}{most[kind]:>8.0f}")


def outcome_of_hang(culprits: list[int | None], guilty: list[int]) -> str:
    """What a verdict on a job that hangs is worth."""
    if not culprits:
        return "undetermined"
    return "right" if culprits == guilty else "wrong"
