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

_RULE = re.compile(rb"^_{20,}[ \t\r]*$", re.MULTILINE)
_HOST = re.compile(rb"^uname: \w+ ([\w.-]+) ", re.MULTILINE)
_LONG = 8 << 20
"""Bytes of a section that are kept, its end: the kernel's log has the newest messages there. Ours."""
_CHUNK = 1 << 20


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
        rest = 0
        for rule in _RULE.finditer(waiting):
            if rule.end() == len(waiting) and more:
                break  # it may go on
            yield waiting[rest : rule.start()], True
            rest = min(rule.end() + 1, len(waiting))
        end = waiting.rfind(b"\n") + 1 if more else len(waiting)
        if end > rest:
            yield waiting[rest:end], not more
            rest = end
        waiting = waiting[rest:]
        if not more:
            return
