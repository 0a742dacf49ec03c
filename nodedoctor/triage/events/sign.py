"""How a line is recognised: a few literal words that a fast search finds, then a pattern that reads it.

The named groups `rank grank local pid host gpu` of a pattern go into the event's identity by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from nodedoctor.noun import noun
from nodedoctor.triage.model import Cause, Who


@noun
class Sign:
    """One thing a line can say. `make` turns the match into the family's noun, or None: not this one."""

    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    make: Callable[[re.Match[str]], object | None]

    def read(self, text: str) -> tuple[object, re.Match[str]] | None:
        """The noun and its match, when the line says it."""
        found = self.pattern.search(text)
        what = self.make(found) if found else None
        return (what, found) if found and what is not None else None


@noun
class Symptom:
    """A line that points to a cause by itself.

    `decisive` says that it settles the cause when the job ended; the others only support or suggest one.
    `personal` says that the process which printed it is the one in trouble, not a bystander. `as_warning`:
    its program gives it the level of a warning although it is an error.
    """

    cause: Cause
    name: str
    says: str
    decisive: bool = True
    personal: bool = False
    as_warning: bool = False


def sign(needles: str, pattern: str, make: Callable[[re.Match[str]], object | None]) -> Sign:
    """A sign; needles are separated by `|` and searched as they are, case included."""
    return Sign(tuple(needles.split("|")), re.compile(pattern), make)


def symptom(
    cause: Cause,
    name: str,
    needles: str,
    pattern: str,
    says: str,
    *,
    decisive: bool = True,
    personal: bool = False,
    as_warning: bool = False,
) -> Sign:
    """A sign that is nothing but a symptom of one cause."""
    what = Symptom(cause, name, says, decisive, personal, as_warning)
    return sign(needles, pattern, lambda _: what)


def identified(who: Who, found: re.Match[str]) -> Who:
    """Who is meant: what the pattern read about it, then what the prefix said."""
    names = {"rank": "rank", "grank": "group_rank", "local": "local_rank", "pid": "pid", "gpu": "gpu"}
    groups = found.groupdict()
    facts: dict[str, int | str] = {
        names[name]: int(value)
        for name, value in groups.items()
        if name in names and value and value.isdigit()
    }
    if groups.get("host"):
        facts["host"] = groups["host"]
    return replace(who, **facts) if facts else who  # type: ignore[arg-type]


def number(text: str | None) -> int | None:
    """An integer out of a match, None for a group that did not take part."""
    return int(text) if text and text.lstrip("-").isdigit() and len(text) < 20 else None


def ranks_in(text: str) -> tuple[int, ...]:
    """All rank numbers in a list such as `2, 5`, `[1, 3]` or `{0}`."""
    return tuple(int(digits) for digits in re.findall(r"\d{1,6}", text)[:4096])
