"""What the keys do here, by what a person wants, and what the words mean: on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from nodedoctor.model import Status
from nodedoctor.tui.keys import COPY, ELSEWHERE, LOOK, MOVE, KeyCommand
from nodedoctor.tui.theme import LABEL, RUN, STYLE, Glyphs, Para, Part, fit
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.page import Page

MEANING = (
    (Status.FAIL.word, STYLE[Status.FAIL], "breaks or cripples training"),
    (Status.PASS.word, STYLE[Status.PASS], "looked at, as it must be"),
    (Status.WARN.word, STYLE[Status.WARN], "works; slower or about to break"),
    (Status.SKIP.word, STYLE[Status.SKIP], "does not apply to this node"),
    (Status.UNKNOWN.word, STYLE[Status.UNKNOWN], "could not be judged; it says why"),
    ("RUN", RUN, "has not answered yet"),
)
BEFORE = {
    MOVE: (("j k g G", "Down, up, first, last"), ("^d ^u", "Page down, page up"), ("tab", "Next pane")),
    LOOK: (("enter", "Read it on the whole screen"),),
}
"""Keys of lists and texts, which are no commands of a screen."""
_KEY = 10
"""Cells of a column for keys."""
_TWO, _HALF = 78, 40
"""Cells from which sections are side by side, and of the first column."""
_Line = tuple[Part, ...]


class HelpScreen(Screen[None]):
    """A page; escape or q goes back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "app.pop_screen", "Back", id="help-back"),
    ]

    def __init__(self, keys: Sequence[KeyCommand], glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._keys = tuple(keys)

    def compose(self) -> ComposeResult:
        """A title, the page, the way back."""
        yield Lines(classes="title")
        yield Page(self._glyphs)
        yield Hints((("esc", "Back"),), always=())

    def on_mount(self) -> None:
        """Fill the page."""
        self.query_one(Lines).show([(("help", LABEL), ("   nodedoctor changes nothing on the node", ""))])
        self.query_one(Page).focus()

    def on_page_resized(self) -> None:
        """Two columns where there is room."""
        self.query_one(Page).show("help", [Para(parts=line or (("", ""),)) for line in self._lines()])

    def _lines(self) -> list[_Line]:
        width = self.size.width - 1
        halves = ((MOVE, LOOK), (COPY, ELSEWHERE))
        columns = [_stack_blocks([self._section_lines(name) for name in half]) for half in halves]
        meaning = [_key_line(word, text, style, 6) for word, style, text in MEANING]
        if width < _TWO:
            return [*_stack_blocks(columns), (), *meaning]
        words = zip(meaning[::2], meaning[1::2], strict=True)
        pairs = [*zip_longest(*columns, fillvalue=()), ((), ()), *words]
        return [_join_lines(first, second, max(_HALF, width // 2)) for first, second in pairs]

    def _section_lines(self, name: str) -> list[_Line]:
        own = [
            _key_line(key.keys, _command_words(key), LABEL, _KEY)
            for key in self._keys
            if key.section == name and key.keys != "?"
        ]
        first = [_key_line(keys, text, LABEL, _KEY) for keys, text in BEFORE.get(name, ())]
        return [((name, "bold underline"),), *first, *own]


def _command_words(key: KeyCommand) -> str:
    return f"{key.text.removeprefix('Open ')}: {key.about}" if key.about else key.text


def _key_line(key: str, text: str, style: str, width: int) -> _Line:
    return ((key, style), (" " * max(width - len(key), 1), ""), (text, ""))


def _stack_blocks(blocks: Sequence[Sequence[_Line]]) -> list[_Line]:
    """Blocks below each other, an empty line between them."""
    return [line for number, block in enumerate(blocks) for line in (*(((),) if number else ()), *block)]


def _join_lines(first: _Line, second: _Line, width: int) -> _Line:
    used = sum(len(text) for text, _ in first)
    return (*first, (fit("", width - used, ""), ""), *second)
