"""Which parameters of a dear test `make test` runs; `make test-slow` runs the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """The parameters of a test, of which the first `count` are fast and the others marked slow."""
    return [
        value if number < count else pytest.param(value, marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]


def some(values: Iterable[Any], every: int) -> list[Any]:
    """The parameters of a test, of which the first of each `every` are fast and the others marked slow."""
    return [
        value if number % every == 0 else pytest.param(value, marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]
