"""Numbers that structured loggers keep beside a text: how far a program is, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_COUNTERS = ("epoch", "global_step", "step", "iteration", "iter", "update", "episode", "rollout")
"""Names of fields that count."""
_MEASURE = re.compile(
    r"(?:^|[_/.])(?:loss|lr|rewards?|learning_rate|grad_norm|kl|entropy|accuracy|perplexity|mfu)(?:$|[_/.])"
    r"|(?:tok|tokens|samples)(?:_per_|/)s"
)
"""Names of what a step measures: a step beside none of them may be one of anything."""
_EXIT = ("exit_code", "exitcode", "return_code", "returncode")
_OF_JOB = re.compile(r"(?<![a-z])(?:job|train(?:ing|er)?|run|script|program|main)(?![a-z])", re.IGNORECASE)
"""Whose end is the job's: tools that programs call have codes, too."""
_MOST = 8
"""Measures that are shown behind a text, at most."""


def with_numbers(text: str, fields: Mapping[str, Any]) -> str:
    """A text with the steps, measures and exit code that its record keeps in fields."""
    numbers = dict(_number_fields(fields))
    counters = [name for name in _COUNTERS if name in numbers and numbers[name] not in text]
    measures = [name for name in numbers if _MEASURE.search(name)][:_MOST]
    shown = [*counters, *measures] if counters and measures else []
    code = next((numbers[name] for name in _EXIT if name in numbers), "") if _OF_JOB.search(text) else ""
    end = f", exit code: {code}" if code and f"code: {code}" not in text else ""
    return " ".join((text, *(f"{name}={numbers[name]}" for name in shown))) + end


def _number_fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields with a number, and those of objects among them, as text."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from ((str(key).lower(), str(item)) for key, item in value.items() if _is_number(item))
        elif _is_number(value):
            yield name, str(value)


def _is_number(value: Any) -> bool:
    """True for a number, also as tables and logfmt write it."""
    if isinstance(value, bool):
        return False
    if isinstance(value, str):
        return len(value) < 24 and _NUMBER.fullmatch(value) is not None
    return isinstance(value, (int, float))


_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,3})?|-?(?:nan|inf)", re.IGNORECASE)
