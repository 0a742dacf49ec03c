"""The terminal's driver for slow lines: it knows what the terminal shows, and writes only what differs.

Textual draws whole regions, some of them twice; over 2 KB/s that is seconds a key. What it writes are moves,
styles and text, so the picture they make is known, and the shortest way from the last one to it is written.
Everything else (modes, titles, the clipboard) passes as it is; what may change the picture makes it unknown.
"""

from __future__ import annotations

import contextlib
import re
import signal
import termios
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from rich.cells import get_character_cell_size
from textual.drivers.linux_driver import LinuxDriver

from nodedoctor.tui.key_reader import read_keys

_TOKEN = re.compile(
    r"\x1b\[(?P<row>\d+);(?P<column>\d+)H"
    r"|\x1b\[(?P<style>[\d;]*)m"
    r"|\x1b\](?P<link>8;[^\x1b\x07]*)(?:\x1b\\|\x07)"
    r"|(?P<text>[^\x00-\x1f\x7f]+)"
    r"|(?P<line>\r?\n)"
)
_HARMLESS = re.compile(
    r"(?:\x1b\[\?(?!1049|47|1047|3h|3l|6h|6l|7h|7l)\d+[hl]|\x1b\](?:52|0|2);[^\x1b\x07]*\x07)+"
)
"""Modes that change no cell, the clipboard and the title."""

Pen = tuple[str, str]
"""Style and link of a cell, as the numbers and the words of their sequences."""
Cell = tuple[str, Pen]
"""A character and its pen; no character is the second half of a wide one."""

_PLAIN: Pen = ("", "")
_BLANK: Cell = (" ", _PLAIN)
_GAP = 6
"""Unchanged cells that are written again, because stepping over fewer costs as many bytes."""
_RUN = 8
"""Blanks that are erased and not written, where something follows them."""
_OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "7": "27", "9": "29"}
"""What ends an attribute."""


class ScreenPicture:
    """What a terminal shows, as far as it was written through `shortest`."""

    def __init__(self, line_end: str = "\r\n") -> None:
        self._line_end = line_end
        self._rows: dict[int, list[Cell | None]] = {}

    def forget(self) -> None:
        """Others may have written on the terminal: nothing is known of it."""
        self._rows.clear()

    def fits(self, width: int, height: int) -> bool:
        """Whether a terminal of this size shows it as it was written."""
        return len(self._rows) <= height and all(len(cells) <= width for cells in self._rows.values())

    def shortest(self, data: str) -> str:
        """The shortest writing that leaves the picture that `data` leaves."""
        drawn = _drawn_cells(data)
        if drawn is None:
            if not _HARMLESS.fullmatch(data):
                self.forget()
            return data
        rows, (row, column) = drawn
        writer = _Writer(self._line_end)
        for number, cells in sorted(rows.items()):
            before = self._rows.setdefault(number, [])
            after = [new or old for new, old in zip_longest(cells, before)]
            _mended(after)
            for start, end in _spans(before, after):
                writer.span(number, start, end, after)
            self._rows[number] = after
        writer.use(_PLAIN)
        if writer.parts and (row or column):  # where a person types, not where nothing is
            writer.parts.append(f"\x1b[{row + 1};{column + 1}H")
        return "".join(writer.parts)


class SlowLineDriver(LinuxDriver):
    """Textual's own driver, with shorter writing."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self._picture = ScreenPicture(_line_end())
        self._shown_at = (0, 0)
        self.leaving = False

    def write(self, data: str) -> None:
        """Write to the terminal; one that has another size since cut or folded what it showed."""
        size = self._get_terminal_size()
        if size != self._shown_at:
            self._picture.forget()
            self._shown_at = size
        if data and (shorter := self._picture.shortest(data)):
            super().write(shorter)
        if not self._picture.fits(*size):  # drawn for the size before
            self._picture.forget()

    def forget(self) -> None:
        """Write the next picture as a whole."""
        self._picture.forget()

    def run_input_thread(self) -> None:
        """Read keys."""
        read_keys(self.fileno, self.exit_event.is_set, self.process_message, self._debug)

    def disable_input(self) -> None:
        """Read no more keys. On leaving nobody waits for the thread that reads them, which looks up late."""
        if not self.leaving:
            super().disable_input()
        elif not self.exit_event.is_set():
            signal.signal(signal.SIGWINCH, signal.SIG_DFL)
            self.exit_event.set()
            with contextlib.suppress(termios.error):
                termios.tcflush(self.fileno, termios.TCIFLUSH)


def _line_end() -> str:
    """What goes to the beginning of the next line: most terminals' settings put the return before it."""
    try:
        _, output, *_ = termios.tcgetattr(2)
    except termios.error:
        return "\r\n"
    return "\n" if output & termios.OPOST and output & termios.ONLCR else "\r\n"


def _drawn_cells(data: str) -> tuple[dict[int, list[Cell | None]], tuple[int, int]] | None:
    """The cells that data writes and where its cursor is at last; None when it does something else, too."""
    rows: dict[int, list[Cell | None]] = {}
    row = column = at = 0
    style = link = ""
    placed = False
    while at < len(data):
        token = _TOKEN.match(data, at)
        if token is None:
            return None
        at, kind = token.end(), token.lastgroup
        if kind == "column":
            row, column, placed = int(token["row"]) - 1, int(token["column"]) - 1, True
        elif kind == "style":
            style = _codes(token["style"])
        elif kind == "link":
            link = "" if token["link"] == "8;;" else token["link"]
        elif kind == "line":
            row, column = row + 1, 0
        elif not placed:
            return None
        else:
            cells = _cells(token["text"], (style, link))
            line = rows.setdefault(row, [])
            line += [None] * (column - len(line))
            line[column : column + len(cells)] = cells
            column += len(cells)
    return rows, (row, column)


def _cells(text: str, pen: Pen) -> list[Cell | None]:
    blank = pen if _shows_on_blanks(pen) else _PLAIN
    if text.isascii():
        return [(char, blank if char == " " else pen) for char in text]
    cells: list[Cell | None] = []
    for char in text:
        width = get_character_cell_size(char)
        if width == 0 and cells and (last := cells[-1]) is not None:
            cells[-1] = (last[0] + char, last[1])
        else:
            cells.append((char, blank if char == " " else pen))
            cells += [("", pen)] * (width - 1)
    return cells


def _mended(cells: list[Cell | None]) -> None:
    """Put a blank where half a wide character is left, as terminals do."""
    texts = [cell[0] for cell in cells if cell is not None]
    if "" not in texts and "".join(texts).isascii():  # nothing wide, as in most rows
        return
    for at, cell in enumerate(cells):
        if cell is None or (cell[0] and not _is_wide(cell)):
            continue
        if cell[0]:
            whole = at + 1 < len(cells) and (half := cells[at + 1]) is not None and not half[0]
        else:
            whole = at > 0 and _is_wide(cells[at - 1])
        if not whole:
            cells[at] = _BLANK


def _is_wide(cell: Cell | None) -> bool:
    return cell is not None and get_character_cell_size(cell[0][:1] or " ") == 2


def _spans(before: Sequence[Cell | None], after: Sequence[Cell | None]) -> Iterator[tuple[int, int]]:
    """Where a row differs; what differs a few cells apart is one span."""
    start = end = -1
    for at, (old, new) in enumerate(zip_longest(before, after)):
        if new is not None and old == new:
            continue
        if start >= 0 and (new is None or at - end > _GAP):
            yield start, end
            start = -1
        if new is not None:
            start, end = (at if start < 0 else start), at + 1
    if start >= 0:
        yield start, end


class _Writer:
    """Writes spans of rows, each with the shortest way to its place and its styles."""

    def __init__(self, line_end: str) -> None:
        self.parts: list[str] = []
        self._pen = _PLAIN
        self._row = -2
        self._line_end = line_end

    def span(self, row: int, start: int, end: int, cells: Sequence[Cell | None]) -> None:
        """One span; wide characters whole."""
        while start and (cells[start] or _BLANK)[0] == "":
            start -= 1
        while end < len(cells) and (cells[end] or _BLANK)[0] == "":
            end += 1
        self.parts.append(
            self._line_end if not start and row == self._row + 1 else f"\x1b[{row + 1};{start + 1}H"
        )
        self._row, at = row, start
        while at < end:
            blanks = 0
            while at + blanks < end and (cells[at + blanks] or _BLANK) == _BLANK:
                blanks += 1
            last = at + blanks == end
            if blanks and _shows_on_blanks(self._pen):
                self.use(_PLAIN)
            if blanks > (_RUN // 2 if last else _RUN):
                self.parts.append(f"\x1b[{blanks}X" + ("" if last else f"\x1b[{blanks}C"))
            elif blanks:
                self.parts.append(" " * blanks)
            else:
                char, pen = cells[at] or _BLANK
                self.use(pen)
                self.parts.append(char)
            at += blanks or 1

    def use(self, pen: Pen) -> None:
        """Change style and link."""
        if self._pen[0] != pen[0]:
            self.parts.append(_restyled(self._pen[0], pen[0]))
        if self._pen[1] != pen[1]:
            self.parts.append(f"\x1b]{pen[1] or '8;;'}\x1b\\")
        self._pen = pen


@lru_cache(maxsize=1024)
def _restyled(style: str, wanted: str) -> str:
    """The shorter of two ways from one style to another: from none, or by what differs."""
    now, then = _split(style), _split(wanted)
    if not then:
        return "\x1b[m"
    whole = ";".join(["0", *then])
    lost = [code for code in now if code not in then and not (_is_colour(code) and _has_colour(then))]
    if any(code not in _OFF and not _is_colour(code) for code in lost):
        return f"\x1b[{whole}m"
    off = dict.fromkeys(_OFF.get(code, "39") for code in lost)
    kept = [code for code in now if _OFF.get(code) not in off]  # bold and dim are ended by the same number
    return f"\x1b[{min(';'.join([*off, *(code for code in then if code not in kept)]), whole, key=len)}m"


@lru_cache(maxsize=256)
def _codes(style: str) -> str:
    """The numbers of a style in one order, without those that say nothing: the terminal's own colours."""
    attributes: dict[str, str] = {}
    for code in _split(style):
        kind = "~fore" if _is_colour(code) or code == "39" else "~ground" if _is_ground(code) else code
        attributes[kind] = "" if code in ("39", "49") else code
    return ";".join(attributes[kind] for kind in sorted(attributes) if attributes[kind] not in ("", "0"))


@lru_cache(maxsize=256)
def _split(style: str) -> tuple[str, ...]:
    """The attributes of a style; a colour of 256 or of true colour stays whole."""
    found = re.findall(r"[34]8;(?:5;\d+|2;\d+;\d+;\d+)|\d+", style)
    return tuple(found)


@lru_cache(maxsize=256)
def _is_colour(code: str) -> bool:
    """Whether it is a foreground colour, which another one replaces."""
    return code.startswith("38;") or (code.isdecimal() and (30 <= int(code) < 38 or 90 <= int(code) < 98))


def _has_colour(codes: Sequence[str]) -> bool:
    return any(map(_is_colour, codes))


@lru_cache(maxsize=256)
def _is_ground(code: str) -> bool:
    """Whether it is a background colour, or ends one."""
    return re.match(r"4[0-79]$|10[0-7]$|48;", code) is not None


@lru_cache(maxsize=256)
def _shows_on_blanks(pen: Pen) -> bool:
    """Whether a blank looks different with it: a background, reverse, a line under, through or over it."""
    return bool(pen[1]) or any(
        code in ("4", "7", "9", "21", "53") or _is_ground(code) for code in _split(pen[0])
    )
