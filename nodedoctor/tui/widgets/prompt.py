"""One line to type into, at the foot of a screen: a filter, a path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input, Label


class Prompt(Horizontal):
    """Mounted when asked for, gone when answered. `done` gets the text, or None after escape."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel", show=False, priority=True)]

    def __init__(
        self,
        label: str,
        value: str,
        done: Callable[[str | None], None],
        changed: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._label = label
        self._value = value
        self._done = done
        self._changed = changed

    def compose(self) -> ComposeResult:
        """A word and the line."""
        yield Label(f"{self._label} ", markup=False)
        yield Input(self._value, compact=True, select_on_focus=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Pass on every letter to whoever wants it."""
        event.stop()
        if self._changed:
            self._changed(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter answers."""
        event.stop()
        self._finish(event.value)

    def action_cancel(self) -> None:
        """Escape leaves things as they were."""
        self._finish(None)

    def _finish(self, answer: str | None) -> None:
        self.remove()
        self._done(answer)


async def ask(screen: Screen[Any], prompt: Prompt) -> None:
    """Put a prompt on a screen and the cursor into it, unless one is there."""
    if not screen.query(Prompt):
        await screen.mount(prompt)
        screen.set_focus(prompt.query_one(Input))
