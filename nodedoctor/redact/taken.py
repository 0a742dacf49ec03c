"""What stands in a text already and can therefore not stand for anything."""

from __future__ import annotations

import re


class Taken:
    """All words of a shape that a text holds, found once for each shape: there may be thousands of them."""

    def __init__(self, text: str) -> None:
        self.text = text.lower()
        self._digits: str | None = None
        self._found: dict[str, frozenset[str]] = {}

    def words(self, shape: str) -> frozenset[str]:
        """What fits the pattern `shape`, wherever it stands."""
        if shape not in self._found:
            self._found[shape] = frozenset(re.findall(f"(?=({shape}))", self.text))
        return self._found[shape]

    def digits(self, shape: str) -> frozenset[str]:
        """The same in the text without what is put between digits: 02:00:00 counts as 020000."""
        if self._digits is None:
            self._digits = re.sub("[:_-]", "", self.text)
        if shape not in self._found:
            self._found[shape] = frozenset(re.findall(f"(?=({shape}))", self._digits))
        return self._found[shape]
