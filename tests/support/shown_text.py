"""What a text that is shown may do to a terminal."""

from __future__ import annotations

import unicodedata

_OBEYED = ("Cc", "Cs", "Zl", "Zp")
"""Categories of characters that terminals obey, or are never sent: controls, surrogates, separators of lines.

A character that Unicode has not assigned is drawn as a box."""


def moves_no_cursor(text: str) -> bool:
    """Whether nothing in a text is obeyed; a text of several lines is given without its ends of lines."""
    return not any(unicodedata.category(character) in _OBEYED for character in text)
