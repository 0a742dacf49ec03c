"""Rounds are disjoint and complete, plans end in time, and halving finds the smallest failing set."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.pairs.model import pair
from nodedoctor.pairs.schedule import all_rounds, packed, plan, ring, smallest_failing


def named(count: int) -> tuple[str, ...]:
    return tuple(f"n{number:03}" for number in range(count))


def disjoint(each: tuple[tuple[str, str], ...]) -> bool:
    ends = [name for one in each for name in one]
    return len(ends) == len(set(ends))


@given(st.integers(0, 40))
def test_all_rounds_hold_every_pair_once(count: int):
    rounds = all_rounds(named(count))
    assert all(map(disjoint, rounds))
    flat = [one for each in rounds for one in each]
    assert sorted(flat) == sorted(combinations(named(count), 2))
    assert len(rounds) == (0 if count < 2 else count - 1 + count % 2)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(10, 19))))
def test_packing_loses_nothing_and_keeps_rounds_disjoint(numbers: list[tuple[int, int]]):
    pairs = list(dict.fromkeys(pair(f"n{a}", f"n{b}") for a, b in numbers))
    rounds = packed(pairs)
    assert all(map(disjoint, rounds))
    assert sorted(one for each in rounds for one in each) == sorted(pairs)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("count", [2, 3, 8, 32, 33, 64, 512, 4096])
@pytest.mark.parametrize("seconds", [1.0, 3.0, 30.0])
def test_a_plan_by_default_ends_within_15_minutes(count: int, seconds: float):
    made = plan(named(count), None, seconds)
    assert made.longest_s <= 15 * 60
    assert made.rounds and all(map(disjoint, made.rounds))
    assert made.mode == ("all" if count <= 32 else "sample")
    assert made == plan(named(count), None, seconds)


def test_a_ring_meets_both_neighbours():
    assert ring(named(4)) == (("n000", "n001"), ("n001", "n002"), ("n002", "n003"), ("n000", "n003"))
    assert ring(named(2)) == (("n000", "n001"),) and ring(named(1)) == ()


@given(st.integers(2, 130), st.data())
def test_halving_ends_at_the_smallest_failing_set(count: int, data: st.DataObject):
    nodes = named(count)
    sick = set(data.draw(st.lists(st.sampled_from(nodes), min_size=2, max_size=3, unique=True)))
    search, tries = smallest_failing(nodes), 0
    try:
        asked = next(search)
        while True:
            tries += 1
            assert len(asked) > 1
            asked = search.send(sick <= set(asked))
    except StopIteration as end:
        assert set(end.value) == sick
    assert tries <= 2 * len(sick) * (count.bit_length() + 1)


def test_a_sample_of_very_many_nodes_costs_as_much_as_its_rounds():
    """All rounds of 65 536 nodes are two thousand million pairs."""
    many = plan(tuple(f"n{number}" for number in range(65_536)), "sample", 5.0)
    assert len(many.rounds) == 8
    assert all(disjoint(each) and len(each) == 32_768 for each in many.rounds)
    assert many.pairs == 8 * 32_768
