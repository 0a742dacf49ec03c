"""Cases tried in turn: none is left out, and each that failed is named with what it raised."""

from __future__ import annotations

import pytest
from in_turn import in_turn


def test_every_case_is_tried_and_each_failure_is_listed() -> None:
    tried = []

    @in_turn("number", [1, 2, 3], ids=lambda number: f"case {number}")
    @in_turn(("word", "length"), [("a", 1), ("bb", 9)])
    def odd_words(number: int, word: str, length: int) -> None:
        tried.append((number, word))
        assert number != 2, "two is even"
        if number == 3:
            raise KeyError(word)
        assert len(word) != length or word == "a"

    with pytest.raises(pytest.fail.Exception) as failed:
        odd_words()
    assert tried == [(number, word) for number in (1, 2, 3) for word in ("a", "bb")]
    text = str(failed.value)
    assert "2 of 3 cases failed" in text and "number: case 2" in text and "number: case 3" in text
    assert text.count("2 of 2 cases failed") == 2 and "two is even" in text and "KeyError: 'bb'" in text
    assert "case 1" not in text


def test_a_test_without_failures_passes_and_gets_its_fixtures() -> None:
    seen = []

    @in_turn("number", [1, 2])
    def with_fixture(number: int, answer: int) -> None:
        seen.append(number + answer)

    with_fixture(answer=40)
    assert seen == [41, 42]


def test_what_cannot_fail_or_changes_a_fixture_is_refused() -> None:
    def changes(number: int, tmp_path: object) -> None: ...

    with pytest.raises(AssertionError, match="no case of number"):
        in_turn("number", [])
    with pytest.raises(AssertionError, match="changes a fixture"):
        in_turn("number", [1])(changes)
