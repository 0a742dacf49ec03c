"""Literal words that every match of a pattern contains: a search for them finds every line that can match.

They are read from the parsed pattern, so that a search can never exclude what the pattern itself allows.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    """Words of which every match of the pattern has at least one; none when it promises no word."""
    exact, best = _sequence_literals(sre.parse(pattern))
    found = _better_set(best, exact)
    return tuple(sorted(found)) if found and min(map(len, found)) >= shortest else ()


def _sequence_literals(items: Iterable[Any]) -> tuple[Words | None, Words | None]:
    """All texts that the items can match, if they are few, and the best words that each match contains."""
    run: Words | None = _EMPTY
    whole: Words | None = _EMPTY
    best: Words | None = None
    for item in items:
        exact, inner = _item_literals(item)
        best = _better_set(best, inner)
        joined = _join_literals(run, exact)
        if joined is None:
            best = _better_set(best, run)
            whole = None
            run = exact if exact is not None else _EMPTY
        else:
            run = joined
        whole = _join_literals(whole, exact)
    return whole, _better_set(best, run)


def _item_literals(item: tuple[Any, Any]) -> tuple[Words | None, Words | None]:
    kind, value = str(item[0]), item[1]
    if kind == "LITERAL":
        return frozenset((chr(value),)), None
    if kind == "IN":
        return _set_members(value), None
    if kind == "SUBPATTERN":
        return _sequence_literals(value[3]) if not value[1] else (None, None)
    if kind == "BRANCH":
        return _branch_literals(value[1])
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _repeat_literals(value)
    if kind == "ASSERT":  # what stands around a match stands in its line all the same
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
        one, words = _sequence_literals(branch)
        exact = exact | one if exact is not None and one is not None else None
        found = _better_set(words, one)
        best = best | found if best is not None and found else None
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
    return frozenset(one + other for one in first for other in second)


def _better_set(first: Words | None, second: Words | None) -> Words | None:
    """The set whose shortest word is longer."""
    if not first or not second:
        return first or second
    return max(first, second, key=lambda words: (min(map(len, words)), -len(words)))
