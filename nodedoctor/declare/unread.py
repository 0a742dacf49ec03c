"""What was asked for and not answered, noticed where it is read: a judgement that needed it is no PASS.

A value that a driver refused is None in a fact, like one that the device does not have, and a check
that passes over it would say PASS of what was not seen. So facts call `unread` when such a value is read, and
the engine collects what each check, and each fact that it needs, has read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nodedoctor.record import record


@record
class Unread:
    """One value that was read and is not known: `what` in words, `why`, and the finding that tells of it."""

    what: str
    why: str
    told_by: str


_collecting: list[dict[Unread, None]] = []
"""The innermost collector last: checks and parsers run one at a time and do not wait for anything."""


@contextmanager
def noticing() -> Iterator[dict[Unread, None]]:
    """Collect what is read meanwhile and not known, each once, in the order of reading."""
    unknowns: dict[Unread, None] = {}
    _collecting.append(unknowns)
    try:
        yield unknowns
    finally:
        _collecting.pop()


def unread(value: Unread) -> None:
    """Say that something unknown was read; outside of checks and parsers it is not collected."""
    if _collecting:
        _collecting[-1][value] = None
