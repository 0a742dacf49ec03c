"""Ray Tune's table of trials: how far each of those that run has come.

Rows have borders of `|` (ray/tune/progress_reporter.py), or of `│` around columns that blanks part
(ray/tune/experimental/output.py).
"""

from __future__ import annotations

import re

_BLANKS = re.compile(r"\s{2,}")
_COUNT = re.compile(r"\d{1,12}")


class RayTuneTable:
    """Reads rows under a heading with a column `iter`, Tune's own iterations."""

    def __init__(self) -> None:
        self._heading: list[str] = []

    def read(self, text: str) -> tuple[str, tuple[float, ...]] | None:
        """The running trial of a row and its iterations; None for other lines."""
        if not text.endswith(("|", "│")):  # what all lines begin with may have been taken off, the border too
            return None
        cells = _row_cells(text)
        if cells[0] == "Trial name":
            self._heading = cells
        elif "iter" in self._heading and len(cells) == len(self._heading) and "RUNNING" in cells[1:3]:
            count = cells[self._heading.index("iter")]
            return (f"trial {cells[0]}", (float(count),)) if _COUNT.fullmatch(count) else None
        return None


def _row_cells(text: str) -> list[str]:
    inside = text.strip("|│ ")
    return [cell.strip() for cell in inside.split("|")] if text[-1] == "|" else _BLANKS.split(inside)
