"""The steps of a fix, numbered, to copy one at a time; what ends the work of others comes last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from nodedoctor.report.document import Step
from nodedoctor.report.inert import inert
from nodedoctor.report.steps import told_step
from nodedoctor.tui.lines.ticket import LAST_KEYS, SAFE_KEYS, keyed
from nodedoctor.tui.theme import DANGER, LABEL, QUIET, Glyphs, Para
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.page import Page


class StepsScreen(Screen[None]):
    """A page of steps; a key copies one step and goes back. Last resorts have the capital letters."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,c", "app.pop_screen", "Back", id="steps-back"),
    ]

    def __init__(
        self, title: str, steps: Sequence[Step], glyphs: Glyphs, behind: Sequence[Para] = ()
    ) -> None:
        """`behind` is what the steps are for; it is below them, where it moves none of them."""
        super().__init__()
        self._behind = behind
        self._glyphs = glyphs
        self._title = title
        self._keys = keyed(steps)

    def compose(self) -> ComposeResult:
        """A title, the steps, the way back."""
        yield Lines(classes="title")
        yield Page(self._glyphs)
        last = [key for key, step in self._keys.items() if step["role"] == "last-resort"]
        safe = [key for key in self._keys if key not in last]
        groups = ((safe, "Copy that step"), (last, "Last resort"))
        yield Hints([(_key_span(keys), word) for keys, word in groups if keys], _BACK)

    def on_mount(self) -> None:
        """Fill the page."""
        title = (("copy one step", LABEL), (f"   {inert(self._title)}", ""))
        self.query_one(Lines).show([title])
        page = self.query_one(Page)
        paras = [para for key, step in self._keys.items() for para in _step_paras(key, step)]
        page.show("steps", [*paras, *((Para(), *self._behind) if self._behind else ())])
        page.focus()

    def on_key(self, event: events.Key) -> None:
        """Copy the step of that key; a key without a step says so, and opens no other screen."""
        if event.character is None or event.character not in SAFE_KEYS + LAST_KEYS:
            return
        event.stop()
        step = self._keys.get(event.character)
        if step is None:
            self.notify(f"no step {event.character} here", markup=False)
            return
        self.app.pop_screen()
        self.app.copy_to_clipboard(step["command"])


_BACK = (("esc", "Back"),)


def _key_span(keys: Sequence[str]) -> str:
    return f"{keys[0]}-{keys[-1]}" if len(keys) > 1 else keys[0]


def _step_paras(key: str, step: Step) -> list[Para]:
    last = step["role"] == "last-resort"
    above = [Para()] if last else []
    return [
        *above,
        Para(
            told_step(step).heading,
            f" {key}  ",
            "bold red" if last else DANGER if told_step(step).interrupts else QUIET,
        ),
        Para(inert(step["command"]), "    $ ", "red" if last else "cyan", "bold", verbatim=True),
    ]
