"""Elements of a page, and the page: one file that loads nothing, in which nothing runs but our script.

Text is always escaped: nothing from a document can become a tag.

Every function takes text and pieces made here; only the latter are markup, everything else is inert text.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib.resources import files
from urllib.parse import urlsplit

from nodedoctor.report.inert import inert, inert_lines

_NO_CONTENT = frozenset({"br", "input", "meta", "wbr"})
_SAFE = re.compile(r"[ !#-%(-;=?-~]*")  # printable ASCII without the five that HTML gives a meaning


class Markup(str):
    """A piece of a page, escaped and ready to be put into another."""

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
    """One line of text in which what is between backticks is code."""
    parts = value.split("`")
    if len(parts) % 2 == 0:
        return text(value)  # one of them is only a character
    return join_pieces(*(element("code", part) if place % 2 else part for place, part in enumerate(parts)))


def element(name: str, /, *pieces: Piece, **attributes: str | bool | None) -> Markup:
    """An element: `class_` is the attribute class, `True` one without a value, `None` and `False` none."""
    attrs = "".join(
        _attribute_text(key, value) for key, value in attributes.items() if value not in (None, False)
    )
    if name in _NO_CONTENT:
        return Markup(f"<{name}{attrs}>")
    return Markup(f"<{name}{attrs}>{join_pieces(*pieces)}</{name}>")


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


def _attribute_text(key: str, value: str | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'


_NOTHING_ELSE = "base-uri 'none'; form-action 'none'"


def page(title: str, *body: Markup) -> str:
    """A whole HTML document."""
    style, script = _own_file("page.css"), _own_file("page.js")
    own = f"style-src {_hash_source(style)}; script-src {_hash_source(script)}"
    rule = f"default-src 'none'; {own}; {_NOTHING_ELSE}"
    head = join_pieces(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=Markup(rule)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="robots", content="noindex"),
        element("title", title),
        element("style", Markup(style)),
        between="\n",
    )
    shown = join_pieces(element("main", *body), element("script", Markup(script)), between="\n")
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{shown}\n</body>\n</html>\n'


@cache
def _own_file(name: str) -> str:
    """A file of ours beside this module."""
    return files(__package__).joinpath(name).read_text("utf-8")


@cache
def _hash_source(content: str) -> str:
    """The source expression that allows exactly this style or script."""
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
