"""Regular expressions that are compiled late do what the others do, and every one of ours compiles."""

import gc
import re

import pytest

from nodedoctor.engine.plugins import discover
from nodedoctor.regex import _Later, regex


@pytest.mark.parametrize(
    "expression, text", [(r"(\d)(?P<unit>[ms])", "a1m2s"), (rb"\d", b"a1"), (r"x", "none")]
)
def test_it_is_the_pattern_that_compile_makes(expression, text):
    ours, usual = regex(expression), re.compile(expression)
    for _ in range(2):
        assert ours.findall(text) == usual.findall(text)
        assert [m.span() for m in ours.finditer(text)] == [m.span() for m in usual.finditer(text)]
        assert ours.sub(text, text) == usual.sub(text, text) and ours.split(text) == usual.split(text)
        assert bool(ours.search(text)) is bool(usual.search(text))
        assert ours.match(text) is None and ours.fullmatch(text) is None
    assert (ours.pattern, ours.groups, ours.flags) == (usual.pattern, usual.groups, usual.flags)


def test_flags_are_kept():
    assert regex("a.b", re.IGNORECASE | re.DOTALL).fullmatch("A\nB")


def test_what_cannot_be_compiled_says_so_when_it_is_used():
    with pytest.raises(re.error):
        regex("(").search("")


def test_every_expression_of_ours_compiles():
    discover()
    ours = [item for item in gc.get_objects() if isinstance(item, _Later)]
    assert len(ours) > 100
    for item in ours:
        assert item.pattern
