"""What a program measures of its work again and again, where it counts nothing: a loss that changes is work.

It is less than a counter: it shows that there was work, and nothing that a failure could be overcome by.
"""

from __future__ import annotations

import re

from nodedoctor.record import record

ENOUGH = 10
"""Values of a loss, each other than the one before: an evaluation at the end has fewer. Ours."""
WORD = "oss"
_LOSS = re.compile(
    r"(?<![A-Za-z])(?:[A-Za-z]+[_ ])?[Ll](?:oss|OSS)['\"]?\s{0,4}[:=(]?\s{0,4}['\"]?(-?\d{1,9}\.\d{1,20})"
)


@record
class Measured:
    """The program told a loss that changed, often enough to have been at work."""


class Measures:
    """Counts how often the loss in a log's lines changed."""

    def __init__(self) -> None:
        self._last = ""
        self._left = ENOUGH

    def read(self, text: str) -> Measured | None:
        """Once, at the line with which it has changed often enough."""
        if not self._left or WORD not in text.lower():
            return None
        found = _LOSS.search(text)
        if found is None or found[1] == self._last:
            return None
        self._last = found[1]
        self._left -= 1
        return None if self._left else Measured()
