"""Bytes in any encoding as UTF-8: byte order marks, UTF-16, UTF-32, NULs.

Everything behind this works on UTF-8 and only looks for ASCII words, so an unknown 8-bit encoding needs
nothing: its odd characters become replacement characters and the words stay.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Protocol

Read = Callable[[int], bytes]

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NUL_SHARE = 0.6
"""Share of every second byte that is NUL in UTF-16 of mostly ASCII; in a log it is nearly all of them."""
_FEW = 0.05
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x1b\x08\x07"))
"""Control characters that no log holds; NUL is among them."""
_BINARY_SHARE = 0.02
"""Share of control characters from which bytes are no text: a model or an image has a tenth and more."""


_JOURNAL = (b"__CURSOR=", b"__REALTIME_TIMESTAMP=")
"""How a journal's export begins, which writes lengths of texts as eight bytes."""


class ReadableStream(Protocol):
    """Anything that can be read forward."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, none at the end."""


def encoding_of(head: bytes) -> str:
    """The encoding of a file by its first bytes; `utf-8` for all that contain ASCII."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    if head.startswith(b"\0\0\0"):
        head = head.lstrip(b"\0")
    half = len(head) // 2
    if half < 8:
        return "utf-8"
    even_nuls, odd_nuls = head[0 : half * 2 : 2].count(0) / half, head[1::2].count(0) / half
    if odd_nuls > _NUL_SHARE and even_nuls < _FEW and _is_printable(head[0::2]):
        return "utf-16-le"
    return (
        "utf-16-be" if even_nuls > _NUL_SHARE and odd_nuls < _FEW and _is_printable(head[1::2]) else "utf-8"
    )


def _is_printable(sample: bytes) -> bool:
    return len(sample) - len(sample.translate(None, _CONTROLS)) <= _FEW * len(sample)


def is_text(sample: bytes) -> bool:
    """Whether bytes are text in some encoding, NULs in front or behind aside."""
    body = sample.strip(b"\0")
    if not body:
        return not sample
    if encoding_of(body) != "utf-8" or body.startswith(_JOURNAL):
        return True
    controls = len(body) - len(body.translate(None, _CONTROLS))
    return controls <= _BINARY_SHARE * len(body)


def decode_stream(read: Read, encoding: str) -> Read:
    """The same stream as UTF-8."""
    if encoding == "utf-8":
        return read
    decoder = codecs.getincrementaldecoder(encoding)("replace")

    def text(size: int) -> bytes:
        while True:
            data = read(size)
            out = decoder.decode(data, final=not data)
            if out or not data:
                return out.lstrip("\ufeff").encode("utf-8", "replace")

    return text
