"""Words that every match of a pattern contains, for a fast search.

They are read from the parsed pattern, so that a search can never exclude what the pattern itself allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

try:
    from re import _parser as sre  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as sre

AT_MOST = 64
"""Alternatives of one pattern; more would make the search slow instead of fast."""
SHORTEST = 3
"""Letters of a word worth searching for."""

Words = frozenset[str]
_EMPTY: Words = frozenset(("",))


def required_literals(pattern: str, shortest: int = SHORTEST) -> tuple[str, ...]:
    """Words of which every match has at least one; none where none exist."""
    exact, best = _sequence_literals(sre.parse(pattern))
    literals = _better_set(best, exact)
    return tuple(sorted(literals)) if literals and min(map(len, literals)) >= shortest else ()


def _sequence_literals(items: Iterable[Any]) -> tuple[Words | None, Words | None]:
    """All possible texts of the items, if few, and their best required words."""
    run: Words | None = _EMPTY
    sequence: Words | None = _EMPTY
    best: Words | None = None
    for exact, inner in _read_items(items):
        best = _better_set(best, inner)
        longer = _join_literals(run, exact)
        if longer is None:
            best = _better_set(best, run)
            sequence = None
            run = exact if exact is not None else _EMPTY
        else:
            run = longer
        sequence = _join_literals(sequence, exact)
    return sequence, _better_set(best, run)


def _read_items(items: Iterable[Any]) -> Iterator[tuple[Words | None, Words | None]]:
    """The texts and the words of each item; letters in a row are one item: most items are letters."""
    letters = ""
    for item in items:
        if item[0] is sre.LITERAL:
            letters += chr(item[1])
            continue
        if letters:
            yield frozenset((letters,)), None
            letters = ""
        yield _item_literals(item)
    if letters:
        yield frozenset((letters,)), None


def _item_literals(item: tuple[Any, Any]) -> tuple[Words | None, Words | None]:
    kind, value = str(item[0]), item[1]
    if kind == "IN":
        return _set_members(value), None
    if kind == "SUBPATTERN":
        return _sequence_literals(value[3]) if not value[1] else (None, None)
    if kind == "BRANCH":
        return _branch_literals(value[1])
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _repeat_literals(value)
    if kind == "ASSERT":  # what surrounds a match is in its line all the same
        exact, best = _sequence_literals(value[1])
        return _EMPTY, _better_set(best, exact)
    if kind in ("AT", "ASSERT_NOT"):
        return _EMPTY, None
    return None, None


def _set_members(value: Iterable[tuple[Any, Any]]) -> Words | None:
    """The letters of a small set such as `[Ff]`."""
    members = list(value)
    if len(members) > 4 or any(str(kind) != "LITERAL" for kind, _ in members):
        return None
    return frozenset(chr(code) for _, code in members)


def _branch_literals(branches: Iterable[Iterable[Any]]) -> tuple[Words | None, Words | None]:
    exact: Words | None = frozenset()
    best: Words | None = frozenset()
    for branch in branches:
        branch_exact, words = _sequence_literals(branch)
        exact = exact | branch_exact if exact is not None and branch_exact is not None else None
        branch_best = _better_set(words, branch_exact)
        best = best | branch_best if best is not None and branch_best else None
    if exact is not None and len(exact) > AT_MOST:
        exact = None
    return exact, best if best and len(best) <= AT_MOST else None


def _repeat_literals(value: tuple[int, int, Iterable[Any]]) -> tuple[Words | None, Words | None]:
    least, most, items = value
    exact, best = _sequence_literals(items)
    if (least, most) == (0, 1) and exact is not None:
        return exact | _EMPTY, None
    if least == 0:
        return None, None
    return (exact if (least, most) == (1, 1) else None), _better_set(best, exact)


def _join_literals(first: Words | None, second: Words | None) -> Words | None:
    if first is None or second is None or len(first) * len(second) > AT_MOST:
        return None
    return frozenset(head + tail for head in first for tail in second)


def _better_set(first: Words | None, second: Words | None) -> Words | None:
    """The set whose shortest word is longer."""
    if not first or not second:
        return first or second
    return max(first, second, key=lambda words: (min(map(len, words)), -len(words)))
