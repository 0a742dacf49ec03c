"""Rows of a framed table that a mail or a narrow window broke into several lines, joined again."""

from __future__ import annotations

import re

from nodedoctor.record import record

_FRAME = re.compile(r"[+|][-=+]{20,400}")
_REST = re.compile(r"[-=+]{1,400}")
ENDS = ("|", "+")
"""How a row of the table ends, and how it begins."""
MOST_LINES = 4
"""Lines that one row was broken into; ours."""
SLACK = 2
"""Characters by which a row may differ from the frame: a wide value shifts it, a blank at a break is lost.
Ours."""


@record
class Frame:
    """The widths of a table: of a line after the break, and of a row before it."""

    line: int
    row: int


def find_frame(lines: list[str]) -> Frame | None:
    """The widths that the first broken frame of a table shows; None where no frame is broken."""
    for number, line in enumerate(lines):
        if not _FRAME.fullmatch(line) or line.endswith(ENDS):
            continue
        width = len(line)
        for following in lines[number + 1 : number + MOST_LINES]:
            if not _REST.fullmatch(following) or len(following) > len(line):
                break
            width += len(following)
            if following.endswith(ENDS):
                return Frame(len(line), width)
    return None


def join_rows(lines: list[str], frame: Frame) -> list[tuple[int, str]]:
    """Each line with its number from 0 on, the parts of a row as one line with the number of the first."""
    rows: list[tuple[int, str]] = []
    number = 0
    while number < len(lines):
        count, row = _whole_row(lines[number : number + MOST_LINES], frame)
        rows.append((number, row))
        number += count
    return rows


def _whole_row(lines: list[str], frame: Frame) -> tuple[int, str]:
    """How many lines a row was broken into, and the row; one line where it is none, or is complete."""
    row = lines[0]
    if row.startswith(ENDS) and len(row) <= frame.line:
        for count, following in enumerate(lines[1:], 1):
            row = f"{row:<{frame.line * count}}{following}"
            if len(row) > frame.row + SLACK:
                break
            if row.endswith(ENDS) and len(row) >= frame.row - SLACK:
                return count + 1, row
    return 1, lines[0]
