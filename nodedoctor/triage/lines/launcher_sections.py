"""Sections of a launcher's output that hold what one rank printed."""

from __future__ import annotations

import re
from dataclasses import replace

from nodedoctor.triage.model import LARGEST_WORLD, NOBODY, Identity, Line
from nodedoctor.whole_numbers import whole_number

_BEGIN = re.compile(
    r"^-{4,}Begin global rank (?P<rank>\d{1,6}) STD(?:OUT|ERR)-{4,}$"
    r"|^\[Rank (?P<rank2>\d{1,6})(?: Error Snippet)?\]:$"
)
"""How Composer (composer/cli/launcher.py) and Ray Train (train/v2/api/exceptions.py) begin one."""
_END = re.compile(r"^-{4,}End global rank |^\[Rank \d|^ray\.train\.")
"""How they end it."""


class RankSections:
    """Gives the lines of a section the rank that its first line names."""

    def __init__(self) -> None:
        self._printer = NOBODY
        self._has_end = False

    def place(self, line: Line) -> Line:
        """The line, with the rank of the section around it; a line's own rank counts more."""
        is_edge = line.text.startswith(("----", "[Rank ", "ray.train."))
        if is_edge and (begin := _BEGIN.match(line.text)) is not None:
            self._has_end = begin["rank"] is not None
            self._printer = Identity(rank=whole_number(begin["rank"] or begin["rank2"], LARGEST_WORLD - 1))
        elif (is_edge and _END.match(line.text)) or (line.time is not None and not self._has_end):
            self._printer = NOBODY
        elif self._printer != NOBODY:
            return replace(line, who=line.who.fill_from(self._printer))
        return line
