"""The terminal's driver for slow lines: a run of blanks costs ten bytes instead of one each."""

from __future__ import annotations

import re

from textual.drivers.linux_driver import LinuxDriver

_BLANKS = re.compile(r"(\x1b\[(?:[1-3];)*39;49m)([^\x1b\r\n]*?)( {14,})\x1b\[0m")
"""Blanks at the end of a piece in the terminal's own colours; where another background or reverse is on,
erasing would not look the same."""


def squeezed(data: str) -> str:
    """The same picture: blanks are erased (ECH) and stepped over (CUF) instead of written."""
    return _BLANKS.sub(_erased, data)


def _erased(match: re.Match[str]) -> str:
    style, text, blanks = match.groups()
    written = f"{style}{text}" if text else ""
    return f"{written}\x1b[0m\x1b[{len(blanks)}X\x1b[{len(blanks)}C"


class SlowLineDriver(LinuxDriver):
    """Textual's own driver, with shorter writing."""

    def write(self, data: str) -> None:
        """Write to the terminal."""
        super().write(squeezed(data))
