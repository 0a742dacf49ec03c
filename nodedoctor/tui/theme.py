"""How things look: the words' styles, the few drawn characters, lines that fit and paragraphs that wrap.

Status is a word first, its weight second, its colour third. Colours are the terminal's own sixteen, so that
light and dark terminals, and people's own palettes, stay right.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from rich.cells import cell_len, chop_cells, set_cell_size

from nodedoctor.model import Status
from nodedoctor.record import record

STYLE = {
    Status.FAIL: "bold bright_white on red",
    Status.UNKNOWN: "bold magenta",
    Status.WARN: "bold black on yellow",
    Status.PASS: "green",
    Status.SKIP: "dim",
}
"""Yellow is no colour for letters: on a light background it cannot be read."""
BORDER = {
    Status.FAIL: "red",
    Status.UNKNOWN: "magenta",
    Status.WARN: "yellow",
    Status.PASS: "green",
    Status.SKIP: "dim",
}
RUN = "bold cyan"
LABEL = "bold"
QUIET = "dim"
DANGER = "red"
"""What a step interrupts."""
MARKED = "bold black on yellow"
"""A line that the reader came for."""


def is_light(environment: Mapping[str, str]) -> bool:
    """Whether the terminal says that its background is light: `COLORFGBG=0;15`, as some of them do."""
    return environment.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")


@record
class Glyphs:
    """The drawn characters: a rule, a bar, the mark of cut text, a ramp, a tile, a point; marks of folds.

    `edges` are the two ends of a bar of load; a `box` is a corner, a line, a corner, a side and two corners,
    and `heavy` is the one under the cursor.
    """

    rule: str
    bar: str
    more: str
    ramp: str
    tile: str
    point: str
    shut: str
    open: str
    above: str
    below: str
    edges: str
    box: str
    heavy: str


UNICODE = Glyphs(
    rule="─",
    bar="│",
    more="…",
    ramp=" ▁▂▃▄▅▆▇█",
    tile="■",
    point="·",
    shut="►",
    open="▼",
    above="▲",
    below="▼",
    edges="▕▏",
    box="╭─╮│╰╯",
    heavy="┏━┓┃┗┛",
)
ASCII = Glyphs(
    rule="-",
    bar="|",
    more="~",
    ramp=" .:-=+*#",
    tile=".",
    point=".",
    shut="+",
    open="-",
    above="^",
    below="v",
    edges="[]",
    box=".-.|''",
    heavy="#=####",
)

_PIECES = re.compile(r"[^ ]+ *|^ +")
"""Words with the blanks behind them; blanks at the start are a piece of their own."""

Part = tuple[str, str]
"""A piece of a line and its style."""


@record
class Row:
    """One line of a list: a word in its style, a name, what there is to say, and a figure at the end.

    `parts`, where given, replace name, text and figure. `owner` has a column of its own behind the
    word, in lists that have one.
    """

    key: str
    word: str
    style: str
    name: str
    text: str = ""
    end: str = ""
    body: str = ""  # style of the name and the text
    parts: tuple[Part, ...] = ()
    owner: str = ""


@record
class Para:
    """A paragraph of a page. Lines after the first hang below the end of `lead`.

    `verbatim` text keeps every blank: output and commands stay as they are, but for where a line ends.
    """

    text: str = ""
    lead: str = ""
    style: str = ""
    lead_style: str = LABEL
    verbatim: bool = False
    most: int = 0  # lines at most; 0: all of them
    parts: tuple[Part, ...] = ()  # a drawn line, in place of the text
    here: int = 0  # 1 for what the reader came for, 2 for the next such place

    def lines(self, width: int) -> Iterator[tuple[Part, ...]]:
        """The paragraph as lines of at most `width` cells; blanks at the end of a full line are left out."""
        if self.parts:
            yield self.parts
            return
        if self.verbatim and self.text.isascii() and len(self.text) + len(self.lead) <= width:
            yield (self.lead, self.lead_style), (self.text, self.style)
            return
        lead, room = self.lead, max(width - cell_len(self.lead), 8)
        if not self.most and _word_width(self.text) in range(room + 1, width - 1):
            # A word that fits into a line, but not behind the lead.
            yield ((lead, self.lead_style),)
            lead, room = "  ", width - 2
        folded = _fold_text(self.text, room) if self.verbatim else _wrap_text(self.text, room)
        if self.most and len(folded) > self.most:
            rest = ("" if self.verbatim else " ").join(folded[self.most - 1 :])
            folded = [*folded[: self.most - 1], _shorten_text(rest, room)]
        first = (lead, self.lead_style)
        for text in folded or [""]:
            shown = text if cell_len(text) <= room else set_cell_size(text, room)  # but for blanks at its end
            yield first, (shown, self.style)
            first = (" " * cell_len(lead), "")


def _word_width(text: str) -> int:
    """Cells of the longest word."""
    return max(map(cell_len, text.split(" ")))


def height(paras: Iterable[Para], width: int) -> int:
    """Lines that paragraphs take at a width."""
    return sum(1 for para in paras for _ in para.lines(width))


def fit(text: str, width: int, more: str) -> str:
    """The text in exactly `width` cells: cut with the mark, or filled with blanks."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + more


def fit_words(text: str, width: int, more: str) -> str:
    """The text in exactly `width` cells, cut between words where it has any."""
    return fit(text if cell_len(text) <= width else _shorten_text(text, width, f" {more}"), width, more)


def _shorten_text(text: str, width: int, more: str = " ...") -> str:
    """The text with a mark that there is more, cut between words where that costs little."""
    room = width - cell_len(more)
    if cell_len(text) > room:
        start = set_cell_size(text, max(room, 1))
        words = start if text[len(start) : len(start) + 1] == " " else start.rpartition(" ")[0]
        text = words if len(words) > len(start) // 2 else start
    return text.rstrip() + more


def _wrap_text(text: str, width: int) -> list[str]:
    lines = textwrap.wrap(text, width, break_on_hyphens=False)
    return [piece for line in lines for piece in _fold_text(line, width)]


def _fold_text(text: str, width: int) -> list[str]:
    """The text in lines that end at a blank where they can; all lines together are the text."""
    if cell_len(text) <= width:
        return [text]
    lines, line, room = list[str](), "", width
    for piece in _PIECES.findall(text):
        word = piece.rstrip(" ")
        if cell_len(word) > room and line:
            lines.append(line)
            line, room = "", width
        if cell_len(word) > width:
            *full_lines, piece = chop_cells(piece, width)
            lines += full_lines
        line += piece
        room -= cell_len(piece)
    return [*lines, line]
