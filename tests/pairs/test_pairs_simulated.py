"""Faults put into made-up clusters of 8, 64 and 512 nodes are found, and nothing is invented."""

from __future__ import annotations

import pytest
from pairs_world import LEAF, World, minutes

from nodedoctor.pairs.model import pair

SIZES = (8, 64, 512)
KINDS = ("0.7", "0.5", "0.1", "corrupt", "filtered", "late", "dies")


def names(world: World, count: int) -> list[str]:
    """Nodes that are far from each other, by chance."""
    return world.chance.sample(world.nodes, count)


def sicken(world: World, kind: str, sick: list[str]) -> None:
    for place, name in enumerate(sick):
        if kind == "corrupt":
            world.corrupt.add(name)
        elif kind == "late":
            world.late.add(name)
        elif kind == "filtered":
            world.closed.add(name)
        elif kind == "dies":
            world.dies[name] = 2 + place
        else:
            world.share[name] = float(kind)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("noise", [0.05, 0.01, 0.1])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("topology", [False, True])
def test_nothing_is_invented_on_a_healthy_cluster(size: int, noise: float, topology: bool):
    for seed in range(20 if size < 512 else 5):
        _, seen, _, rounds = World(size, noise=noise, seed=seed, leaf=4 if size == 8 else LEAF).run(
            topology=topology
        )
        assert not seen.culprits, (seed, seen.culprits)
        assert minutes(rounds) <= 15


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "count"), [(size, 1) for size in SIZES] + [(64, 5), (512, 5)])
def test_sick_nodes_are_named_and_no_others(size: int, kind: str, count: int):
    """Not five of eight: they would be the majority, with no odd one out."""
    for seed in range(10 if size < 512 else 2):
        world = World(size, seed=seed)
        sick = names(world, count)
        sicken(world, kind, sick)
        _, seen, _, rounds = world.run()
        found = {(culprit.kind, culprit.where) for culprit in seen.culprits}
        assert found == {("node", name) for name in sick}, (seed, sick, found)
        assert minutes(rounds) <= 15


@pytest.mark.parametrize("seed", [27, 39, 64, 67, 76, 106])
def test_pairs_of_sick_nodes_that_look_good_by_chance_make_no_group(seed: int):
    world = World(64, seed=seed)
    sick = names(world, 5)
    sicken(world, "0.7", sick)
    _, seen, _, _ = world.run()
    assert {(culprit.kind, culprit.where) for culprit in seen.culprits} == {("node", name) for name in sick}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("lossy", [False, True])
def test_bad_paths_that_are_measured_are_named(size: int, count: int, lossy: bool):
    for seed in range(10 if size < 512 else 2):
        world = World(size, seed=seed)
        mixed = names(world, min(size, 10))
        sick = [pair(mixed[i], mixed[-1 - i]) for i in range(count if size > 8 else 1)]
        (world.lossy if lossy else world.paths).update(dict.fromkeys(sick, 0.02 if lossy else 0.5))
        _, seen, measured, _ = world.run()
        met = {one.pair for one in measured}
        found = {(culprit.kind, culprit.where) for culprit in seen.culprits}
        assert found == {("path", f"{a}:{b}") for a, b in sick if (a, b) in met}
        if size == 8:
            assert found


@pytest.mark.parametrize("topology", [False, True])
@pytest.mark.parametrize("size", [8, 64, 512])
def test_a_group_behind_a_slow_link_is_one_culprit(size: int, topology: bool):
    for seed in range(10 if size < 512 else 2):
        world = World(size, seed=seed, leaf=3 if size == 8 else LEAF)
        world.leaves["leaf-01"] = 0.3
        _, seen, _, rounds = world.run(topology=topology)
        members = tuple(name for name in world.nodes if world.leaf[name] == "leaf-01")
        assert [(one.kind, one.names) for one in seen.culprits] == [("group", members)], seed
        assert minutes(rounds) <= 15
