"""Elements of a page whose text is always escaped: nothing from a document can become a tag.

Every function takes text and pieces made here; only the latter are markup, everything else is inert text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from urllib.parse import urlsplit

from nodedoctor.report.inert import inert, inert_lines

_NO_CONTENT = frozenset({"br", "input", "meta", "wbr"})
_SAFE = re.compile(r"[ !#-%(-;=?-~]*")  # printable ASCII without the five that HTML gives a meaning


class Markup(str):
    """A piece of a page that is ready to stand in another."""

    __slots__ = ()


Piece = str | None
"""Text, Markup, or nothing."""


def text(value: str) -> Markup:
    """One line of text: controls and marks that reorder it are written out."""
    return Markup(value if _SAFE.fullmatch(value) else escape(inert(value)))


def lines(value: str) -> Markup:
    """Text of several lines, for where line ends are shown."""
    return Markup("\n".join(text(line) for line in inert_lines(value.strip("\n"))))


def prose(value: str) -> Markup:
    """One line of text in which what stands between backticks is code."""
    parts = value.split("`")
    if len(parts) % 2 == 0:
        return text(value)  # one of them stands for itself
    return join_pieces(*(element("code", part) if place % 2 else part for place, part in enumerate(parts)))


def element(name: str, /, *pieces: Piece, **attributes: str | bool | None) -> Markup:
    """An element: `class_` is the attribute class, `True` one without a value, `None` and `False` none."""
    told = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in _NO_CONTENT:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{join_pieces(*pieces)}</{name}>")


def join_pieces(*pieces: Piece, between: str = "") -> Markup:
    """Pieces one after another."""
    shown = (piece if isinstance(piece, Markup) else text(piece) for piece in pieces if piece is not None)
    return Markup(between.join(shown))


def each_piece(pieces: Iterable[Piece], between: str = "") -> Markup:
    """Pieces of a list, one after another."""
    return join_pieces(*pieces, between=between)


def link(address: str) -> Markup:
    """An address that can be followed if it leads to the web; anything else is only text."""
    try:
        web = urlsplit(address).scheme in ("http", "https") and address.isascii() and address.isprintable()
    except ValueError:
        web = False
    return element("a", address, href=address, rel="noopener noreferrer") if web else text(address)


def _attribute(key: str, value: str | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'
