"""What can be read from lines of one shape: logs repeat their lines with other numbers in them."""

from __future__ import annotations

import re
from collections import Counter as Counted
from collections.abc import Callable, Iterable, Sequence

from nodedoctor.record import record
from nodedoctor.triage.lines.required_literals import required_literals
from nodedoctor.triage.patterns import bars, not_a_log, progress, unclassified
from nodedoctor.triage.patterns.log_pattern import LogPattern

KEPT = 4096
"""Shapes of lines remembered; logs repeat a few hundred."""
_NUMBER = re.compile(r"\d+")

Count = tuple[str, tuple[float, ...]]
"""The name of a counter and its value, as a line tells them."""
Counter = Callable[[str], "Count | None"]


@record
class LineShape:
    """What lines of one shape can say: signs, life, an announcement of trouble, the counter of steps.

    `complains`: they speak of a failure. `answers`: they may be of a server's access log, or
    tell how fast it generates.
    """

    signs: tuple[LogPattern, ...]
    alive: bool
    announces: bool
    counters: tuple[Counter, ...]
    complains: bool
    answers: bool


class LineShapes:
    """Which readers have a word in a line; each shape is asked once."""

    def __init__(self, signs: Iterable[LogPattern]) -> None:
        self._known: dict[str, LineShape] = {}
        self._signs = tuple(signs)
        lists = [_mask_digits(sign.needles) for sign in self._signs]
        alive, announces = _pattern_words(progress.PATTERNS), _pattern_words((not_a_log.ANNOUNCES,))
        self._alive, self._announces = len(lists), len(lists) + 1
        self._index = LiteralIndex([*lists, alive, announces])
        self._counted, self._bar = (
            _pattern_words((progress.COUNTED,)),
            _pattern_words(bars.BARS, shortest=2),
        )

    def of(self, text: str) -> LineShape:
        """The shape of a line."""
        masked = _NUMBER.sub("0", text)
        found = self._known.get(masked)
        if found is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            found = self._known[masked] = self._read(masked)
        return found

    def _read(self, masked: str) -> LineShape:
        lower = masked.lower()
        found = self._index.of(masked)
        counters: list[Counter] = [bars.parse_bar] if _contains_word(self._bar, masked) else []
        if _contains_word(self._counted, lower) and not progress.TROUBLE.search(masked):
            counters.append(progress.all_counters)
        return LineShape(
            tuple(self._signs[number] for number in found if number < self._alive),
            masked.startswith("[") or self._alive in found,  # a roster is a list of numbers
            self._announces in found,
            tuple(counters),
            unclassified.FAILING.search(masked) is not None,
            '"POST /' in masked or "throughput" in masked,
        )


class LiteralIndex:
    """Which of many lists of words have one in a text: a word is looked for only where its rarest piece is.

    A text has far fewer different pieces of three letters than there are words.
    """

    def __init__(self, lists: Sequence[Sequence[str]]) -> None:
        self._words: dict[str, list[tuple[str, int]]] = {}
        often = Counted(piece for words in lists for word in words for piece in _trigrams(word))
        for number, words in enumerate(lists):
            for word in words:
                rarest = min(_trigrams(word), key=lambda piece: (often[piece], piece))
                self._words.setdefault(rarest, []).append((word, number))

    def of(self, text: str) -> list[int]:
        """The numbers of the lists, in their order."""
        found: set[int] = set()
        for piece in self._words.keys() & _trigrams(text):
            found.update(number for word, number in self._words[piece] if word in text)
        return sorted(found)


PIECE = 3
"""Letters of a piece; no word is shorter."""


def _trigrams(text: str) -> set[str]:
    return {text[at : at + PIECE] for at in range(len(text) - PIECE + 1)}


def _contains_word(words: Sequence[str], text: str) -> bool:
    return any(map(text.__contains__, words))


def _pattern_words(patterns: Iterable[re.Pattern[str]], shortest: int = 3) -> tuple[str, ...]:
    """Words of which every match of one of the patterns has one."""
    found = [required_literals(pattern.pattern, shortest) for pattern in patterns]
    assert all(found), patterns
    return _mask_digits(word for words in found for word in words)


def _mask_digits(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_NUMBER.sub("0", word) for word in words))
