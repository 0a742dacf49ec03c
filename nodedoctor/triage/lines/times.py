"""Times of lines: seconds since New Year, because c10 prints no year."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)


def year_seconds(
    month: int | str,
    day: int | str,
    hour: int | str,
    minute: int | str,
    second: int | str,
    fraction: str | None,
) -> float:
    """Seconds since New Year of a leap year, with or without a year; numbers may be as they are written."""
    days = _DAYS_BEFORE[(int(month) - 1) % 12] + int(day)
    return days * 86400.0 + int(hour) * 3600 + int(minute) * 60 + int(second) + float(f"0.{fraction or 0}")


def clock_time(seconds: float | None) -> str | None:
    """A time of a log without its year: `11-21 05:44:23.515`."""
    if seconds is None:
        return None
    day = int(seconds // 86400)
    month = max((i for i, start in enumerate(_DAYS_BEFORE) if start < day), default=0)
    rest = seconds % 86400
    hour, minute = int(rest // 3600), int(rest % 3600 // 60)
    return f"{month + 1:02d}-{day - _DAYS_BEFORE[month]:02d} {hour:02d}:{minute:02d}:{rest % 60:06.3f}"


def parse_time(value: Any) -> float | None:
    """A written time, or a count since 1970, in seconds since New Year."""
    if not isinstance(value, (int, float, str)) or isinstance(value, bool):
        return None
    number = _epoch_seconds(value)
    try:
        if number is not None:
            when = datetime.fromtimestamp(number, timezone.utc)
            fraction = f"{when.microsecond:06d}"
        else:
            match = _WRITTEN.match(str(value))
            if not match:
                return None
            when, fraction = datetime.fromisoformat(f"{match[1]} {match[2]}"), match[3]
    except (ValueError, OverflowError, OSError):
        return None
    return year_seconds(*when.timetuple()[1:6], fraction)


_WRITTEN = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")


def _epoch_seconds(value: float | str) -> float | None:
    """Seconds since 1970 of a count in any unit; None outside 2001 to 2096."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    for _ in range(4):
        if 1e9 <= number < 4e9:
            return number
        number /= 1000
    return None
