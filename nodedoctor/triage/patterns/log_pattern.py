"""A pattern of a line: words for the fast search, then an expression.

The named groups `rank grank local pid host gpu` of a pattern go into the event's identity by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from textwrap import shorten

from nodedoctor.record import record
from nodedoctor.triage.model import (
    LARGEST_PID,
    LARGEST_WORLD,
    RANK_LABEL,
    Cause,
    Confidence,
    Ground,
    Identity,
)
from nodedoctor.whole_numbers import LARGEST, signed, whole_number


@record
class LogPattern:
    """One pattern; `make` turns its match into an event's value, or None."""

    needles: tuple[str, ...]
    expression: str
    make: Callable[[re.Match[str]], object | None]

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when a line has one of the words: most logs need few."""
        return _compile_pattern(self.expression)

    def read(self, text: str) -> tuple[object, re.Match[str]] | None:
        """The event's value and its match, when the line says it."""
        match = self.pattern.search(text)
        try:
            what = self.make(match) if match else None
        except BeyondBounds:
            what = None
        return (what, match) if match and what is not None else None


@cache
def _compile_pattern(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


WORDS = 90
"""Characters of a line that a headline quotes to say which of a symptom's forms it was."""


@record
class Symptom:
    """A line that points to a cause by itself.

    `decisive` says that it settles the cause when the job ended; the others only support or suggest one.
    `personal` says that the process which printed it is the one in trouble, not a bystander; `of_node` that
    it is the node on which it was printed. `as_warning`: its program gives it the level of a warning although
    it is an error. `words`: the line's own, of a symptom that has many. `of_another`: a process says it of
    another one, which the line itself names.
    `ground`: what it rests on, where it is not what most symptoms of its cause do. `sure`: at most so.
    """

    cause: Cause
    name: str
    sentence: str
    decisive: bool = True
    personal: bool = False
    of_node: bool = False
    as_warning: bool = False
    words: str = ""
    of_another: bool = False
    ground: Ground | None = None
    sure: Confidence = "high"


def quoted_text(match: re.Match[str]) -> str:
    """The text of a line from a match on, for a headline."""
    quote = shorten(match.string[match.start() :], WORDS, placeholder=" ...").rstrip(" .,;:")
    while quote and _closes_nothing(quote):
        quote = quote[:-1]
    return quote


_OPENS = {")": "(", "]": "[", "}": "{", "'": "'", '"': '"', "`": "`"}


def _closes_nothing(quote: str) -> bool:
    """Whether its last mark closes what began in front of it."""
    last = quote[-1]
    opens = _OPENS.get(last)
    if opens == last:
        return quote.count(last) % 2 == 1
    return opens is not None and quote.count(last) > quote.count(opens)


def identify_speaker(who: Identity, match: re.Match[str]) -> Identity:
    """The identity that a pattern's groups name, else that of the prefix."""
    groups = match.groupdict()
    facts: dict[str, int | str] = {
        name: value
        for group, (name, most) in _NUMBERS.items()
        if (value := whole_number(groups.get(group), most - 1)) is not None
    }
    if groups.get("host"):
        facts["host"] = groups["host"]
    return replace(who, **facts) if facts else who  # type: ignore[arg-type]


def rank_in_words(who: Identity, pattern: re.Pattern[str], text: str) -> Identity:
    """An identity with the rank in a text, where the prefix has none."""
    has_rank = who.rank is not None or any(kind == RANK_LABEL for kind, _ in who.labels)
    match = None if has_rank else pattern.search(text)
    return identify_speaker(who, match) if match else who


_NUMBERS = {
    "rank": ("rank", LARGEST_WORLD),
    "grank": ("group_rank", LARGEST_WORLD),
    "local": ("local_rank", LARGEST_WORLD),
    "pid": ("pid", LARGEST_PID),
    "gpu": ("gpu", LARGEST_WORLD),
}


class BeyondBounds(ValueError):
    """A number beyond the bounds of its kind: the pattern does not match."""


def bounded_integer(text: str, most: int = LARGEST) -> int:
    """An integer from a group; BeyondBounds for one larger than `most`."""
    value = signed(text, most)
    if value is None:
        raise BeyondBounds(text[:40])
    return value


def world_size(text: str) -> int:
    """A number of ranks out of a match; BeyondBounds for one that no job has."""
    size = bounded_integer(text, LARGEST_WORLD)
    if size < 1:
        raise BeyondBounds(text)
    return size


def rank_number(text: str) -> int:
    """A rank out of a match; BeyondBounds for one that no job has."""
    return bounded_integer(text, LARGEST_WORLD - 1)


SIGNALS = {
    "SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9,
    "SIGSEGV": 11, "SIGPIPE": 13, "SIGTERM": 15,
    "Hangup": 1, "Interrupt": 2, "Illegal instruction": 4, "Aborted": 6, "Bus error": 7, "Killed": 9,
    "Floating point exception": 8, "floating-point exception": 8, "Segmentation fault": 11,
    "segmentation fault": 11, "Terminated": 15, "terminated": 15, "killed": 9, "bus error": 7, "abort": 6,
    "Abort trap": 6, "illegal hardware instruction": 4, "floating point exception": 8,
}  # fmt: skip
"""Signals by their names and by strsignal(3)'s words, which shells and torch's data loader write."""
_LARGEST_SIGNAL = 64


def signal_number(text: str) -> int:
    """A signal by its name or number; SIGKILL for an unknown name."""
    return bounded_integer(text, _LARGEST_SIGNAL) if text.isdigit() else SIGNALS.get(text, 9)


TASKS = 4096
"""Tasks of one list that are kept."""


def task_numbers(text: str) -> tuple[int, ...]:
    """The numbers in `0-3,7` or in `'1', '2'`; BeyondBounds for one that no job has."""
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        begin = rank_number(first)
        numbers += range(begin, min(rank_number(last or first), begin + TASKS) + 1)
    return tuple(numbers[:TASKS])


def ranks_in(text: str) -> tuple[int, ...]:
    """All rank numbers in a list such as `2, 5`, `[1, 3]` or `{0}`."""
    return tuple(int(digits) for digits in re.findall(r"(?<!\d)\d{1,6}(?!\d)", text)[:4096])
