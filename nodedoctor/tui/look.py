"""How things look: the words' styles, the few drawn characters, lines that fit and paragraphs that wrap.

Status is a word first, its weight second, its colour third. Colours are the terminal's own sixteen, so that
light and dark terminals, and people's own palettes, stay right.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells, set_cell_size

from nodedoctor.model import Status
from nodedoctor.record import record

STYLE = {
    Status.FAIL: "bold red",
    Status.UNKNOWN: "bold magenta",
    Status.WARN: "bold yellow",
    Status.PASS: "green",
    Status.SKIP: "dim",
}
RUN = "bold cyan"
LABEL = "bold"
QUIET = "dim"


@record
class Glyphs:
    """The drawn characters: a rule, a bar, the mark of cut text, a ramp, a tile, a point; marks of folds."""

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
)

Part = tuple[str, str]
"""A piece of a line and its style."""


@record
class Row:
    """One line of a list: a word in its style, a name, what there is to say, and a figure at the end.

    `parts`, where given, stand in place of name, text and figure.
    """

    key: str
    word: str
    style: str
    name: str
    text: str = ""
    end: str = ""
    body: str = ""  # style of the name and the text
    parts: tuple[Part, ...] = ()


@record
class Para:
    """A paragraph of a page. Lines after the first hang below the end of `lead`.

    `verbatim` text is folded at the edge, never at blanks: output and commands stay as they are.
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
        """The paragraph as lines of at most `width` cells."""
        if self.parts:
            yield self.parts
            return
        if self.verbatim and self.text.isascii() and len(self.text) + len(self.lead) <= width:
            yield (self.lead, self.lead_style), (self.text, self.style)
            return
        room = max(width - cell_len(self.lead), 8)
        folded = _folded(self.text, room) if self.verbatim else _wrapped(self.text, room)
        if self.most and len(folded) > self.most:
            folded = [*folded[: self.most - 1], _shortened(folded[self.most - 1], room)]
        lead = (self.lead, self.lead_style)
        for text in folded or [""]:
            yield lead, (text, self.style)
            lead = (" " * cell_len(self.lead), "")


def fit(text: str, width: int, more: str) -> str:
    """The text in exactly `width` cells: cut with the mark, or filled with blanks."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + more


def _shortened(text: str, width: int) -> str:
    """The text with a mark that there is more, cut between words where that costs little."""
    if cell_len(text) > width - 4:
        text = set_cell_size(text, max(width - 4, 1))
        words = text.rpartition(" ")[0]
        text = words if len(words) > len(text) // 2 else text
    return f"{text} ..."


def _wrapped(text: str, width: int) -> list[str]:
    lines = textwrap.wrap(text, width, break_on_hyphens=False)
    return [piece for line in lines for piece in _folded(line, width)]


def _folded(text: str, width: int) -> list[str]:
    return [text] if cell_len(text) <= width else chop_cells(text, width)
