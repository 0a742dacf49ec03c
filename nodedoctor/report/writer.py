"""Lines of a page of text under way, at one width: words of status, labels, prose that is cut at its end."""

from __future__ import annotations

import re
import textwrap

from nodedoctor.model import Status
from nodedoctor.report.inert import inert
from nodedoctor.wording import short_name

INDENT = "     "
LABEL = 8
"""Characters of a label; a blank follows."""
NARROWEST = 40
_COLOUR = {Status.FAIL: "1;31", Status.WARN: "33", Status.UNKNOWN: "35", Status.PASS: "32", Status.SKIP: "2"}
_SENTENCE = re.compile(r"(?<=[.])(?= [A-Z`])")


class Writer:
    """A page of text; `most` is always the lines that something may take, 0 for all that it needs."""

    def __init__(self, width: int, colour: bool = False) -> None:
        self.lines: list[str] = []
        self.width = max(width, NARROWEST)
        self._colour = colour

    def page(self) -> str:
        """All lines."""
        return "\n".join(self.lines) + "\n"

    def blank_page(self) -> Writer:
        """A page of its own, as wide and as colourful."""
        return Writer(self.width, self._colour)

    def line(self, *lines: str) -> None:
        """Lines as they are."""
        self.lines += lines

    def status(self, status: Status, text: str, word: str = "", most: int = 0) -> None:
        """A text behind a word of status, in the indent of all that is below."""
        self.wrapped(f"{self.paint(status, word or status.word)} ", text, most, len(INDENT))

    def labelled(self, label: str, text: str, most: int = 0) -> None:
        """A text behind what it is; nothing where there is none."""
        if text:
            self.wrapped(f"{INDENT}{label:<{LABEL}} ", text, most)

    def prose(self, label: str, text: str, most: int = 0) -> None:
        """Whole sentences, as many as fit, and always the first."""
        room = self.width - len(INDENT) - LABEL - 1
        plain = inert(text)
        if not most or len(textwrap.wrap(plain, room)) <= most:
            self.labelled(label, plain, most)
            return
        ends = [end.start() for end in _SENTENCE.finditer(plain)]
        fit = [end for end in ends if len(textwrap.wrap(f"{plain[:end]} ...", room)) <= most]
        shown = (fit or ends[:1])[-1:]
        self.labelled(label, f"{plain[: shown[0]]} ..." if shown else plain)

    def indented(self, text: str, most: int = 0, first: str = "") -> None:
        """A text in the indent."""
        self.wrapped(INDENT + first, text, most)

    def wrapped(self, prefix: str, text: str, most: int = 0, indent: int = 0) -> None:
        """A text behind a prefix; paths, ids and addresses stay whole, what does not fit ends in dots."""
        indent = indent or len(prefix)
        room = max(self.width - indent, NARROWEST // 2)
        plain = inert(text)
        if most:
            plain = " ".join(short_name(word, room - 4) for word in plain.split(" "))
        wrap = textwrap.TextWrapper(room, break_long_words=False, break_on_hyphens=False, placeholder=" ...")
        wrap.max_lines = most or None
        first, *rest = wrap.wrap(plain) or [""]
        self.line(prefix + first, *(" " * indent + line for line in rest))

    def paint(self, status: Status, word: str) -> str:
        """A word in the colour of a status, where colours are shown."""
        return f"\x1b[{_COLOUR[status]}m{word}\x1b[0m" if self._colour else word
