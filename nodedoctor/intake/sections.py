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
    found = _HOST.search(head)
    host = found[1].decode() if found else ""
    line, kept = 1, bytearray()
    for chunk, whole in _cut(head, read):
        kept += chunk
        if len(kept) > 2 * _LONG:
            cut = kept.rfind(b"\n", 0, len(kept) - _LONG) + 1
            line += kept.count(b"\n", 0, cut)
            del kept[:cut]
        if whole:
            text = kept.decode("utf-8", "replace")
            yield unit(name, "text", name, text, quiet=True, host=host, line=line)
            line += kept.count(b"\n") + 1
            kept.clear()


def _cut(head: bytes, read: Callable[[int], bytes]) -> Iterator[tuple[bytes, bool]]:
    """Pieces of the stream, and whether each is the last of its section."""
    waiting = head
    while True:
        more = read(_CHUNK)
        waiting += more
        end = waiting.rfind(b"\n") + 1 if more else len(waiting)
        rest = 0
        for start, after in _rules(waiting, end):
            yield waiting[rest:start], True
            rest = after
        if end > rest or not more:
            yield waiting[rest:end], not more
        waiting = waiting[end:]
        if not more:
            return


def _rules(text: bytes, end: int) -> Iterator[tuple[int, int]]:
    """Where lines of nothing but underscores begin, and where the next line does."""
    at = text.find(_RULE, 0, end)
    while at >= 0:
        after = text.find(b"\n", at, end) + 1 or end
        if (at == 0 or text[at - 1 : at] == b"\n") and not text[at:after].strip(b"_ \t\r\n"):
            yield at, after
        at = text.find(_RULE, after, end)


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
