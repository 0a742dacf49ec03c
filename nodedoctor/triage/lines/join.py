"""Joins lines broken at the width of a terminal, `fold` or rich, by other output, or within a message."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from nodedoctor.patterns import mask_digits
from nodedoctor.triage.lines.prefixes import is_known
from nodedoctor.triage.model import NOBODY, Line

NARROWEST = 40
"""Characters; no terminal is narrower."""
OFTEN = 3
"""Lines of the full width that make it a width and not a coincidence."""
TERMINALS = frozenset((72, 76, 78, 79, 80, 100, 120, 132, 160))
"""Widths that people and fold(1) use."""
BORDER_SHARE = 0.6
"""Share of the rows that end in a border; rules between them do not. Ours."""
_PADDING_ENDS = " │┃|+╮╯╭╰┐┘┤├─━═=-_*#"
"""Ends of lines that were filled up to a width and not broken at it."""
_HEAD = re.compile(r"\d+|\s+")
_COLUMNS = re.compile(r"(?<=\S) {2,}(?=\S)")
"""What is between the columns of a table without borders."""
TABLE = 3
"""Gaps between columns that make a line the row of a table: logs have one or two. Ours."""


def broken_width(texts: Sequence[str]) -> int:
    """The width at which a file's lines were broken; 0 if they were not.

    Then no line is longer, several different ones are exactly as long, hardly any is one or two shorter, and
    what follows them does not begin like the other lines do.
    """
    lengths = Counter(len(text) for text in texts)
    widest = max(lengths, default=0)
    near = sum(lengths[widest - less] for less in (1, 2, 3))
    often = OFTEN - (widest in TERMINALS)
    if widest < NARROWEST or lengths[widest] < often or near > lengths[widest]:
        return 0
    if lengths[widest] == len(texts) and widest not in TERMINALS:
        return 0  # a table: no line has an end
    if len({mask_digits(text) for text in texts if len(text) == widest}) < often:
        return 0  # ranks that say the same
    if sum(text[-1] in _PADDING_ENDS for text in texts if len(text) == widest) * 2 > lengths[widest]:
        return 0  # filled up with blanks
    if (
        sum(len(_COLUMNS.findall(text)) >= TABLE for text in texts if len(text) == widest) * 2
        > lengths[widest]
    ):
        return 0  # rows of a table, which begin with names
    full = [index for index, text in enumerate(texts[:-1]) if len(text) == widest]
    next_rows = {index + 1 for index in full}
    heads = {_line_head(text) for index, text in enumerate(texts) if index not in next_rows}
    unusual = sum(_line_head(texts[index + 1]) not in heads for index in full)
    return widest if unusual * 2 > len(full) else 0


def padded_width(texts: Sequence[str]) -> int:
    """The width of a terminal whose padded rows were copied; 0 for other texts."""
    wide = {len(text) for text in texts if text.strip()}
    padded = sum(text[-1:] == " " for text in texts)
    return wide.pop() if len(wide) == 1 and min(wide) >= NARROWEST and padded * 2 > len(texts) > OFTEN else 0


_RULE = re.compile(r"[|+](?:[-:=]+[|+])+\s*$")
_RIGHT_BORDER = re.compile(r"(?<!\s)\s+\|\s*$")


def has_table_border(texts: Sequence[str]) -> bool:
    """Whether most texts end in the right border of a table."""
    return sum(_RIGHT_BORDER.search(text) is not None for text in texts) >= max(
        OFTEN, BORDER_SHARE * len(texts)
    )


def strip_table_border(text: str) -> str | None:
    """A row without the borders at its sides; None for a rule of the table."""
    if _RULE.match(text):
        return None
    row = _RIGHT_BORDER.sub("", text)
    return row[1:].removeprefix(" ") if row[:1] == "|" and row != text else row


def _line_head(text: str) -> str:
    return _HEAD.sub("0", text[:12])[:5]


_ROW = re.compile(r"(?:\[[\d/:., ]{8,26}\]| {10,28}) (?:DEBUG   |INFO    |WARNING |ERROR   |CRITICAL) (?=.)")
"""How the handler of rich begins a line: the time, left out while it is the same, and a severity."""
_CLOCKED = re.compile(r"\[[\d/:., ]{8,26}\] (?=\S)")
"""How a console of rich begins a line; the place at the right margin shows where the next one begins."""
_PLACE = re.compile(r"(?<! ) +((?:[\w.-]+\.\w{1,4}|<[\w-]+>):\d+)$")


def rich_column(texts: Sequence[str]) -> int:
    """The column at which rich's texts begin; 0 where rich did not print."""
    wide = max(map(len, texts), default=0)
    begins = Counter(match.end() for text in texts if (match := _ROW.match(text)))
    if not begins:
        place_rows = (text for text in texts if len(text) == wide and _PLACE.search(text))
        begins = Counter(match.end() for text in place_rows if (match := _CLOCKED.match(text)))
    begin = begins.most_common(1)[0][0] if begins else 0
    rows = RichColumn(begin, wide)
    often = sum(rows.is_head(text) for text in texts) if begin else 0
    inside = sum(not text[:begin].strip() and not rows.is_head(text) for text in texts if text.strip())
    full = [text for text in texts if text.strip()]
    padded = any(text[-1] == " " for text in full) and all(len(text) == wide for text in full)
    return begin if often > 1 - padded and inside + often >= len(full) * 3 // 4 else 0


class RichColumn:
    """Texts that rich broke at words into a column.

    What would have fitted into the row above is a line of its own.
    """

    def __init__(self, begin: int, wide: int) -> None:
        self._begin, self._wide = begin, wide
        self._room, self._last = 0, ""

    def is_head(self, row: str) -> bool:
        """Whether a text begins in this row."""
        match = _ROW.match(row)
        if match is None and len(row) == self._wide and _PLACE.search(row):
            match = _CLOCKED.match(row)
            return not row[: self._begin].strip() or (match is not None and match.end() == self._begin)
        return match is not None and match.end() == self._begin

    def head(self, row: str) -> str:
        """The first row of a text, without the place at its right."""
        place = _PLACE.search(row) if len(row) >= self._wide else None
        self._room = self._wide - self._begin - (len(place[1]) + 1 if place else 0)
        row = (row[: place.start()] if place else row).rstrip()
        self._last = row[self._begin :]
        return row.lstrip() if row[: self._begin].strip() else self._last

    def inside(self, row: str) -> str:
        """A row that is a line of its own, without the column's blanks."""
        return row if row[: self._begin].strip() else row[self._begin :].rstrip()

    def between(self, row: str) -> str | None:
        """The blank between the row above and this one; None for separate lines."""
        if not self._last or row[: self._begin].strip() or not row.strip():
            self._last = ""
            return None
        text = row[self._begin :].rstrip()
        first, last = text.split()[0], self._last.split()[-1]
        fits = text[:1].isspace() or len(self._last) + 1 + len(first) <= self._room
        folded = len(self._last) == self._room < len(first) + len(last)  # a word too long for any row
        self._last = text
        return None if fits else "" if folded else " "


_FRAME_SIDES = "│┃║"
_BORDER = re.compile(r"[╭╰┌└├┏┗╔╚].*[╮╯┐┘┤┓┛╗╝]$")


def frame_width(texts: Sequence[str]) -> int:
    """How wide the texts are that rich drew a frame around; 0 without one."""
    rows = [text for text in texts if text.strip()]
    walls = Counter(len(text) for text in rows if text[0] in _FRAME_SIDES and text[-1] in _FRAME_SIDES)
    wide, often = walls.most_common(1)[0] if walls else (0, 0)
    borders = sum(_BORDER.match(text) is not None for text in rows)
    return wide - 4 if borders and wide > NARROWEST and often + borders == len(rows) else 0


def strip_frame(text: str) -> str | None:
    """A row without the frame around it; None for the frame's own rows."""
    if _BORDER.match(text):
        return None
    return text[2:-2].rstrip() if text[:1] in _FRAME_SIDES and text[-1:] in _FRAME_SIDES and text else text


_QUOTE = re.compile(r"^(?:> ?){1,9}")
MAIL_WIDTHS = range(60, 81)
"""Characters of a row at most, behind the marks of a quotation, that programs for mail make (RFC 3676)."""
WRAPPED_SHARE = 0.8
"""Share of the rows behind a line's first one that would not have fitted into that. Ours."""


def strip_quote(text: str) -> str:
    """A row without the marks of a quotation in front of it."""
    return _QUOTE.sub("", text, count=1) if text[:1] == ">" else text


def mail_width(texts: Sequence[str]) -> int:
    """The width at which a program for mail broke lines at blanks; 0 for other texts.

    Then no row is longer, and what follows the beginning of a line did not fit into it.
    """
    rows = [strip_quote(text).rstrip() for text in texts]
    wide = max((len(row) for row in rows if " " in row.strip()), default=0)  # no word is broken
    if wide not in MAIL_WIDTHS or broken_width(texts):
        return 0
    behind = [
        len(row) + 1 + len(next_row.split()[0]) > wide
        for row, next_row in pairwise(rows)
        if is_known(row) and next_row.strip() and not next_row[0].isspace() and not is_known(next_row)
    ]
    return wide if sum(behind) >= max(OFTEN, WRAPPED_SHARE * len(behind)) else 0


class RichFrame(RichColumn):
    """The same for a frame or a mail, whose rows show no heads: only a known prefix does."""

    def __init__(self, wide: int) -> None:
        super().__init__(0, wide)

    def is_head(self, row: str) -> bool:
        """Whether a text begins in this row for sure."""
        return not row.strip() or is_known(row)

    def head(self, row: str) -> str:
        """The first row of a text."""
        return self.inside(row)

    def inside(self, row: str) -> str:
        """A row that is a line of its own."""
        self._room, self._last = self._wide, row.rstrip()
        return self._last


BETWEEN = 4
"""Lines of others inside of a broken one at most. Ours."""
_HALF = re.compile(r"Watchdog caught(?!.*(?:\)|timed out))")
_GOES_ON = re.compile(
    r"Watchdog caught[a-z ]*:? ?(?:Work[A-Z]*|Work[A-Z]{2,6}\((?:\w+(?:\(ms\))?=[\w-]*(?:, ?|$|(?=\))))*"
    r"(?:\w+(?:\((?:ms?\)?)?)?|\).*)?)?$"
)
"""The line, broken anywhere in its words or in the fields behind them, or as a whole."""
_EXCEPTION_HEAD = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception):\s*$")
"""An exception without a message in its own line."""


def join_broken(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines, broken ones put together."""
    broken: Line | None = None
    between: list[Line] = []
    for line in _exception_messages(lines):
        if broken is not None and line.who in (NOBODY, broken.who):
            joined_text = f"{broken.text}{line.text}"
            if _GOES_ON.search(joined_text):
                broken = replace(broken, text=joined_text)
                if not _is_half(broken):
                    yield broken
                    yield from between
                    broken, between = None, []
                continue
        if broken is not None and len(between) < BETWEEN and not _is_half(line):
            between.append(line)
            continue
        if broken is not None:
            yield broken
            yield from between
            broken, between = None, []
        if "Watchdog caught" in line.text and _is_half(line):
            broken = line
        else:
            yield line
    if broken is not None:
        yield broken
        yield from between


def _is_half(line: Line) -> bool:
    """Whether the watchdog's long line is broken off here."""
    return _HALF.search(line.text) is not None


def _exception_messages(lines: Iterable[Line]) -> Iterator[Line]:
    """An exception and its message, which may begin in the next line, indented."""
    head: Line | None = None
    for line in lines:
        if head is not None:
            goes_on = line.text[:1].isspace() and line.text.strip() != "" and line.key == head.key
            yield replace(head, text=f"{head.text} {line.text.lstrip()}") if goes_on else head
            head = None
            if goes_on:
                continue
        if line.text[-1:] in (":", "\t", " ") and _EXCEPTION_HEAD.match(line.text):
            head = replace(line, text=line.text.rstrip())
        else:
            yield line
    if head is not None:
        yield head
