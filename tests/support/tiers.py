"""Which parameters of a dear test `make test` runs; `make test-slow` runs the others.

A parameter that is a tuple holds the values of several names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """The parameters of a test, of which the first `count` are fast and the others marked slow."""
    return [_parameter(value, slow=number >= count) for number, value in enumerate(values)]


def some(values: Iterable[Any], every: int) -> list[Any]:
    """The parameters of a test, of which the first of each `every` are fast and the others marked slow."""
    return [_parameter(value, slow=number % every > 0) for number, value in enumerate(values)]


def _parameter(value: Any, *, slow: bool) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=[pytest.mark.slow] if slow else [])
