"""The list of failures that torchelastic prints at the end."""

from __future__ import annotations

import re

from nodedoctor.triage.model import LARGEST_PID, Event, Identity, Line
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.whole_numbers import whole_number

_ROW = re.compile(r"^\s*(time|host|rank|exitcode|error_file) *: +(?! )(.*)$")
ENTRY = re.compile(r"^\s*\[\d+\]:\s*$")
_ORDER = ("time", "host", "rank", "exitcode", "error_file")
_RANK = re.compile(r"(\d{1,6})(?: \(local_rank: (\d{1,6})\))?")


class ElasticBlock:
    """Reads entries: `rank : 1 (local_rank: 1)` and below it `exitcode : -9 (pid: 42)`."""

    def __init__(self) -> None:
        self._root = False
        self._row: dict[str, str] = {}

    def read(self, line: Line) -> Event[ProcessExit] | None:
        """An exit with what the block says about it, when this line completes one."""
        text = line.text
        if "Root Cause (first observed failure)" in text:
            self._root = True
            self._row = {}
        elif text.startswith("====") or "Failures:" in text:
            self._root, self._row = False, {}
        elif ENTRY.match(text):
            self._row = {}
        row = _ROW.match(text) if ":" in text else None
        if row is None:
            return None
        later = _ORDER[_ORDER.index(row[1]) :]
        if any(name in self._row for name in later):
            self._row = {}  # the end of the entry before is missing: this is of another process
        self._row[row[1]] = row[2].strip()
        if row[1] != "exitcode":
            return None
        done, self._row = self._row, {}
        code = re.match(r"(-?\d{1,10})\b", done["exitcode"])
        if code is None:
            return None
        who = _list_identity(line, done)
        what = ProcessExit(int(code[1]), first=self._root, at=done.get("time", ""), agent="entry")
        summary = f"rank {done.get('rank', '?')} exitcode {done['exitcode']}"
        return Event.at(line, what, who=who, text=summary)


def _list_identity(line: Line, row: dict[str, str]) -> Identity:
    """The identity that the list gives."""
    rank = _RANK.match(row.get("rank", ""))
    pid = re.search(r"\(pid: (\d+)\)", row["exitcode"])
    return Identity(
        rank=int(rank[1]) if rank else line.who.rank,
        local_rank=int(rank[2]) if rank and rank[2] else None,
        host=row.get("host") or line.who.host,
        recorder=line.who.recorder,
        pid=whole_number(pid[1], LARGEST_PID) if pid else None,
    )
