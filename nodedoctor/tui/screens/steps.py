"""The steps of a fix, numbered, to copy one at a time; what ends the work of others stands apart."""

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
from nodedoctor.tui.look import LABEL, QUIET, Para
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.page import Page

_SAFE_KEYS = "123456789abdefhilmnoprstuvwxyz"
_LAST_KEYS = "ABDEFHIJKLMOPQRSTUVWXYZ"
"""Without the letters that move and leave: c g j k q, and C G N of the other screens."""


class StepsScreen(Screen[None]):
    """A page of steps; a key copies one step and goes back. Last resorts have the capital letters."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,c", "app.pop_screen", "Back", id="steps-back"),
    ]

    def __init__(self, title: str, steps: Sequence[Step]) -> None:
        super().__init__()
        self._title = title
        last = [step for step in steps if step["role"] == "last-resort"]
        safe = [step for step in steps if step["role"] != "last-resort"]
        self._safe = dict(zip(_SAFE_KEYS, safe, strict=False))
        self._last = dict(zip(_LAST_KEYS, last, strict=False))

    def compose(self) -> ComposeResult:
        """A title, the steps, the way back."""
        yield Lines(classes="title")
        yield Page()
        yield Hints((("1-9", "Copy that step"), *((("A-Z", "Last resort"),) if self._last else ())), _BACK)

    def on_mount(self) -> None:
        """Fill the page."""
        title = (("copy one step", LABEL), (f"   {inert(self._title)}", ""))
        self.query_one(Lines).show([title])
        page = self.query_one(Page)
        page.show("steps", [para for key, step in self._keys() for para in _paras(key, step)])
        page.focus()

    def on_key(self, event: events.Key) -> None:
        """Copy the step of that key; a key without a step does nothing, least of all open another screen."""
        if event.character is None or event.character not in _SAFE_KEYS + _LAST_KEYS:
            return
        event.stop()
        step = dict(self._keys()).get(event.character)
        if step is None:
            return
        self.app.copy_to_clipboard(step["command"])
        self.app.pop_screen()
        self.app.notify(f"copied: {inert(step['command'])}", markup=False)

    def _keys(self) -> list[tuple[str, Step]]:
        return [*self._safe.items(), *self._last.items()]


_BACK = (("esc", "Back"),)


def _paras(key: str, step: Step) -> list[Para]:
    last = step["role"] == "last-resort"
    above = [Para()] if last else []
    return [
        *above,
        Para(told_step(step).heading, f" {key}  ", "bold red" if last else QUIET),
        Para(inert(step["command"]), "    $ ", "red" if last else "cyan", "bold", verbatim=True),
    ]
