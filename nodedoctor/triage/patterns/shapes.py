"""The patterns that lines of one shape can match: logs repeat lines with other numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from nodedoctor.patterns import mask_digits
from nodedoctor.record import record
from nodedoctor.triage.lines.required_literals import required_literals
from nodedoctor.triage.patterns import bars, progress, unclassified
from nodedoctor.triage.patterns.log_pattern import LogPattern

MOST_SHAPES = 4096
"""Shapes of lines remembered; logs repeat a few hundred."""

Count = tuple[str, tuple[float, ...]]
"""The name of a counter and its value in a line."""
CountReader = Callable[[str], "Count | None"]


@record
class LineShape:
    """What lines of one shape can say: patterns, signs of life, announced trouble, counters.

    `complains`: they speak of a failure. `answers`: they may be of a server's access log, or
    say how fast it generates.
    """

    signs: tuple[LogPattern, ...]
    alive: bool
    announces: bool
    counters: tuple[CountReader, ...]
    complains: bool
    answers: bool


class LineShapes:
    """Which readers have a word in a line; each shape is asked once."""

    def __init__(self, signs: Iterable[LogPattern]) -> None:
        self._shapes: dict[str, LineShape] = {}
        self._signs = tuple(signs)
        lists = [_mask_digits(sign.needles) for sign in self._signs]
        alive, announces = _pattern_words(progress.PATTERNS), _pattern_words((unclassified.ANNOUNCES,))
        self._alive, self._announces = len(lists), len(lists) + 1
        self._index = LiteralIndex([*lists, alive, announces])
        self._counter_words, self._bar_words = (
            _pattern_words((progress.COUNTER,)),
            _pattern_words(bars.BARS, shortest=2),
        )

    def shape_of(self, text: str) -> LineShape:
        """The shape of a line."""
        masked = mask_digits(text)
        shape = self._shapes.get(masked)
        if shape is None:
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            shape = self._shapes[masked] = self._read(masked)
        return shape

    def _read(self, masked: str) -> LineShape:
        lower = masked.lower()
        lists = self._index.lists_in(masked)
        counters: list[CountReader] = [bars.parse_bar] if _contains_word(self._bar_words, masked) else []
        if not progress.TROUBLE.search(masked):
            counters += [progress.all_counters] if _contains_word(self._counter_words, lower) else []
            counters += [bars.parse_row_number] if bars.parse_row_number(masked) else []
        return LineShape(
            tuple(self._signs[number] for number in lists if number < self._alive),
            masked.startswith("[") or self._alive in lists,  # a roster is a list of numbers
            self._announces in lists,
            tuple(counters),
            unclassified.FAILING.search(masked) is not None,
            '"POST /' in masked or "throughput" in masked,
        )


class LiteralIndex:
    """Which of many lists of words have one in a text.

    A word is looked for only where its rarest piece is.
    A text has far fewer different pieces of three letters than there are words.
    """

    def __init__(self, lists: Sequence[Sequence[str]]) -> None:
        self._words: dict[str, list[tuple[str, int]]] = {}
        often = Counter(piece for words in lists for word in words for piece in _trigrams(word))
        for number, words in enumerate(lists):
            for word in words:
                rarest = min(_trigrams(word), key=lambda piece: (often[piece], piece))
                self._words.setdefault(rarest, []).append((word, number))

    def lists_in(self, text: str) -> list[int]:
        """The numbers of the lists, in their order."""
        numbers: set[int] = set()
        for piece in self._words.keys() & _trigrams(text):
            numbers.update(number for word, number in self._words[piece] if word in text)
        return sorted(numbers)


PIECE = 3
"""Letters of a piece; no word is shorter."""


def _trigrams(text: str) -> set[str]:
    return {text[at : at + PIECE] for at in range(len(text) - PIECE + 1)}


def _contains_word(words: Sequence[str], text: str) -> bool:
    return any(map(text.__contains__, words))


def _pattern_words(patterns: Iterable[re.Pattern[str]], shortest: int = 3) -> tuple[str, ...]:
    """Words of which every match of one of the patterns has one."""
    word_lists = [required_literals(pattern.pattern, shortest) for pattern in patterns]
    assert all(word_lists), patterns
    return _mask_digits(word for words in word_lists for word in words)


def _mask_digits(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(mask_digits(word) for word in words))
