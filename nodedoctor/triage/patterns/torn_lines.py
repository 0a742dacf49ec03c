"""Joins lines broken by a terminal, by other output, or within a message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from nodedoctor.triage.model import NOBODY, Line

BETWEEN = 4
"""Lines of others inside of a broken one at most. Ours."""
_HALF = re.compile(r"Watchdog caught(?!.*(?:\)|timed out))")
_GOES_ON = re.compile(
    r"Watchdog caught[a-z ]*:? ?(?:Work[A-Z]*|Work[A-Z]{2,6}\((?:\w+(?:\(ms\))?=[\w-]*(?:, ?|$|(?=\))))*"
    r"(?:\w+(?:\((?:ms?\)?)?)?|\).*)?)?$"
)
"""The line, broken anywhere in its words or in the fields behind them, or as a whole."""
_HEAD = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception):\s*$")
"""An exception without a message in its own line."""


def join_broken(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines, broken ones put together."""
    broken: Line | None = None
    between: list[Line] = []
    for line in _exception_messages(lines):
        if broken is not None and line.who in (NOBODY, broken.who):
            joined_text = f"{broken.text}{line.text}"
            if _GOES_ON.search(joined_text):
                broken = replace(broken, text=joined_text)
                if not _is_half(broken):
                    yield broken
                    yield from between
                    broken, between = None, []
                continue
        if broken is not None and len(between) < BETWEEN and not _is_half(line):
            between.append(line)
            continue
        if broken is not None:
            yield broken
            yield from between
            broken, between = None, []
        if "Watchdog caught" in line.text and _is_half(line):
            broken = line
        else:
            yield line
    if broken is not None:
        yield broken
        yield from between


def _is_half(line: Line) -> bool:
    """Whether the watchdog's long line is broken off here."""
    return _HALF.search(line.text) is not None


def _exception_messages(lines: Iterable[Line]) -> Iterator[Line]:
    """An exception and its message, which may begin in the next line, indented."""
    head: Line | None = None
    for line in lines:
        if head is not None:
            goes_on = line.text[:1].isspace() and line.text.strip() != "" and line.key == head.key
            yield replace(head, text=f"{head.text} {line.text.lstrip()}") if goes_on else head
            head = None
            if goes_on:
                continue
        if line.text[-1:] in (":", "\t", " ") and _HEAD.match(line.text):
            head = replace(line, text=line.text.rstrip())
        else:
            yield line
    if head is not None:
        yield head
