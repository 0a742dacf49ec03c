"""Sections of a launcher's output that hold what one rank printed."""

from __future__ import annotations

import re
from dataclasses import replace

from nodedoctor.triage.model import LARGEST_WORLD, NOBODY, Identity, Line
from nodedoctor.whole_numbers import whole_number

_EDGE = re.compile(r"^-{4,}(?P<edge>Begin|End) global rank (?P<rank>\d{1,6}) STD(?:OUT|ERR)-{4,}$")
"""How Composer frames it (composer/cli/launcher.py)."""


class RankSections:
    """Gives the lines of a section the rank that its first line names."""

    def __init__(self) -> None:
        self._printer = NOBODY

    def place(self, line: Line) -> Line:
        """The line, with the rank of the section around it; a line's own rank counts more."""
        edge = _EDGE.match(line.text) if line.text.startswith("----") else None
        if edge is not None:
            rank = whole_number(edge["rank"], LARGEST_WORLD - 1)
            self._printer = Identity(rank=rank) if edge["edge"] == "Begin" else NOBODY
        elif self._printer != NOBODY:
            return replace(line, who=line.who.fill_from(self._printer))
        return line
