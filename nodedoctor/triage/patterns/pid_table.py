"""Printed tables with a column of ranks and one of process ids: which process each rank is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from nodedoctor.grouping import group_by
from nodedoctor.triage.model import LARGEST_PID, LARGEST_WORLD, Event, Line
from nodedoctor.triage.patterns.progress import PidRoster
from nodedoctor.whole_numbers import whole_number

HEADING = 200
"""Characters of a heading; ours."""
ROWS = 4096
"""Rows of a table that are read."""
_RANK = frozenset(("rank", "global_rank", "world_rank"))
_PID = frozenset(("pid", "process_id"))
_HOST = frozenset(("host", "hostname", "node", "nodename"))
_BETWEEN = re.compile(r"[\s|,]+")
_RULE = re.compile(r"^[\s|+:=-]*$")


class PidTable:
    """Reads tables, line by line; one in which a rank is twice has those of several nodes, or jobs."""

    def __init__(self) -> None:
        self._columns: tuple[str, ...] = ()
        self._rows: list[tuple[Line, int, int, str | None]] = []

    def read(self, line: Line) -> Iterator[Event[PidRoster]]:
        """The pairs of a table that ends before this line."""
        if self._columns:
            if _RULE.match(line.text) and not self._rows:
                return
            if len(self._rows) < ROWS and self._read_row(line):
                return
            yield from self.flush()
        text = line.text[:HEADING].lower()
        if ("pid" in text or "process_id" in text) and "rank" in text:
            columns = _cells(text)
            wanted = sum(name in _RANK for name in columns) == 1 == sum(name in _PID for name in columns)
            self._columns = columns if wanted else ()

    def flush(self) -> Iterator[Event[PidRoster]]:
        """The pairs of the table that is read, those of each host by themselves."""
        rows, self._rows, self._columns = self._rows, [], ()
        if len({rank for _, rank, _, _ in rows}) < len(rows):
            return
        for host, same in group_by(rows, lambda row: row[3]).items():
            roster = PidRoster(tuple(pid for _, _, pid, _ in same), tuple(rank for _, rank, _, _ in same))
            line = same[0][0]
            yield Event.at(line, roster, who=replace(line.who, host=host or line.who.host))

    def _read_row(self, line: Line) -> bool:
        """Take in a row, unless the line is none."""
        cells = _cells(line.text)
        if len(cells) < len(self._columns):
            return False
        row = dict(zip(self._columns, cells, strict=False))
        rank = next((whole_number(row[name], LARGEST_WORLD - 1) for name in _RANK & row.keys()), None)
        pid = next((whole_number(row[name], LARGEST_PID) for name in _PID & row.keys()), None)
        if rank is None or pid is None:
            return False
        self._rows.append((line, rank, pid, next((row[name] for name in _HOST & row.keys()), None)))
        return True


def _cells(text: str) -> tuple[str, ...]:
    """What is between blanks, bars and commas."""
    return tuple(cell for cell in _BETWEEN.split(text) if cell)
