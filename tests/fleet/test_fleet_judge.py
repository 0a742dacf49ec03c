"""Who is different: named against a clear majority of its own kind, never among healthy nodes with noise."""

from __future__ import annotations

import random
from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor.fleet.compare.outliers import MAJORITY, judge, kinds
from nodedoctor.fleet.compare.reachability import EVERYBODY, NEIGHBOURS, cleared, neighbours
from nodedoctor.fleet.compare.traits import READINGS, TRAITS
from nodedoctor.fleet.model import Node, Oddity, Problem
from nodedoctor.model import Status
from nodedoctor.nodeset import fold

H100 = {"gpu": "NVIDIA H100 80GB HBM3", "gpus": "8", "on-bus": "8", "driver": "570.86.10", "nccl": "2.27.5"}


def make(number: int, readings: dict[str, float] | None = None, **changed: Any) -> Node:
    names = {key.replace("_", "-"): value for key, value in changed.items()}
    traits = {key: value for key, value in {**H100, **names}.items() if value is not None}
    return Node(f"gpu-{number}", verdict=Status.PASS, traits=traits, readings=readings or {})


def many(count: int, first: int = 0, **changed: Any) -> list[Node]:
    return [make(number, **changed) for number in range(first, first + count)]


def only(nodes: list[Node]) -> Oddity:
    (oddity,) = judge(nodes)
    return oddity


def test_the_one_with_another_driver_is_named():
    found = only([*many(127), make(128, driver="550.54.15")])
    assert (found.key, found.odd, found.status) == ("driver", ("gpu-128",), Status.WARN)
    assert found.summary == "gpu-128 has 550.54.15; 127 others 570.86.10"
    assert found.majority is not None and fold(found.majority.hosts) == "gpu-[0-126]"
    assert [(group.value, len(group.hosts)) for group in found.groups] == [
        ("570.86.10", 127),
        ("550.54.15", 1),
    ]


def test_another_nccl_fails_because_ranks_refuse_each_other():
    assert only([*many(4), make(9, nccl="2.26.2")]).status is Status.FAIL


def test_what_follows_from_the_driver_is_told_with_it():
    nodes = [*many(4, driver_cuda="13.0"), make(9, driver="550.54.15", driver_cuda="12.4")]
    assert only(nodes).summary.endswith("(and with it: CUDA of the driver)")
    apart = [
        *many(4, driver_cuda="13.0"),
        make(8, driver_cuda="12.4"),
        make(9, driver="550.54.15", driver_cuda="13.0"),
    ]
    assert [oddity.odd for oddity in judge(apart)] == [("gpu-9",), ("gpu-8",)]


def test_without_a_majority_nobody_is_blamed():
    few = [[make(1), make(2, driver="x")], [*many(2), make(9, driver="x")]]
    for nodes in (*few, [*many(4), *many(4, 10, driver="x")]):
        found = only(nodes)
        assert found.odd == () and found.majority is None and found.status is Status.WARN
        doubt = "too few nodes to know which is right" if nodes in few else "no majority"
        assert found.summary.startswith(f"{doubt}: gpu-")


def test_two_against_one_is_no_majority():
    found = only([*many(MAJORITY - 1), make(9, driver="x")])
    assert found.odd == ()


def test_what_every_node_has_its_own_of_is_no_oddity():
    assert judge([make(number, driver=f"570.{number}") for number in range(10)]) == ()


def test_values_that_are_not_told_are_not_different():
    assert judge([*many(9), make(10, driver=None, nccl=None)]) == ()


def test_a_package_that_is_missing_is_no_other_version():
    lacks = only([*many(9, ray="2.51.0"), make(10, ray="none")])
    assert (lacks.odd, lacks.status) == (("gpu-10",), Status.WARN)
    assert judge([*many(3, ray="none"), make(4, ray="2.51.1")]) == ()  # on one node, for one job
    mixed = only([*many(4, ray="none"), *many(3, 10, ray="2.51.0"), make(20, ray="2.50.0")])
    assert (mixed.odd, mixed.status) == (("gpu-20",), Status.FAIL)
    assert {group.value for group in mixed.groups} == {"2.51.0", "2.50.0"}


def test_whoever_has_less_is_odd_also_when_most_have():
    sick = "7 x 18, 1 x 16"
    found = only([*many(3, links=sick), make(9, links="18")])
    assert (found.key, found.status, found.odd) == ("links", Status.WARN, ("gpu-0", "gpu-1", "gpu-2"))
    assert found.summary == f"gpu-[0-2] have {sick}; gpu-9 has 18" and found.majority is None
    assert only([make(1, links=sick), make(2, links="18")]).odd == ("gpu-1",)
    assert only([*many(3, links="18"), make(9, links="17"), make(8, links=sick)]).odd == ("gpu-8", "gpu-9")
    dark = only([*many(4, rails="none"), make(9, rails="8 x 400")])
    assert (dark.odd, dark.status) == (("gpu-0", "gpu-1", "gpu-2", "gpu-3"), Status.WARN)
    lost = only([*many(3, gpus="7"), make(9)])
    assert lost.key == "gpus" and lost.odd == ("gpu-0", "gpu-1", "gpu-2")


def test_a_majority_that_is_better_still_makes_it_a_failure():
    found = only([*many(3, rails="8 x 400"), make(9, rails="7 x 400")])
    assert (found.odd, found.status) == (("gpu-9",), Status.FAIL)
    assert only([*many(3, rails="8 x 400"), make(9, rails="8 x ?")]).odd == (
        "gpu-9",
    )  # no number: as most have
    assert only([*many(3, rails="8 x 400"), make(9, rails="4 x 800")]).odd == ("gpu-9",)


def test_adapters_that_one_node_has_more_make_nobody_else_odd():
    found = only([*many(4, hcas="8", rails="8 x 400"), make(9, hcas="9", rails="9 x 400")])
    assert (found.key, found.odd) == ("hcas", ("gpu-9",))
    assert found.summary.endswith("(and with it: RDMA ports that are up, Gb/s)")


def test_kinds_are_compared_among_themselves():
    a100 = {"gpu": "NVIDIA A100-SXM4-80GB", "driver": "535.1"}
    nodes = [
        *many(8),
        *many(8, 10, **a100),
        make(30, gpu=None, gpus=None, on_bus="0", driver=None, kernel="5"),
    ]
    assert judge(nodes) == ()
    assert list(kinds(nodes)) == ["8 x NVIDIA A100-SXM4-80GB", "8 x NVIDIA H100 80GB HBM3"]
    found = only([*nodes, make(40, **{**a100, "driver": "570"})])
    assert found.odd == ("gpu-40",) and found.title == "NVIDIA driver (8 x NVIDIA A100-SXM4-80GB)"


def test_four_gpus_in_three_nodes_are_a_kind_and_seven_are_a_fault():
    assert judge([*many(8), *many(3, 10, gpus="4")]) == ()
    found = only([*many(8), *many(3, 10, gpus="7")])
    assert (found.key, found.status, found.odd) == ("gpus", Status.FAIL, ("gpu-10", "gpu-11", "gpu-12"))
    assert only([*many(8), make(10, gpus="4")]).odd == ("gpu-10",)


def test_a_node_whose_driver_is_dead_is_compared_with_those_that_have_its_gpus():
    dead = make(10, gpu=None, gpus=None, driver=None, kernel="6.8.0-99")
    assert only([*many(8, kernel="6.8.0-64"), dead]).odd == ("gpu-10",)


def test_nodes_without_gpus_are_compared_when_there_are_no_others():
    plain = {"gpu": None, "gpus": None, "on_bus": "0", "driver": None}
    assert only([*many(4, **plain, kernel="6"), make(9, **plain, kernel="5")]).odd == ("gpu-9",)


def measured(values: list[float], key: str = "pair") -> list[Node]:
    return [make(number, {key: value}) for number, value in enumerate(values)]


def test_a_slow_node_stands_out_of_a_few():
    found = only(measured([392.0, 391.0, 390.5, 393.0, 312.0]))
    assert (found.key, found.odd) == ("pair", ("gpu-4",))
    assert found.summary == "gpu-4 has 312 GB/s; 4 others 391 GB/s (most at the median)"
    assert judge(measured([392.0, 391.0, 312.0])) == ()  # too few to tell who is right
    assert judge(measured([392.0, 391.0, 390.0, 360.0])) == ()  # eight per cent is noise
    assert judge(measured([392.0, 391.0, 390.0, 500.0])) == ()  # faster costs nobody anything
    assert judge(measured([392.0, 391.0, 200.0, 201.0])) == ()  # who is right?


def test_a_counter_stands_out_far_above_the_others():
    assert only(measured([0.0] * 20 + [5000.0], "nvlink-errors")).odd == ("gpu-20",)
    assert judge(measured([0.0] * 20 + [500.0], "nvlink-errors")) == ()  # below what says anything
    assert judge(measured([900.0] * 20 + [5000.0], "nvlink-errors")) == ()  # all have some


def test_a_reading_stands_out_six_usual_spreads_from_the_median_and_not_before():
    """Copies that differ by 30 GB/s (a standard deviation) from node to node."""
    noisy = [400.0 + 20.236 * step for step in (-1, 1) * 20] + [400.0]
    assert judge(measured([*noisy, 400.0 - 5.5 * 30], "pair")) == ()
    assert only(measured([*noisy, 400.0 - 6.5 * 30], "pair")).odd == ("gpu-41",)


def test_a_hot_node_stands_out_and_a_cool_one_does_not():
    assert only(measured([34.0] * 9 + [62.0], "temperature")).odd == ("gpu-9",)
    assert judge(measured([34.0] * 9 + [45.0, 12.0], "temperature")) == ()


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 1000))
def test_healthy_nodes_with_noise_are_all_alike(seed: int, count: int):
    """Speeds spread by one per cent, temperatures by three degrees, counters as sound links count."""
    chance = random.Random(seed)
    noise = {
        "pair": lambda: chance.gauss(392, 4),
        "to-gpu": lambda: chance.gauss(55, 0.6),
        "gemm": lambda: chance.gauss(700, 12),
        "memory": lambda: 2015.5 - chance.random(),
        "shm": lambda: 1007.7 - chance.random(),
        "temperature": lambda: chance.gauss(34, 3),
        "nvlink-errors": lambda: float(chance.choice([0, 0, 0, 0, 0, chance.randrange(50)])),
        "ecc-corrected": lambda: float(chance.choice([0, 0, 0, 0, chance.randrange(300)])),
        "symbol-errors": lambda: float(chance.randrange(20_000)),
        "link-downed": lambda: float(chance.randrange(8, 40)),
        "pcie-replays": lambda: float(chance.choice([0, 0, 0, chance.randrange(200)])),
    }
    nodes = [make(n, {key: draw() for key, draw in noise.items()}) for n in range(count)]
    assert judge(nodes) == ()


def test_one_machine_counted_twice_is_named():
    one = Node("a", boot_id="b1", hostname="gpu-7")
    found = only([one, Node("b", boot_id="b1", hostname="gpu-7"), Node("c", boot_id="b2", hostname="gpu-8")])
    assert (found.key, found.odd) == ("same-machine", ("a", "b"))
    assert found.summary == "a,b are one machine (same boot id): b1"
    found = only([one, Node("b", boot_id="b2", hostname="gpu-7")])
    assert (found.key, found.odd) == ("same-name", ("a", "b"))
    assert judge([Node("a"), Node("b")]) == ()


def tried(answers: dict[str, dict[str, str]]) -> list[Node]:
    return [Node(host, peers=peers) for host, peers in answers.items()]


NAMES = [f"n{number}" for number in range(6)]


def test_the_node_nobody_reaches_is_named_once():
    """Five nodes say so of n3, and n3, which is cut off, of five: one node is named."""
    ways = {a: {b: "ETIMEDOUT" if "n3" in (a, b) else "" for b in NAMES if b != a} for a in NAMES}
    found = only(tried(ways))
    assert (found.key, found.status, found.odd) == ("peers", Status.FAIL, ("n3",))
    assert "n3 not reached by 5 of 5 (n[0-2,4-5]): ETIMEDOUT" in found.summary


def test_what_all_say_of_the_named_node_does_not_fail_them():
    """Four healthy nodes that cannot reach n3 stay usable; what one of them says of n1 stays."""
    way = Problem("net.peers", "peer:n3", Status.FAIL, "does not answer")
    other = Problem("net.peers", "peer:n1", Status.WARN, "loses packets")
    nodes = [
        Node(
            host,
            verdict=Status.FAIL,
            problems=(way, other) if host == "n0" else (way,),
            statuses={"net.peers": Status.FAIL, "net.dns": Status.PASS},
            counts={"fail": 1, "pass": 1},
            peers={"n3": "ETIMEDOUT", "n1": "", "n5": ""},
        )
        for host in ("n0", "n1", "n2", "n4")
    ]
    first, second, *_ = cleared(nodes, judge(nodes))
    assert (first.verdict, first.problems) == (Status.WARN, (other,))
    assert first.counts == {"fail": 0, "pass": 1, "warn": 1}
    assert (second.verdict, second.statuses["net.peers"]) == (Status.PASS, Status.PASS)
    assert list(cleared(nodes, ())) == nodes


def test_a_single_way_blames_neither_end_and_silence_everywhere_nobody():
    ways = {a: {b: "" for b in NAMES if b != a} for a in NAMES}
    ways["n1"]["n2"] = "ETIMEDOUT"
    found = only(tried(ways))
    assert (found.odd, found.status, found.summary) == ((), Status.WARN, "n1 does not reach n2: ETIMEDOUT")
    blocked = only(tried({a: {b: "ETIMEDOUT" for b in NAMES if b != a} for a in NAMES}))
    assert blocked.odd == () and blocked.summary.startswith("30 of 30 ways between nodes are silent")


def test_every_node_of_many_is_tried_by_as_many_others():
    hosts = [f"gpu-{number:03d}" for number in range(100)]
    tries = [host for me in hosts for host in neighbours(hosts, f"{me}.cluster.example")]
    assert {tries.count(host) for host in hosts} == {NEIGHBOURS}
    assert all(me not in neighbours(hosts, me) for me in hosts)
    few = hosts[:EVERYBODY]
    assert neighbours(few, "gpu-003") == tuple(host for host in few if host != "gpu-003")
    assert neighbours(["gpu-003"], "gpu-003") == ("gpu-003",)  # whoever names itself alone means it
    assert len(neighbours(hosts, "elsewhere")) == NEIGHBOURS


words = st.sampled_from(["", "a", "b", "none", "8", "7", "\x1b[2J", "x" * 200])
nodes = st.builds(
    Node,
    host=st.sampled_from([f"n{number}" for number in range(30)]),
    state=st.sampled_from(["answered", "silent"]),
    boot_id=words,
    hostname=words,
    traits=st.dictionaries(st.sampled_from([trait.key for trait in TRAITS]), words),
    readings=st.dictionaries(st.sampled_from([r.key for r in READINGS]), st.floats(0, 1e18)),
    peers=st.dictionaries(st.sampled_from(NAMES), words),
)


@given(st.lists(nodes, max_size=12, unique_by=lambda node: node.host))
def test_any_nodes_can_be_judged(listed: list[Node]):
    known = {node.host for node in listed} | set(NAMES)
    for oddity in judge(listed):
        assert oddity.summary and oddity.groups and oddity.status in (Status.WARN, Status.FAIL)
        assert set(oddity.odd) <= known
        assert judge(list(reversed(listed))) == judge(listed)
