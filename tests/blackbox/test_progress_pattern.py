"""The expression of `--progress`: what Python cannot read is an error of usage, whatever it raises."""

from __future__ import annotations

import argparse

import pytest

from nodedoctor.blackbox.arguments import pattern


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(" * 300_000, "nested too deeply"),
        ("(" * 300_000 + ")" * 300_000, "nested too deeply"),
        ("a{1,99999999999}", "too large"),
        ("[", "unterminated"),
    ],
)
def test_what_is_no_expression_is_refused_in_a_line(text: str, why: str):
    with pytest.raises(argparse.ArgumentTypeError, match=why) as refused:
        pattern(text)
    assert len(str(refused.value)) < 200


def test_an_expression_is_taken_as_it_is():
    assert pattern(r"step (\d+)") == r"step (\d+)"
