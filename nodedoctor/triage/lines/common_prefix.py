"""The common prefix of a file's lines, learned from the first ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from nodedoctor.triage.lines.envelopes import pairs
from nodedoctor.triage.lines.indent import block_indent, common_indent
from nodedoctor.triage.lines.prefix_pattern import (
    FEWEST,
    MANY,
    NEARLY_ALL,
    LearnedPrefix,
    learn_pattern,
    with_columns,
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

_TABLE = re.compile(r"\W{0,3}(?:JobID(?:Raw)?\b|JOBID\b|NAMESPACE +NAME\b|NAME +READY\b)")
"""The head of a table of Slurm or kubectl, whose first column says whose each row is."""
LAYERS = 3
"""Prefixes in front of each other, beside those that are known."""


def learn_prefix(texts: list[str], meaning: Callable[[str], frozenset[str]]) -> CommonPrefix:
    """The common prefix of the lines, behind the prefixes that are known.

    `meaning`: what a line by itself says, which no prefix may take away.
    """
    blanks = common_indent(texts) or block_indent(texts, is_known)
    rest = [without_prefixes(text[blanks:]) for text in texts if text.strip()]
    patterns: list[LearnedPrefix] = []
    # what is left may have to be opened, and then there is nothing to learn from it
    enclosed = sum(pairs.has_text(text) for text in rest) * 2 > len(rest)
    enclosed = enclosed or (bool(rest) and _TABLE.match(rest[0]) is not None)
    while len(patterns) < LAYERS and not enclosed and (pattern := learn_pattern(rest, is_known, meaning)):
        patterns.append(with_columns(pattern, rest))
        rest = [
            without_prefixes(pattern.sub("", text, count=1) if pattern.match(text) else text) for text in rest
        ]
    common = CommonPrefix(tuple(patterns), blanks)
    texts = [text for text in texts if text.strip()]
    has_severity, shared, usual = _usual_severity(texts, common)
    return replace(
        common,
        has_severity=has_severity,
        shared_severity=shared,
        usual_severity=usual,
        has_labels=len(rest) > FEWEST and sum(map(is_labeled, rest)) >= NEARLY_ALL * len(rest),
        has_ranks=len(texts) > FEWEST and _is_forwarded(texts),
    )


def _is_forwarded(texts: list[str]) -> bool:
    """Whether one rank is in front of every line because a launcher put it there.

    Torch puts one in front of its own messages and of tracebacks: a log that begins with them may be a
    rank's own.
    """
    front = forwarded_label(texts[0])
    if not front or sum(forwarded_label(text) == front for text in texts) < NEARLY_ALL * len(texts):
        return False
    return any(is_passed_on(text, index == 0) for index, text in enumerate(texts))


def _usual_severity(texts: list[str], common: CommonPrefix) -> tuple[bool, str, str]:
    """Whether nearly every line has a severity; the shared one; the usual one.

    Most logs say no in their first lines.
    """
    may_lack = len(texts) - NEARLY_ALL * len(texts)
    levels: Counter[str] = Counter()
    for text in texts:
        level = leading_severity(text, common)
        levels[level] += bool(level)
        may_lack -= not level
        if may_lack < 0:
            return False, "", ""
    usual = levels.most_common(1)[0][0] if levels else ""
    shared = usual if levels[usual] == levels.total() and len(texts) >= MANY else ""
    return len(texts) > FEWEST, shared, usual
