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
from nodedoctor.tui.lines.ticket import LAST_KEYS, SAFE_KEYS, keyed
from nodedoctor.tui.look import LABEL, QUIET, Glyphs, Para
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.page import Page


class StepsScreen(Screen[None]):
    """A page of steps; a key copies one step and goes back. Last resorts have the capital letters."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,c", "app.pop_screen", "Back", id="steps-back"),
    ]

    def __init__(self, title: str, steps: Sequence[Step], glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._title = title
        self._keys = keyed(steps)

    def compose(self) -> ComposeResult:
        """A title, the steps, the way back."""
        yield Lines(classes="title")
        yield Page(self._glyphs)
        last = any(step["role"] == "last-resort" for step in self._keys.values())
        safe = [key for key, step in self._keys.items() if step["role"] != "last-resort"]
        keys = f"{safe[0]}-{safe[-1]}" if len(safe) > 1 else "".join(safe)
        copy = (((keys, "Copy that step"),) if safe else ()) + ((("A-Z", "Last resort"),) if last else ())
        yield Hints(copy, _BACK)

    def on_mount(self) -> None:
        """Fill the page."""
        title = (("copy one step", LABEL), (f"   {inert(self._title)}", ""))
        self.query_one(Lines).show([title])
        page = self.query_one(Page)
        page.show("steps", [para for key, step in self._keys.items() for para in _paras(key, step)])
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


def _paras(key: str, step: Step) -> list[Para]:
    last = step["role"] == "last-resort"
    above = [Para()] if last else []
    return [
        *above,
        Para(
            told_step(step).heading,
            f" {key}  ",
            "bold red" if last else "yellow" if told_step(step).interrupts else QUIET,
        ),
        Para(inert(step["command"]), "    $ ", "red" if last else "cyan", "bold", verbatim=True),
    ]
