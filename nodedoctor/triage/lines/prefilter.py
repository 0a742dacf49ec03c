"""Words of the lines that can matter; of the drawings of a bar the few that can. Loads nothing else."""

from __future__ import annotations

import re

GREP_PREFILTER = (
    "rror", "xception", "Traceback", "atchdog", "ailed", "ailure", "WARN ", "imed out", "emory", "illed",
    "exitcode", "Xid", "enqueued", "GIL ", "inished",
    "run_stop", "train_runtime", "` stopped: `", "training is done]", "|Version|",
    "Final validation metrics", "raining completed", "exits successfully",
)  # fmt: skip
"""Every line that matters has one of these, or soon follows one that has: words of trouble, and those with
which runs report their own success, which may be far from the end of a log."""


FIRST, LAST = 2, 6
"""Drawings that are kept at both ends of a line; the counter in them shows the progress between."""
_WANTED = re.compile("|".join(map(re.escape, GREP_PREFILTER)))
_LETTERS = re.compile(r"[^A-Za-z]+")


def split_redraws(line: str) -> list[str]:
    """The texts between carriage returns; of many, only those that can matter.

    What was printed while the bar was on the screen begins behind it, and is kept by its words; a bar that
    has such a word in every drawing (`error=0.5`) is kept where its letters change.
    """
    drawings = line.split("\r")
    if len(drawings) <= FIRST + LAST:
        return drawings
    shapes = {_LETTERS.sub(" ", text) for text in drawings}
    if len(shapes) * 2 > len(drawings):  # no bar: lines that end so
        return drawings
    chosen_drawings = drawings[:FIRST]
    chosen_shapes: set[str] = set()
    for text in drawings[FIRST:-LAST]:
        if _WANTED.search(text) and (shape := _LETTERS.sub(" ", text)) not in chosen_shapes:
            chosen_shapes.add(shape)
            chosen_drawings.append(text)
    return chosen_drawings + drawings[-LAST:]
