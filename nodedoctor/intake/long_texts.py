"""Long texts of a bundle: which of their lines are kept, and which are looked at.

A bundle holds the whole journal, dumps of devices and of memory. What a long text is, its beginning says: the
kernel's log, of which repetitions and what no check reads are left out; another tool's output, of which all
is looked at; or neither, in which only the kernel's lines are looked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nodedoctor.probes.kernel.kernel_log import shorten
from nodedoctor.record import replace

if TYPE_CHECKING:
    from nodedoctor.intake.split import Parts

SCREENED = 32 << 10
"""Characters of a text from which not each line is looked at; ours."""
SAMPLE = 8 << 10
"""Characters at the beginning by which such a text is recognised; ours."""
_LONG = 8 << 20
_BEGINNING = 2 << 20
"""Bytes of a text that are kept: of the kernel's log what can matter, of another its beginning, where an
output is, and its end, where a journal has its newest messages. Ours."""
_OF_KERNEL = (" kernel: ", "NVRM: ", "Xid (PCI")


class LongText:
    """A text that is read piece by piece, and never held as a whole where it is very long."""

    def __init__(self, *, is_kernel: bool | None = None) -> None:
        self.lines = 0
        self.is_cut = False
        self._kept = bytearray()
        self._is_kernel = is_kernel

    def add(self, piece: bytes) -> None:
        """Take the next piece in."""
        self.lines += piece.count(b"\n")
        self._kept += piece
        if len(self._kept) > 2 * _LONG:
            self.is_cut = True
            if self._is_kernel is None:
                self._is_kernel = is_kernel_log(self._kept[:SAMPLE].decode("utf-8", "replace"))
            if self._is_kernel:
                self._kept[:] = shorten(bytes(self._kept))[0]
            else:
                begins = self._kept.rfind(b"\n", 0, _BEGINNING) + 1 or _BEGINNING
                ends = self._kept.rfind(b"\n", begins, len(self._kept) - _LONG) + 1 or len(self._kept) - _LONG
                del self._kept[begins:ends]

    def data(self) -> bytes:
        """What was kept."""
        return bytes(self._kept)

    def text(self) -> str:
        """What was kept, as text."""
        return self._kept.decode("utf-8", "replace")


def read_to_end(head: bytes, read: Callable[[int], bytes]) -> LongText:
    """A text to its end."""
    text = LongText()
    text.add(head)
    while more := read(1 << 20):
        text.add(more)
    return text


def is_kernel_log(beginning: str) -> bool:
    """Whether a text that begins so is the kernel's log, and nothing else as far as can be seen."""
    from nodedoctor.intake.split import split

    parts = split(beginning)
    return len(parts.pieces) == 1 and _are_kernel(parts)


def outputs_in(text: str, *, is_cut: bool = False) -> Parts:
    """The outputs in a text of a bundle. What other programs say in a journal is no output of a tool."""
    from nodedoctor.intake.split import Parts, split

    if len(text) <= SCREENED:
        return split(text)
    sample = split(text[:SAMPLE])
    if not sample.pieces:
        lines = _kernel_lines(text)
        return split(lines) if lines else Parts((), sample.rest)
    if kernel_log := kernel_log_in(text, sample):
        return kernel_log
    return split(f"{text[:_BEGINNING]}\n{_kernel_lines(text[_BEGINNING:])}" if is_cut else text)


def kernel_log_in(text: str, sample: Parts) -> Parts | None:
    """A text whose `sample` is the kernel's log, as one output: to look at each line of it takes minutes."""
    from nodedoctor.intake.split import Parts

    if not _are_kernel(sample):
        return None
    first = sample.pieces[0]
    at = text.find(first.text.partition("\n")[0])
    if at < 0 or text[at - 1 : at] not in ("", "\n") or "\x1b" in text:  # it has a prefix, or colours
        return None
    before = tuple(line for line in sample.rest if line[0] < first.line)
    return Parts((replace(first, text=text[at:]),), before)


def _are_kernel(parts: Parts) -> bool:
    return {piece.shape.probe for piece in parts.pieces} == {"kernel-log"}


def _kernel_lines(text: str) -> str:
    """The lines that may be the kernel's."""
    lines: dict[int, str] = {}
    for word in _OF_KERNEL:
        at = text.find(word)
        while at >= 0:
            start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
            end = len(text) if end < 0 else end
            lines[start] = text[start:end]
            at = text.find(word, end)
    return "".join(f"{lines[start]}\n" for start in sorted(lines))
