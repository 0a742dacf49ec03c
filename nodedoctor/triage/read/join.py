"""Lines that were broken are put together: a terminal or `fold` breaks all long lines at one width."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

NARROWEST = 40
"""Characters; no terminal is narrower."""
OFTEN = 3
"""Lines of the full width that make it a width and not a coincidence."""
TERMINALS = frozenset((72, 76, 78, 79, 80, 100, 120, 132, 160))
"""Widths that people and fold(1) use."""
_FRAMES = " │┃|╮╯╭╰┐┘┤├─━═=-_*#"
"""Ends of lines that were filled up to a width and not broken at it."""
_HEAD = re.compile(r"\d+|\s+")


def width(texts: Sequence[str]) -> int:
    """The width at which the lines of a file were broken; 0 when they were not.

    Then no line is longer, several are exactly as long, hardly any is one or two shorter, and what follows
    them does not begin like the other lines do.
    """
    lengths = Counter(len(text) for text in texts)
    widest = max(lengths, default=0)
    near = sum(lengths[widest - less] for less in (1, 2, 3))
    often = OFTEN - (widest in TERMINALS)
    if widest < NARROWEST or lengths[widest] < often or near > lengths[widest]:
        return 0
    if sum(text[-1] in _FRAMES for text in texts if len(text) == widest) * 2 > lengths[widest]:
        return 0  # filled up with blanks
    full = [index for index, text in enumerate(texts[:-1]) if len(text) == widest]
    after = {index + 1 for index in full}
    heads = {_head(text) for index, text in enumerate(texts) if index not in after}
    odd = sum(_head(texts[index + 1]) not in heads for index in full)
    return widest if odd * 2 > len(full) else 0


def _head(text: str) -> str:
    return _HEAD.sub("0", text[:12])[:5]
