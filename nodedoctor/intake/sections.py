"""The sections of `nvidia-bug-report.log`, read as a stream: one may have hundreds of megabytes.

Layout: nvidia-bug-report.sh of drivers 450 to 610: lines of underscores between sections, in each a command
or `*** FILE`, and what it printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodedoctor.intake.inputs import Unit

_RULE = b"_" * 20
_HOST = re.compile(rb"^uname: \w+ ([\w.-]+) ", re.MULTILINE)
_LONG = 8 << 20
"""Bytes of a section that are kept, its end: the kernel's log has the newest messages there. Ours."""
_CHUNK = 1 << 20
SCREENED = 256 << 10
"""Characters of a part of a bundle from which not each line is looked at; ours."""
SAMPLE = 8 << 10
"""Characters at the beginning by which such a part is recognised; ours."""
_OF_KERNEL = (" kernel: ", "NVRM: ", "Xid (PCI")


def bug_report_sections(
    name: str, head: bytes, read: Callable[[int], bytes], unit: type[Unit]
) -> Iterator[Unit]:
    """Each section as a text of its own; the node is the bug report itself."""
    match = _HOST.search(head)
    host = match[1].decode() if match else ""
    line, buffer = 1, bytearray()
    for chunk, at_end in _chunks(head, read):
        buffer += chunk
        if len(buffer) > 2 * _LONG:
            position = buffer.rfind(b"\n", 0, len(buffer) - _LONG) + 1
            line += buffer.count(b"\n", 0, position)
            del buffer[:position]
        if at_end:
            text = buffer.decode("utf-8", "replace")
            yield unit(name, "text", name, text, quiet=True, host=host, line=line)
            line += buffer.count(b"\n") + 1
            buffer.clear()


def _chunks(head: bytes, read: Callable[[int], bytes]) -> Iterator[tuple[bytes, bool]]:
    """Pieces of the stream, and whether each is the last of its section."""
    waiting = head
    while True:
        more = read(_CHUNK)
        waiting += more
        end = waiting.rfind(b"\n") + 1 if more else len(waiting)
        rest = 0
        for start, next_line in _rules(waiting, end):
            yield waiting[rest:start], True
            rest = next_line
        if end > rest or not more:
            yield waiting[rest:end], not more
        waiting = waiting[end:]
        if not more:
            return


def _rules(text: bytes, end: int) -> Iterator[tuple[int, int]]:
    """Where lines of nothing but underscores begin, and where the next line does."""
    at = text.find(_RULE, 0, end)
    while at >= 0:
        next_line = text.find(b"\n", at, end) + 1 or end
        if (at == 0 or text[at - 1 : at] == b"\n") and not text[at:next_line].strip(b"_ \t\r\n"):
            yield at, next_line
        at = text.find(_RULE, next_line, end)


def screened(text: str) -> str:
    """Of a long text that begins as no output does, the lines that may be the kernel's; all of a short one.

    A bundle has the whole journal in it, and what other programs say is no output of a tool.
    """
    from nodedoctor.intake.split import split

    if len(text) <= SCREENED or split(text[:SAMPLE]).pieces:
        return text
    lines: dict[int, str] = {}
    for word in _OF_KERNEL:
        at = text.find(word)
        while at >= 0:
            start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
            end = len(text) if end < 0 else end
            lines[start] = text[start:end]
            at = text.find(word, end)
    return "\n".join(lines[start] for start in sorted(lines)) + "\n"
