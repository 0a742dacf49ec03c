"""What the keys do here and what the words mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from nodedoctor.model import Status
from nodedoctor.tui.theme import LABEL, RUN, STYLE, Glyphs, Para
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.page import Page

MEANING = {
    Status.FAIL: "will break or cripple training",
    Status.UNKNOWN: "applies here and could not be judged; it says why, and how to see it",
    Status.WARN: "works, but slower, riskier or about to break",
    Status.PASS: "was looked at and is as it must be",
    Status.SKIP: "does not apply to this node",
}
MOVES = (
    ("j k up down", "move"),
    ("g G", "first, last"),
    ("ctrl+d ctrl+u", "page down, page up"),
    ("enter", "read it on the whole screen"),
    ("tab", "the other pane"),
)
FILTERS = (
    ("nvlink", "rows whose id, title or finding has this word"),
    ("!nvlink", "rows that do not"),
    ("tag:ib", "rows with this tag"),
    ("is:fail", "also warn unknown pass skip run problem blind broken note waived"),
)


class HelpScreen(Screen[None]):
    """A page; escape or q goes back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "app.pop_screen", "Back", id="help-back"),
    ]

    def __init__(self, keys: Sequence[tuple[str, str]], glyphs: Glyphs) -> None:
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
        page = self.query_one(Page)
        page.show("help", list(self._paras()))
        page.focus()

    def _paras(self) -> list[Para]:
        own = {key for keys, _ in self._keys for key in keys.split()}
        paras = _table((*(move for move in MOVES if move[0] not in own), *self._keys))
        paras += [Para(), Para("Statuses", style=LABEL)]
        paras += [
            Para(text, f"{status.word:<14}", lead_style=STYLE[status]) for status, text in MEANING.items()
        ]
        paras += [Para("has not answered yet; the seconds count up", f"{'RUN':<14}", lead_style=RUN)]
        return [*paras, Para(), Para("Filter of the first screen", style=LABEL), *_table(FILTERS)]


def _table(pairs: Sequence[tuple[str, str]]) -> list[Para]:
    return [Para(text, f"{key:<14}") for key, text in pairs]
