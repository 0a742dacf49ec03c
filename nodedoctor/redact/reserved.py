"""What stands in a text already and can therefore not stand for anything."""

from __future__ import annotations

import re


class ReservedWords:
    """All words of a shape that a text holds, found once for each shape: there may be thousands of them."""

    def __init__(self, text: str) -> None:
        self.text = text.lower()
        self._digits: str | None = None
        self._found: dict[str, frozenset[str]] = {}

    def words(self, near: str, shape: str) -> frozenset[str]:
        """What fits the pattern `shape`; it holds the letters `near`, for which to look is much faster."""
        return self._of(self.text, near, shape)

    def digits(self, near: str, shape: str) -> frozenset[str]:
        """The same in the text without what is put between digits: 02:00:00 counts as 020000."""
        if self._digits is None:
            self._digits = self.text.replace(":", "").replace("-", "").replace("_", "")
        return self._of(self._digits, near, shape)

    def _of(self, text: str, near: str, shape: str) -> frozenset[str]:
        if shape not in self._found:
            found = re.findall(f"(?=({shape}))", text) if near in text else ()
            self._found[shape] = frozenset(found)
        return self._found[shape]
