"""The one reader of whole numbers that others wrote: in logs, dumps, JSON and options.

A number from outside becomes the length of a range, a size in memory or digits on a page. Python refuses to
read more than 4300 digits with an error, and builds whatever is below. So each number has a bound where it is
read; one beyond it is no number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

LARGEST = (1 << 63) - 1
"""The largest signed 64-bit number: what counters, sizes and times in C programs are."""

_DECIMAL = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


def whole_number(value: Any, most: int = LARGEST, least: int = 0) -> int | None:
    """The whole number in a text or a JSON value; None when it is none, or not between `least` and `most`."""
    if isinstance(value, str):
        value = int(value) if _DECIMAL.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value <= most else None


def signed(value: Any, most: int = LARGEST) -> int | None:
    """The same, for numbers that may be negative."""
    return whole_number(value, most, -most - 1)


def json_integer(digits: str) -> int | None:
    """For `json.loads(parse_int=...)`: a number of 5000 digits is null, the rest of the document is read."""
    return signed(digits)


def spans(numbers: Iterable[int]) -> list[list[int]]:
    """Sorted numbers as ranges `[first, last]`: a million missing ranks in one line."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges
