"""Text tables in code, one thing a row: what lines of logs mean, kinds of failures, fixes.

A row begins at the margin with its name and, behind two blanks each, its flags. A sentence below it is
indented by two blanks, its lines by four: the pieces of a pattern, or commands. `[heading]` holds for the
rows below it. Lines behind `#` give the source or a reason. No line ends in a blank: where a piece of a
pattern does, it ends in `[ ]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.record import record

_BLOCK = re.compile(r"^(?!#)\S.*(?:\n .*)*", re.MULTILINE)


@record
class TableRow:
    """One row; a flag without a value is true."""

    heading: str
    name: str
    flags: dict[str, str | bool]
    sentence: str
    lines: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """Its lines as one expression."""
        return "".join(self.lines)


def table_rows(table: str) -> Iterator[TableRow]:
    """The rows of a table."""
    heading = ""
    for block in _BLOCK.findall(table):
        head, *below = block.splitlines()
        if head.startswith("["):
            heading = head.strip("[]")
            continue
        name, *words = filter(None, head.split("  "))
        pairs = (word.partition("=") for word in words)
        flags = {flag: value if equals else True for flag, equals, value in pairs}
        sentence = " ".join(line.strip() for line in below if not line.startswith("    "))
        lines = (line[4:] for line in below if line.startswith("    ") and not line.startswith("    # "))
        yield TableRow(heading, name, flags, sentence, tuple(lines))
