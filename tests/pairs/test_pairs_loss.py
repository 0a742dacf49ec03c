"""A node that loses segments is named however few the others are; what healthy hosts lose is silent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairs_world import World

from nodedoctor.pairs.culprits import fit
from nodedoctor.pairs.findings import summary
from nodedoctor.pairs.model import Fit, Measurement

HEALTHY = tuple(
    segments / 1e6
    for segments in (
        *(0, 4, 6, 11, 12, 17, 22, 27, 38, 46, 56, 68, 75, 87, 96, 110, 118, 124, 132, 143, 152, 159, 163),
        *(171, 179, 182, 184, 191, 197, 202, 210, 216, 225, 232, 247, 262, 272, 291, 310, 376),
    )
)
"""Shares sent again: quantiles of 290 measurements of seven healthy hosts of namespaces on two busy cores."""


class LossyWorld(World):
    """`drops` are the shares that nodes lose of all they receive; every pair loses what healthy ones do."""

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(count, noise=0.02, seed=seed)
        self.drops: dict[str, float] = {}
        self.everybody = 0.0

    def measure(self, one: tuple[str, str], place: int) -> Measurement | None:
        seen = super().measure(one, place)
        assert seen is not None
        dropped = max(self.drops.get(name, 0.0) for name in one) * self.chance.uniform(0.85, 1.15)
        usual = self.everybody * self.chance.uniform(0.5, 1.5) + self.chance.choice(HEALTHY)
        return Measurement(one, seen.gbps, None, usual + dropped, seen.rtt_us, place)


def named(seen: Fit) -> set[tuple[str, str]]:
    return {(one.kind, one.where) for one in seen.culprits}


worlds = st.builds(LossyWorld, st.integers(3, 64), st.integers(0, 10_000))


@given(worlds, st.data(), st.floats(0.01, 0.3))
def test_one_lossy_node_is_named_and_nobody_else(world: LossyWorld, data: st.DataObject, loss: float):
    sick = data.draw(st.sampled_from(world.nodes))
    world.drops[sick] = loss
    _, seen, _, _ = world.run()
    assert named(seen) == {("node", sick)}
    assert [one.fault for one in seen.culprits] == ["loss"]


@given(worlds, st.sampled_from([0.0, 0.001, 0.02]))
def test_what_everybody_loses_is_silent(world: LossyWorld, everybody: float):
    world.everybody = everybody
    assert not world.run()[1].culprits


@given(st.integers(5, 24), st.integers(0, 10_000), st.data(), st.floats(0.01, 0.3))
def test_two_lossy_nodes_are_named(count: int, seed: int, data: st.DataObject, loss: float):
    world = LossyWorld(count, seed)
    sick = data.draw(st.lists(st.sampled_from(world.nodes), min_size=2, max_size=2, unique=True))
    world.drops = dict.fromkeys(sick, loss)
    assert named(world.run()[1]) == {("node", name) for name in sick}


def test_of_two_nodes_only_the_pair_is_named():
    world = LossyWorld(2, 0)
    assert not world.run()[1].culprits
    world.drops[world.nodes[0]] = 0.03
    (culprit,) = world.run()[1].culprits
    assert (culprit.kind, culprit.names, culprit.fault) == ("path", world.nodes, "loss")
    assert culprit.confidence == "medium", "nothing to compare it with"


@pytest.mark.parametrize(("gbps", "fault"), [(0.088, "slow"), (2.8, "loss")])
def test_the_larger_effect_is_named_first(gbps: float, fault: str):
    """A shaper that drops what is too much: a thirtieth of the rate says more than a tenth sent again."""
    nodes = [f"n{number}" for number in range(7)]
    measured = [
        Measurement((a, b), gbps if "n3" in (a, b) else 2.89, None, 0.12 if "n3" in (a, b) else 0.0001, 40.0)
        for place, a in enumerate(nodes)
        for b in nodes[place + 1 :]
    ]
    (culprit,) = fit(measured, {}).culprits
    assert (culprit.where, culprit.fault) == ("n3", fault)


def test_of_three_a_lossy_node_is_not_called_slow_for_one_slow_pair():
    measured = [
        Measurement(("n0", "n1"), 1.3237, None, 0.0313, 40.0),
        Measurement(("n0", "n2"), 1.7742, None, 0.00005, 40.0),
        Measurement(("n1", "n2"), 1.7729, None, 0.0360, 40.0),
    ]
    seen = fit(measured, {})
    (culprit,) = seen.culprits
    assert (culprit.where, culprit.fault) == ("n1", "loss")
    assert summary(culprit, seen) == "3.6% of segments sent again, with 2 partners"


def test_both_effects_are_told():
    nodes = [f"n{number}" for number in range(7)]
    measured = [
        Measurement((a, b), 0.088 if "n3" in (a, b) else 2.89, None, 0.12 if "n3" in (a, b) else 0.0, 40.0)
        for place, a in enumerate(nodes)
        for b in nodes[place + 1 :]
    ]
    seen = fit(measured, {})
    said = summary(seen.culprits[0], seen)
    assert said.startswith("3% of the rate of a good pair (0.088 of 2.89 Gb/s), 12.0% of segments sent again")
