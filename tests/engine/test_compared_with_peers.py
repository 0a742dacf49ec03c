"""The odd one among like devices: minorities of values, outliers of numbers, nothing where nobody knows."""

from __future__ import annotations

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor.declare.peers import Attribute, compared, odd_ones

Device = tuple[int, object]
SAME = [Attribute[Device]("firmware", "identity", lambda device: device[1])]
LOW = [Attribute[Device]("power", "level", lambda device: device[1], "low", 0.5)]
HIGH = [Attribute[Device]("errors", "growth", lambda device: device[1], "high", 3.0, 60.0)]


def devices(*values: object) -> list[Device]:
    return list(enumerate(values))


def odd(values: list[object], table: list[Attribute[Device]] = SAME) -> list[int]:
    return [one.device[0] for one in odd_ones(devices(*values), table)]


def test_the_minority_is_named_with_what_the_others_have():
    (one,) = odd_ones(devices("a", "a", "b", "a"), SAME)
    assert (one.device[0], one.value, one.usual, one.peers) == (2, "b", "a", 3)


def test_nobody_is_odd_among_two_or_halves():
    assert odd(["a", "b"]) == odd(["a", "a", "b", "b"]) == odd(["a", "b", "c"]) == []


def test_what_was_not_told_is_not_compared():
    assert odd(["a", None, "a"]) == [] and compared(devices("a", None, "a"), SAME) == ()
    assert odd(["a", None, "a", "b"]) == [3] and compared(devices("a", "a", "b"), SAME) == ("firmware",)


def test_a_number_far_below_the_others():
    assert odd([690.0, 688.0, 210.0, 691.0, 695.0], LOW) == [2]
    assert odd([690.0, 400.0, 210.0, 600.0, 300.0], LOW) == []  # nothing here is usual
    assert odd([210.0, 690.0, 690.0], HIGH) == []


def test_growth_needs_an_amount_also_over_none():
    assert odd([0, 0, 59, 0], HIGH) == [] and odd([0, 0, 60, 0], HIGH) == [2]


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(["a", "b", None]), max_size=9), st.permutations(range(9)))
def test_identity_does_not_depend_on_the_order_and_names_a_minority(values, order):
    found = set(odd(values))
    assert len(found) * 2 < max(1, len(values))
    places = [place for place in order if place < len(values)]
    again = {places[n] for n in odd([values[place] for place in places])}
    assert again == found


@settings(max_examples=examples(60))
@given(st.lists(st.floats(0, 1e6), max_size=9), st.floats(0.5, 2.0))
def test_equal_devices_have_no_outlier(values, level):
    assert odd([level for _ in values], LOW) == odd([level for _ in values], HIGH) == []
    assert len(odd(list(values), LOW)) * 2 < max(1, len(values))
