"""One line to type into, at the foot of a screen: a filter, a path."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Label

TYPED_S = 1.0
"""Seconds that the line may take to show what was typed; it takes some milliseconds."""


class Prompt(Horizontal):
    """Mounted when asked for, gone when answered. `done` gets the text, or None after escape."""

    # With priority: the keys behind them wait until the prompt is gone, so that none is typed into it.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", show=False, priority=True),
        Binding("enter", "answer", "Answer", show=False, priority=True),
    ]

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
        self._finished = False
        self.before: Widget | None = None
        """What had the keys, and has them again after the answer."""

    def compose(self) -> ComposeResult:
        """A word and the line."""
        yield Label(f"{self._label} ", markup=False)
        yield Input(self._value, compact=True, select_on_focus=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Pass every letter on, where the prompt has a callback for it."""
        event.stop()
        if self._changed and not self._finished:
            self._changed(event.value)

    async def action_answer(self) -> None:
        """Enter answers, with all letters that were typed before it."""
        field, typed = self.query_one(Input), asyncio.Event()
        field.call_later(typed.set)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(typed.wait(), TYPED_S)
        self._finish_prompt(field.value)

    def action_cancel(self) -> None:
        """Escape leaves things as they were."""
        self._finish_prompt(None)

    def _finish_prompt(self, answer: str | None) -> None:
        if self._finished:
            return
        self._finished = True
        self.remove()
        if self.before is not None:
            self.screen.set_focus(self.before)
        self._done(answer)


async def ask(screen: Screen[Any], prompt: Prompt) -> None:
    """Put a prompt on a screen and the cursor into it, unless one is there."""
    if not screen.query(Prompt):
        prompt.before = screen.focused
        await screen.mount(prompt)
        screen.set_focus(prompt.query_one(Input))
