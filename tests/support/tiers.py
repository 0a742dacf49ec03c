"""`sampled(n)`: `make test` runs n cases of this test, and `make test-slow` the others.

They are spread evenly from the first case on, so that every part of a table that feeds a test is tried.
"""

from __future__ import annotations

from collections import defaultdict

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what a sampled test has beside its samples, before anything is chosen by marks."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for alike in cases.values():
        for number, item in enumerate(alike):
            if not _is_sample(number, len(alike), item):
                item.add_marker("slow")


def _is_sample(number: int, total: int, item: pytest.Item) -> bool:
    """Whether a sample begins at this case, when all cases are divided into as many stretches as samples."""
    marker = item.get_closest_marker("sampled")
    samples = min(marker.args[0], total) if marker else total
    return number * samples // total != (number - 1) * samples // total
