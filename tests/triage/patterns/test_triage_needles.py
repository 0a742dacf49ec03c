"""The words that a fast search looks for are in everything that their pattern matches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from in_turn import in_turn
from test_triage_stories import STORIES

from nodedoctor.triage.lines.required_literals import required_literals
from nodedoctor.triage.patterns.log_pattern import LogPattern
from nodedoctor.triage.patterns.shapes import PIECE, LiteralIndex
from nodedoctor.triage.patterns.signs import SIGNS

LOGGED = Path(__file__).parents[1] / "lines.jsonl"
LINES = [json.loads(row)["text"] for row in LOGGED.read_text().splitlines()]
TEXTS = [line for text in [*LINES, *(row[0] for row in STORIES.values())] for line in text.splitlines()]


def test_every_sign_has_words() -> None:
    assert [sign.pattern.pattern for sign in SIGNS if not sign.needles] == []


@in_turn("sign", SIGNS, ids=[sign.pattern.pattern[:40] for sign in SIGNS])
def test_no_line_is_missed(sign: LogPattern) -> None:
    missed = [
        text for text in TEXTS if sign.pattern.search(text) and not any(w in text for w in sign.needles)
    ]
    assert missed == []


@settings(max_examples=examples(20), deadline=None)
@given(st.sampled_from(SIGNS), st.data())
def test_texts_made_from_the_pattern_have_a_word(sign: LogPattern, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(sign.pattern))
    assert any(word in text for word in sign.needles)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("abc|xyz", ("abc", "xyz")),
        ("[Ff]ailed to (?:bind|map)", ("Failed to bind", "Failed to map", "failed to bind", "failed to map")),
        (r"Cuda failure(?: \d+)? '?out of memory", (" out of memory", " 'out of memory")),
        (r"\d+ ranks", (" ranks",)),
        (r"(?<=(?:it|s)/s\]) *(?:\d+%|\[)", ("it/s]", "s/s]")),
        (r"\d+|.*", ()),
    ],
)
def test_words(pattern: str, words: tuple[str, ...]) -> None:
    assert set(required_literals(pattern)) == set(words)


def _one_by_one(lists: list[tuple[str, ...]], text: str) -> list[int]:
    return [number for number, words in enumerate(lists) if any(word in text for word in words)]


def test_the_index_finds_every_sign_that_a_search_word_by_word_does() -> None:
    lists = [sign.needles for sign in SIGNS]
    index = LiteralIndex(lists)
    for text in TEXTS:
        assert index.lists_in(text) == _one_by_one(lists, text), text


_SMALL = st.text("abcé ", min_size=PIECE, max_size=6)


@given(
    st.lists(st.lists(_SMALL, min_size=1, max_size=4).map(tuple), max_size=5), st.text("abcé ", max_size=30)
)
def test_an_index_of_any_words(lists: list[tuple[str, ...]], text: str) -> None:
    assert LiteralIndex(lists).lists_in(text) == _one_by_one(lists, text)
