"""The sections of `nvidia-bug-report.log`, read as a stream: one may have hundreds of megabytes.

Layout: nvidia-bug-report.sh of drivers 450 to 610: lines of underscores between sections, in each a command
or `*** FILE`, and what it printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nodedoctor.intake.long_texts import LongText

if TYPE_CHECKING:
    from nodedoctor.intake.inputs import Unit

_RULE = b"_" * 20
_HOST = re.compile(rb"^uname: \w+ ([\w.-]+) ", re.MULTILINE)
_CHUNK = 1 << 20
LONGEST_LINE = 1 << 20
"""Bytes after which a line is cut: no output has such lines, and some dumps have no others. Ours."""


def bug_report_sections(
    name: str, head: bytes, read: Callable[[int], bytes], unit: type[Unit]
) -> Iterator[Unit]:
    """Each section as a text of its own; the node is the bug report itself."""
    match = _HOST.search(head)
    host = match[1].decode() if match else ""
    line, section = 1, LongText()
    for chunk, at_end in _section_chunks(head, read):
        section.add(chunk)
        if at_end:
            yield unit(
                name, "text", name, section.text(), quiet=True, host=host, line=line, is_cut=section.is_cut
            )
            line += section.lines + 1
            section = LongText()


def _section_chunks(head: bytes, read: Callable[[int], bytes]) -> Iterator[tuple[bytes, bool]]:
    """Pieces of the stream, and whether each is the last of its section."""
    waiting = head
    while True:
        more = read(_CHUNK)
        waiting += more
        end = waiting.rfind(b"\n") + 1 if more else len(waiting)
        if not end and len(waiting) > LONGEST_LINE:
            end = len(waiting)
        rest = 0
        for start, next_line in _rule_lines(waiting, end):
            yield waiting[rest:start], True
            rest = next_line
        if end > rest or not more:
            yield waiting[rest:end], not more
        waiting = waiting[end:]
        if not more:
            return


def _rule_lines(text: bytes, end: int) -> Iterator[tuple[int, int]]:
    """Where lines of nothing but underscores begin, and where the next line does."""
    at = text.find(_RULE, 0, end)
    while at >= 0:
        next_line = text.find(b"\n", at, end) + 1 or end
        if (at == 0 or text[at - 1 : at] == b"\n") and not text[at:next_line].strip(b"_ \t\r\n"):
            yield at, next_line
        at = text.find(_RULE, next_line, end)
