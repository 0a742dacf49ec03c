"""Our averages are those of the standard library."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.averages import mean, median


@given(st.lists(st.integers(-1000, 1000) | st.floats(-1e6, 1e6), min_size=1, max_size=12))
def test_averages_are_those_of_statistics(numbers):
    assert median(iter(numbers)) == statistics.median(numbers)
    assert mean(iter(numbers)) == pytest.approx(statistics.fmean(numbers), abs=1e-6)


@pytest.mark.parametrize("average", [median, mean])
def test_nothing_has_no_average(average):
    with pytest.raises(ValueError):
        average([])
