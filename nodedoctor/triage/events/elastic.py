"""The list of failures that torchelastic prints at the end: who failed, how, and what it said of itself."""

from __future__ import annotations

import re
from dataclasses import replace

from nodedoctor.triage.events.exits import ProcessExit
from nodedoctor.triage.model import LARGEST_PID, Event, Identity, Line
from nodedoctor.whole_numbers import whole_number

_ROW = re.compile(r"^\s*(time|host|rank|exitcode|error_file) *: +(?! )(.*)$")
_ENTRY = re.compile(r"^\s*\[\d+\]:\s*$")
_ORDER = ("time", "host", "rank", "exitcode", "error_file")
_SPOKE = re.compile(r"^(\s+)traceback *:(?: (?=Traceback \(most recent)|$)")
_HEAD = "Traceback (most recent call last)"
_RANK = re.compile(r"(\d{1,6})(?: \(local_rank: (\d{1,6})\))?")


class ElasticBlock:
    """An entry is `rank : 1 (local_rank: 1)`, `exitcode : -9 (pid: 42)`, and of a program that records its
    errors the traceback, indented as the entry is: its lines are of that rank, whoever prints the list."""

    def __init__(self) -> None:
        self._root = False
        self._row: dict[str, str] = {}
        self._of: Identity | None = None
        self._indent: str | None = None

    def said(self, line: Line) -> Line:
        """The line as the process of this entry said it, where it is of the entry's traceback."""
        if self._of is None:
            return line
        begins = _SPOKE.match(line.text)
        if begins is not None:
            self._indent = begins[1]
            text = line.text[begins.end() :]
        elif self._indent is None:
            return line
        elif line.text.startswith((_HEAD, self._indent)) and not _ENTRY.match(line.text):
            text = line.text.removeprefix(self._indent)  # the reader has begun a line with the head
        else:
            self._of = self._indent = None
            return line
        return replace(line, text=text, who=self._of, key=f"{line.key}|{self._of.rank}")

    def read(self, line: Line) -> Event[ProcessExit] | None:
        """An exit with what the block says about it, when this line completes one."""
        text = line.text
        if "Root Cause (first observed failure)" in text:
            self._root = True
            self._row = {}
        elif text.startswith("====") or "Failures:" in text:
            self._root, self._row = False, {}
        elif _ENTRY.match(text):
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
        self._of, self._indent = (who if who.rank is not None else None), None
        what = ProcessExit(int(code[1]), first=self._root, at=done.get("time", ""))
        said = f"rank {done.get('rank', '?')} exitcode {done['exitcode']}"
        return Event.at(line, what, who=who, text=said)


def _list_identity(line: Line, row: dict[str, str]) -> Identity:
    """The identity that the list gives."""
    rank = _RANK.match(row.get("rank", ""))
    pid = re.search(r"\(pid: (\d+)\)", row["exitcode"])
    return Identity(
        rank=int(rank[1]) if rank else line.who.rank,
        local_rank=int(rank[2]) if rank and rank[2] else None,
        host=row.get("host") or line.who.host,
        pid=whole_number(pid[1], LARGEST_PID) if pid else None,
    )
