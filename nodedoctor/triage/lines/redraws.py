"""A bar is drawn again and again in one line: of a thousand drawings the few are kept that can matter."""

from __future__ import annotations

import re

from nodedoctor.triage.lines.prefilter import GREP_PREFILTER

FIRST, LAST = 2, 6
"""Drawings that are kept at both ends of a line; the counter in them shows the progress between."""
_WANTED = re.compile("|".join(map(re.escape, GREP_PREFILTER)))
_LETTERS = re.compile(r"[^A-Za-z]+")


def split_redraws(line: str) -> list[str]:
    """What was drawn in a line, at each carriage return anew; of many, the ends and what may be trouble.

    What was printed while the bar stood on the screen begins behind it, and is kept by its words; a bar that
    has such a word in every drawing (`error=0.5`) is kept where its letters change.
    """
    drawn = line.split("\r")
    if len(drawn) <= FIRST + LAST:
        return drawn
    shapes = {_LETTERS.sub(" ", text) for text in drawn}
    if len(shapes) * 2 > len(drawn):  # no bar: lines that end so
        return drawn
    kept = drawn[:FIRST]
    known: set[str] = set()
    for text in drawn[FIRST:-LAST]:
        if _WANTED.search(text) and (shape := _LETTERS.sub(" ", text)) not in known:
            known.add(shape)
            kept.append(text)
    return kept + drawn[-LAST:]
