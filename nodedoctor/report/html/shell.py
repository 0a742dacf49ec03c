"""The page around every document: one file that loads nothing and in which nothing runs but our script."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache
from importlib.resources import files

from nodedoctor.report.html.markup import Markup, element, join_pieces

_NOTHING_ELSE = "base-uri 'none'; form-action 'none'"


def page(title: str, *body: Markup) -> str:
    """A whole HTML document."""
    style, script = _own_file("page.css"), _own_file("page.js")
    rule = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; {_NOTHING_ELSE}"
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
def _hash(content: str) -> str:
    """The source expression that allows exactly this style or script."""
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
