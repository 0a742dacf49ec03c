"""What the lines of one file have in common in front, learned from its first lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from nodedoctor.triage.lines.envelopes import pairs
from nodedoctor.triage.lines.prefix_pattern import (
    ALL,
    FEWEST,
    MANY,
    block_indent,
    common_indent,
    learn_pattern,
    repeating_numbers,
)
from nodedoctor.triage.lines.prefixes import (
    CommonPrefix,
    forwarded_label,
    is_known,
    is_labeled,
    is_passed_on,
    leading_severity,
    without_prefixes,
)

LAYERS = 3
"""Prefixes in front of each other, beside those that are known."""


def learn_prefix(texts: list[str], meaning: Callable[[str], frozenset[str]]) -> CommonPrefix:
    """What the lines have in common in front, behind the prefixes that are known.

    `meaning`: what a line by itself says, which no prefix may take away.
    """
    blanks = common_indent(texts) or block_indent(texts, is_known)
    rest = [without_prefixes(text[blanks:]) for text in texts if text.strip()]
    patterns: list[tuple[re.Pattern[str], frozenset[int]]] = []
    # what is left may have to be opened, and then there is nothing to learn from it
    enclosed = sum(pairs.has_text(text) for text in rest) * 2 > len(rest)
    while len(patterns) < LAYERS and not enclosed and (pattern := learn_pattern(rest, is_known, meaning)):
        patterns.append((pattern, repeating_numbers(pattern, rest)))
        rest = [
            without_prefixes(pattern.sub("", text, count=1) if pattern.match(text) else text) for text in rest
        ]
    habit = CommonPrefix(tuple(patterns), blanks)
    texts = [text for text in texts if text.strip()]
    labeled = len(rest) > FEWEST and sum(map(is_labeled, rest)) >= ALL * len(rest)
    leveled, shared, usual = _usual_severity(texts, habit)
    seated = len(texts) > FEWEST and _is_forwarded(texts)
    return replace(habit, leveled=leveled, shared=shared, usual=usual, labeled=labeled, seated=seated)


def _is_forwarded(texts: list[str]) -> bool:
    """Whether one rank stands in front of every line because somebody passes them on.

    Torch puts one in front of its own messages and of tracebacks: a log that begins with them may be a
    rank's own.
    """
    front = forwarded_label(texts[0])
    if not front or sum(forwarded_label(text) == front for text in texts) < ALL * len(texts):
        return False
    return any(is_passed_on(text, index == 0) for index, text in enumerate(texts))


def _usual_severity(texts: list[str], habit: CommonPrefix) -> tuple[bool, str, str]:
    """Whether nearly every line has a severity in front, which if all have the same, and the usual one.

    Most logs say no in their first lines.
    """
    may_lack = len(texts) - ALL * len(texts)
    levels: Counter[str] = Counter()
    for text in texts:
        level = leading_severity(text, habit)
        levels[level] += bool(level)
        may_lack -= not level
        if may_lack < 0:
            return False, "", ""
    usual = levels.most_common(1)[0][0] if levels else ""
    shared = usual if levels[usual] == levels.total() and len(texts) >= MANY else ""
    return len(texts) > FEWEST, shared, usual
