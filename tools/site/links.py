"""`make site`: every link within the built site leads somewhere, and no page loads anything from elsewhere.

`tools/site/links.py FOLDER` prints what is broken, a line each, and ends with 1 if anything is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "srcset")}
"""What a browser fetches by itself; <a href> is followed by a person."""
NOT_LOADED = {"canonical", "prev", "next", "alternate"}
"""Relations of a <link> that name a page and fetch nothing."""


class Page(HTMLParser):
    """The links of a page, and the places in it that others can link to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, bool]] = []
        self.anchors = {"", "__top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what links and what is linked to."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        for name in ("href", "src", "srcset"):
            if name in values:
                loaded = (tag, name) in LOADS and values.get("rel") not in NOT_LOADED
                self.links.append((values[name], loaded))


def broken(site: Path) -> Iterator[str]:
    """What is wrong with the site, a line each."""

    @cache
    def page(path: Path) -> Page:
        return Page(path.read_text(encoding="utf-8"))

    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # its links are absolute: it is shown at any address
            continue
        for link, loaded in page(path).links:
            where = f"{path.relative_to(site)}: {link}"
            parts = urlsplit(link)
            if parts.scheme == "data" or link.startswith("mailto:"):
                continue
            if parts.scheme or parts.netloc:
                if loaded:
                    yield f"{where} is loaded from elsewhere"
                continue
            target = path.parent / unquote(parts.path) if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{where} leads nowhere"
            elif target.suffix == ".html" and unquote(parts.fragment) not in page(target.resolve()).anchors:
                yield f"{where} names a place that {target.name} does not have"


def main(words: list[str]) -> int:
    """Print what is broken."""
    lines = list(broken(Path(words[0])))
    print("\n".join(lines) if lines else "no dead link")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
