"""Lines that a mail or a narrow window broke, joined again: rows of tables, the kernel's log, any other."""

from __future__ import annotations

import re
from itertools import pairwise

from nodedoctor.patterns import regex
from nodedoctor.prompts import match_prompt
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

_STAMPED = regex(
    r"(?P<mark>(?:[>|] ?){0,12})(?:<\d{1,3}>)?(?:\[ {0,9}\d{1,9}\.\d{6}\] "
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}\] "
    r"|(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\d[T ][\d:.,+Z-]{8,30}) [\w.-]{1,64} kernel: )"
)
"""How a line of the kernel's log begins, whatever printed it."""
_MESSAGE = regex(r"(?:NVRM: |Xid |nvidia[ -]|mlx5_core |pcieport |kernel: )")
"""How a message begins that has no time of its own: it continues none."""
_CUT_CODE = regex(r"Xid \(PCI:[^)\n]{4,20}\): \d{1,3}$")
_DIGITS = regex(r"(?:[>|] ?){0,12}\d{0,2}, ")
"""A code that goes on in the next line: the driver prints a comma behind it."""
WINDOW = 80
"""Characters in a line of a terminal of its first width (VT100): other widths may be those of a table."""
_OWN_BEGINNING = regex(
    r"[#$>|+*{}\[]|[IWEF]\d{4} |\d{4}-\d\d-\d\d|[\w.-]{1,64}:\d{1,9}:\d{1,9} \[|\s*[A-Z][\w ()/.-]{1,40}: "
)
"""How a line begins that continues none: a prompt, a comment, a time, a rank, a key."""
_RANKED = regex(r"(?:[>|] ?){0,12}[\w.-]{1,64}:\d{1,9}:\d{1,9} \[-?\d{1,3}\] NCCL ")
"""How a line of NCCL begins."""
_FENCE = regex(r"[>|# ]{0,12}(?:`{3}|~{3})")
_LETTERS, _DIGIT = regex(r"[^\W\d]+"), regex(r"\d")
_BEGINNING = 10
"""Characters in which rows of numbers begin alike; ours."""
FEW_BROKEN = 2
"""Lines of one length from which that is the width of a window; ours."""


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


def find_log_width(lines: list[str]) -> int:
    """The width at which lines of the kernel's log were broken; 0 where they were not.

    It is the longest line's, several lines have it, and what follows them has no time.
    """
    stamped = [number for number, line in enumerate(lines) if _STAMPED.match(line)]
    width = max((len(lines[number]) for number in stamped), default=0)
    broken = [number for number in stamped if len(lines[number]) == width and _rest_of(lines, number, width)]
    is_certain = any(
        _CUT_CODE.search(lines[number]) and _DIGITS.match(lines[number + 1]) for number in broken
    )
    return width if len(broken) >= FEW_BROKEN or is_certain else 0


def join_window(lines: list[str]) -> list[tuple[int, str]]:
    """Each line with its number from 0 on, those that a window of 80 columns broke as one; [] where none was.

    No line is longer, several are as long, and each of these has a shorter one behind it that begins nothing.
    Where that is not so of the text, it may be of what is below one prompt.
    """
    full = {number for number, line in enumerate(lines) if len(line) == WINDOW and not _is_complete(line)}
    if len(full) < FEW_BROKEN or any(len(line) > WINDOW for line in lines):
        return []
    if rows := _join_block(lines, 0, len(lines), full):
        return rows
    starts = [number for number, line in enumerate(lines) if _FENCE.match(line) or match_prompt(line)]
    blocks = [_join_block(lines, *ends, full) for ends in pairwise([0, *starts, len(lines)])]
    places = zip(blocks, pairwise([0, *starts, len(lines)]), strict=True)
    if not any(blocks):
        return []
    return [row for block, ends in places for row in block or ((at, lines[at]) for at in range(*ends))]


def _join_block(lines: list[str], start: int, end: int, full: set[int]) -> list[tuple[int, str]]:
    """The lines of a block joined, each with its number; [] where it shows no window."""
    if sum(number in full for number in range(start, end)) < FEW_BROKEN:
        return []
    own = {_form(lines[number]) for number in range(start, end) if number - 1 not in full}
    rows: list[tuple[int, str]] = []
    number = start
    while number < end:
        first = number
        while number < end and number in full:
            number += 1
        rest = lines[number] if number < end else ""
        is_own = not rest.strip() or _form(rest) in own or _OWN_BEGINNING.match(rest)
        if number > first and (is_own or number - first >= MOST_LINES):
            return []
        rows.append((first, "".join(lines[first : number + 1])))
        number += 1
    return rows


def join_rank_lines(lines: list[str]) -> list[tuple[int, str]]:
    """Each line with its number, those of NCCL that a window of 80 columns broke as one; [] where none was.

    NCCL begins each line with the process; none is longer, several are as long, and behind each of these is
    a line that begins nothing.
    """
    ranks = [number for number, line in enumerate(lines) if _RANKED.match(line)]
    full = [number for number in ranks if len(lines[number]) == WINDOW]
    short = [number for number in ranks if len(lines[number]) == WINDOW - 1]  # a blank at a break is lost
    ends = {number: _end_of_rest(lines, number) for number in (*full, *short)}
    is_long = any(len(lines[number]) > WINDOW for number in ranks)
    broken = [number for number, end in ends.items() if number < end]
    if not set(full or short).issubset(broken) or len(broken) < FEW_BROKEN or is_long:
        return []
    rests = {number for first, end in ends.items() for number in range(first + 1, end + 1)}
    rows = []
    for number in (number for number in range(len(lines)) if number not in rests):
        end = ends.get(number, number)
        parts = [*(f"{part:<{WINDOW}}" for part in lines[number:end]), lines[end]]
        rows.append((number, "".join(parts)))
    return rows


def _end_of_rest(lines: list[str], number: int) -> int:
    """The last line that a line as wide as the window goes on in: its own number where in none."""
    while WINDOW - 1 <= len(lines[number]) <= WINDOW and _is_rest(lines, number + 1):
        number += 1
    return number


def _is_rest(lines: list[str], number: int) -> bool:
    """Whether a line may be the rest of the one above it: it begins nothing."""
    line = lines[number] if number < len(lines) else ""
    begins = _OWN_BEGINNING.match(line) or _FENCE.match(line) or match_prompt(line)
    return bool(line.strip()) and not begins


def _form(line: str) -> str:
    """How a line begins, whatever its words: those of a list all begin alike."""
    words = line.lstrip()
    begin = words[:_BEGINNING] if words[:1].isdigit() else words.partition(" ")[0].rstrip(":=")
    return line[: len(line) - len(words)] + _LETTERS.sub("a", _DIGIT.sub("0", begin))


def _is_complete(line: str) -> bool:
    """Whether a line is a rule or a row of a framed table."""
    return line.endswith(ENDS) or len(set(line.strip())) == 1


def join_log_lines(lines: list[str], width: int) -> list[tuple[int, str]]:
    """Each line with its number from 0 on, the parts of a message as one line, numbered as its first."""
    rows: list[tuple[int, str]] = []
    number = 0
    while number < len(lines):
        first, line = number, lines[number]
        stamp = _STAMPED.match(line)
        while stamp and (rest := _rest_of(lines, number, width)):
            number += 1
            mark = stamp["mark"]
            line = f"{line:<{width + (number - first - 1) * (width - len(mark))}}{rest.removeprefix(mark)}"
        rows.append((first, line))
        number += 1
    return rows


def _rest_of(lines: list[str], number: int, width: int) -> str:
    """The next line, where it is the rest of one as wide as the window; a blank at the break is lost."""
    rest = lines[number + 1] if number + 1 < len(lines) else ""
    if not width - 1 <= len(lines[number]) <= width or len(rest) > width or not rest.strip():
        return ""
    return "" if _STAMPED.match(rest) or _MESSAGE.match(rest) or match_prompt(rest) else rest
