"""Text from the node made harmless to show: nothing in it can move a cursor, set a colour or hide a word."""

from __future__ import annotations

import re

# C0 and C1 controls, DEL, lone surrogates, and marks that reorder or hide text (bidi, zero width).
_LIVE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u061c\ufeff\ud800-\udfff]"
)


def inert(text: str) -> str:
    """One line in which every control character is written out, like \\x1b; tabs become blanks."""
    return _LIVE.sub(_written_out, text.replace("\t", "    "))


def inert_lines(text: str) -> list[str]:
    """The lines of a text, each inert; a trailing carriage return is dropped."""
    return [inert(line.rstrip("\r")) for line in text.split("\n")] if text else []


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
