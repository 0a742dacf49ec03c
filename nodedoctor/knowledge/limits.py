"""Thresholds and defaults of the operating system, containers, Ray and GPUs, each with its source."""

from __future__ import annotations

from functools import cache

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.record import record


@record
class Limit:
    """One threshold. `value` is a number in `unit`, or a word such as `unlimited` or `off`."""

    key: str
    value: float | str
    unit: str
    what: str
    text: str
    source: str

    @property
    def number(self) -> float:
        """The value as a number; TypeError for a limit that is a word."""
        if isinstance(self.value, str):
            raise TypeError(f"limit {self.key} is {self.value!r}, not a number")
        return self.value


limits = cached_rows("limits", "limits", Limit)


@cache
def _by_key() -> dict[str, Limit]:
    return {limit.key: limit for limit in limits()}


def limit(key: str) -> Limit:
    """The limit of that key; KeyError for one the table does not have."""
    return _by_key()[key]
