"""What can be read from lines of one shape: logs repeat their lines with other numbers in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from nodedoctor.record import record
from nodedoctor.triage.events import bars, complaints, progress, seen
from nodedoctor.triage.events.needles import needles
from nodedoctor.triage.events.sign import Sign

KEPT = 4096
"""Shapes of lines remembered; logs repeat a few hundred."""
_NUMBER = re.compile(r"\d+")

Counter = Callable[[str], "tuple[str, tuple[float, ...]] | None"]


@record
class Shape:
    """What lines of one shape can say: signs, life, an announcement of trouble, the counter of steps.

    `complains`: they speak of a failure. `answers`: they may be of a server's access log, or
    tell how fast it generates.
    """

    signs: tuple[Sign, ...]
    alive: bool
    announces: bool
    counters: tuple[Counter, ...]
    complains: bool
    answers: bool


class Shapes:
    """Which readers have a word in a line; each shape is asked once."""

    def __init__(self, signs: Iterable[Sign]) -> None:
        self._known: dict[str, Shape] = {}
        self._signs = [(_masked(sign.needles), sign) for sign in signs]
        self._alive = _words(progress.PATTERNS) + _words(progress.ELSEWHERE, shortest=2)
        self._announces = _words((seen.ANNOUNCES,))
        self._counted, self._bar = (
            _words((progress.COUNTED,)),
            _words(bars.BARS, shortest=2),
        )

    def of(self, text: str) -> Shape:
        """The shape of a line."""
        masked = _NUMBER.sub("0", text)
        found = self._known.get(masked)
        if found is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            found = self._known[masked] = self._read(masked)
        return found

    def _read(self, masked: str) -> Shape:
        lower = masked.lower()
        counters: list[Counter] = [bars.bar] if _has(self._bar, masked) else []
        if _has(self._counted, lower) and not progress.TROUBLE.search(masked):
            counters.append(progress.counted)
        return Shape(
            tuple(sign for words, sign in self._signs if _has(words, masked)),
            masked.startswith("[") or _has(self._alive, masked),  # a roster is a list of numbers
            _has(self._announces, masked),
            tuple(counters),
            complaints.FAILING.search(masked) is not None,
            '"POST /' in masked or "throughput" in masked,
        )


def _has(words: Sequence[str], text: str) -> bool:
    return any(word in text for word in words)


def _words(patterns: Iterable[re.Pattern[str]], shortest: int = 3) -> tuple[str, ...]:
    """Words of which every match of one of the patterns has one."""
    found = [needles(pattern.pattern, shortest) for pattern in patterns]
    assert all(found), patterns
    return _masked(word for words in found for word in words)


def _masked(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_NUMBER.sub("0", word) for word in words))
