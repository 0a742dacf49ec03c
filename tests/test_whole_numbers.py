"""Numbers from outside: whatever was written, they are bounded or they are none."""

import json
from datetime import datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.engine.session import UsageError, since_when
from nodedoctor.whole_numbers import LARGEST, json_integer, signed, spans, whole_number


@given(st.one_of(st.integers(), st.text(), st.floats(), st.booleans(), st.none(), st.lists(st.integers())))
def test_anything_is_a_number_within_bounds_or_none(value):
    read = whole_number(value, 1000)
    assert read is None or (isinstance(read, int) and 0 <= read <= 1000)


@given(st.integers(-LARGEST - 1, LARGEST))
def test_every_64_bit_number_is_read_as_it_was_written(number):
    assert signed(str(number)) == signed(number) == number
    assert whole_number(str(number)) == (number if number >= 0 else None)


@pytest.mark.parametrize(
    "written", ["9" * 5000, 10**5000, 1 << 63, "1e3", "0x10", "", "١٢", "1_000", " 7", True], ids=range(10)
)
def test_what_is_no_number_of_64_bits(written):
    assert whole_number(written) is None


def test_a_long_number_costs_only_itself():
    assert json.loads('{"a": %s, "b": 7}' % ("9" * 5000), parse_int=json_integer) == {"a": None, "b": 7}


@given(st.sets(st.integers(0, 200)))
def test_spans_are_the_numbers(numbers):
    ranges = spans(sorted(numbers))
    assert [n for first, last in ranges for n in range(first, last + 1)] == sorted(numbers)
    assert all(one[1] + 1 < two[0] for one, two in pairwise(ranges))


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 30, str(10**11)])
def test_since_before_the_calendar_is_refused_in_a_line(digits):
    with pytest.raises(UsageError, match="is too far back") as refused:
        since_when(f"{digits}h", datetime(2026, 1, 1))
    assert len(str(refused.value)) < 120
