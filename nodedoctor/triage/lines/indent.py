"""White space in front of all lines, or of a block of them: it is no part of what a program printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

_HEADING = re.compile(r"\s*(?:- )?[\w-]+(?: [\w-]+)?:(?: [|>][+-]?)?$")
HEADINGS = 8
"""Lines above an indented block at most. Ours."""
BETWEEN = 0.4
"""Share of the lines that may be sentences between indented blocks. Ours."""


def block_indent(texts: Sequence[str], is_known: Callable[[str], bool]) -> int:
    """The indent of an indented block, of YAML or kubectl; 0 without one.

    Between sentences the log's own lines must show that it is one: a stack is indented, too.
    """
    rows = [text for text in texts if text.strip()]
    depths = [len(text) - len(text.lstrip(" ")) for text in rows]
    for index in reversed(range(min(HEADINGS, len(rows) - 1))):
        below = min(depths[index + 1 :])
        if below > depths[index] and _HEADING.match(rows[index]) and "Traceback" not in rows[index]:
            return below
    below = min((depth for depth in depths if depth), default=0)
    outside = [text for text, depth in zip(rows, depths, strict=True) if depth < below]
    most = max(HEADINGS, int(BETWEEN * len(rows)))
    if not below or len(outside) > most or any(_begins_output(text, is_known) for text in outside):
        return 0
    inside = (text for text, depth in zip(rows, depths, strict=True) if depth)
    return below if any(_begins_output(text[below:], is_known) for text in inside) else 0


def _begins_output(text: str, is_known: Callable[[str], bool]) -> bool:
    """Whether a text is the first of what a process prints."""
    return text.startswith("Traceback (most recent") or (text[:1] != "#" and is_known(text))


def common_indent(texts: Iterable[str]) -> int:
    """White space in front of every line: pasted text is often indented as a whole."""
    blanks = [text[: len(text) - len(text.lstrip())] for text in texts if text.strip()]
    if len(blanks) < 2:
        return 0
    first, last = min(blanks), max(blanks)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
