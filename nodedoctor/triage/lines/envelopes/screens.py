"""Recorded terminals, and logs whose lines do not end in a line feed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.json_shapes import loaded
from nodedoctor.triage.lines.envelopes.pairs import unquote_text
from nodedoctor.triage.lines.envelopes.records import SEVERAL, EnvelopeRecord
from nodedoctor.whole_numbers import json_integer

HEAD = 65536
"""Characters that are searched for what ends the lines."""
_MARKS = ("\u2028", "<br>", "<br/>", "<br />", "</div>", "</tr>", "</li>", "\\n")
"""What ends lines in a text that was copied out of a page, a database or a program's answer."""


def line_mark(head: str) -> str:
    """The mark that ends a log's lines; '' where line feeds do."""
    rows = head.rstrip().count("\n")
    if '{"' in head[:1000]:  # an envelope, which holds its text as it likes
        return ""
    if rows == 0 and unquote_text(head.strip()) is not None:
        return "\\n"
    for mark in _MARKS:
        count = head.count(mark)
        if count >= (SEVERAL if rows or mark == "\\n" else 1) and (
            rows == 0 if mark == "\\n" else count > 4 * rows
        ):
            return mark
    return ""


def marked_lines(data: bytes) -> Iterator[EnvelopeRecord]:
    """The lines of such a log."""
    text = data.decode("utf-8", "replace")
    mark = line_mark(text[:HEAD])
    value = unquote_text(text.strip()) if mark == "\\n" else None
    lines = text.replace(mark or "\n", "\n") if value is None else value
    yield from (EnvelopeRecord(line.rstrip("\r")) for line in lines.rstrip("\n").split("\n"))


def is_screen(head: str) -> bool:
    """Whether this is a recorded terminal of asciinema, version 2 or 3."""
    return bool(re.match(r'\{(?=[^\n]*"version": ?[23]\b)(?=[^\n]*"(?:width|term)")[^\n]*\}\s*\n\[', head))


def screen_lines(data: bytes) -> Iterator[EnvelopeRecord]:
    """The lines that a recorded terminal showed, put together from its output events."""
    shown: list[str] = []
    for row in data.split(b"\n")[1:]:
        try:
            event = loaded(row, parse_int=json_integer)
        except ValueError:
            continue
        if isinstance(event, list) and event[1:2] == ["o"] and isinstance(event[-1], str):
            shown.append(event[-1])
    yield from (EnvelopeRecord(line.rstrip("\r")) for line in "".join(shown).split("\n"))
