"""Lines of an explanation: paragraphs, labels, steps and sources in 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

WIDTH = 80
LABEL = 12


def text_lines(text: str, indent: int = 2, hang: int = 0) -> Iterator[str]:
    """A paragraph, nothing for an empty text."""
    if text:
        yield from wrapped(" " * indent + text, " " * (indent + hang))


def label_lines(name: str, text: str) -> Iterator[str]:
    """A labelled line, nothing for an empty text."""
    if text:
        yield from wrapped(f"{name:<{LABEL}}{text}", " " * LABEL)


def step_lines(heading: str, steps: Iterable[str]) -> Iterator[str]:
    """Numbered steps below a heading."""
    yield ""
    yield heading
    for number, step in enumerate(steps, 1):
        yield from wrapped(f"  {number}. {step}", " " * 5)


def source_lines(source: str, unverified: bool = False) -> Iterator[str]:
    """Where an explanation comes from, a line for each source."""
    if unverified:
        yield from label_lines("Caution", "not every entry was verified against its source")
    yield ""
    for part in source.split("; "):
        # The first word, usually an address, stays beside its label however long it is.
        yield from (line.replace("\0", " ") for line in wrapped(f"Source:\0{part}", " " * 8))


def wrapped(text: str, later: str) -> list[str]:
    """Lines of at most 80 columns; a word that is longer has its own line, so that it can be copied."""
    return textwrap.wrap(text, WIDTH, subsequent_indent=later, break_long_words=False, break_on_hyphens=False)
