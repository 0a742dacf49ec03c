"""The line at the foot: the keys that matter here, as many as fit, help and quit always."""

from __future__ import annotations

from collections.abc import Sequence

from textual.strip import Strip
from textual.widget import Widget

from nodedoctor.tui.theme import Part
from nodedoctor.tui.widgets.lines import strip

ALWAYS = (("?", "Help"), ("q", "Quit"))


class Hints(Widget):
    """Key and word pairs, the most useful first."""

    def __init__(self, pairs: Sequence[tuple[str, str]], always: Sequence[tuple[str, str]] = ALWAYS) -> None:
        super().__init__()
        self._pairs = tuple(pairs)
        self._always = tuple(always)

    def show(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Show other keys."""
        if tuple(pairs) != self._pairs:
            self._pairs = tuple(pairs)
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The pairs that fit."""
        width = self.size.width
        fixed = _hint_parts(self._always)
        parts: list[Part] = []
        for pair in self._pairs:
            more = _hint_parts((pair,))
            if _parts_width(parts) + _parts_width(more) + _parts_width(fixed) - 2 > width:
                break
            parts += more
        return strip([*parts, *fixed], width, self.rich_style)


def _hint_parts(pairs: Sequence[tuple[str, str]]) -> list[Part]:
    return [part for key, word in pairs for part in ((key, "bold"), (f" {word}  ", ""))]


def _parts_width(parts: Sequence[Part]) -> int:
    return sum(len(text) for text, _ in parts)
