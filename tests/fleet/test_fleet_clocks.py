"""A node whose clock is off is named, and slow nodes, slow networks and our own clock blame nobody."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from examples import examples
from forked import nodedoctor_forked
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor.fleet.compare.clocks import MIN_DIFFERENCE, bounds, differing_clocks
from nodedoctor.fleet.model import Node, Oddity
from nodedoctor.model import Status

ASKED = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc).timestamp()
RIGHT = st.floats(-MIN_DIFFERENCE / 3, MIN_DIFFERENCE / 3)
"""Seconds by which the clocks of healthy nodes may be off."""
SLOW = st.tuples(st.floats(0, 200), st.floats(0, 60), st.floats(0, 200))
"""Seconds until a node begins, while it looks, and until its answer is here."""
QUICK = st.tuples(st.floats(0, 5), st.floats(0, 20), st.floats(0, 5))
Taken = tuple[float, float, float]


def answered(number: int, taken: Taken, ahead: float) -> Node:
    """A node that took so long, by a clock that is so far ahead of ours."""
    before, looking, after = taken
    began = datetime.fromtimestamp(int(ASKED + before + ahead), timezone.utc)
    node = Node(f"gpu-{number}", seconds=looking, started=began.strftime("%Y-%m-%dT%H:%M:%SZ"))
    return Node(
        node.host, seconds=looking, started=node.started,
        ahead=bounds(node, ASKED, ASKED + before + looking + after),
    )  # fmt: skip


def only(nodes: list[Node]) -> Oddity:
    (found,) = differing_clocks(nodes)
    return found


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(SLOW, RIGHT), max_size=9))
def test_slow_nodes_with_right_clocks_are_not_named(nodes: list[tuple[Taken, float]]):
    assert not list(differing_clocks([answered(n, taken, ahead) for n, (taken, ahead) in enumerate(nodes)]))


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(QUICK, RIGHT), min_size=2, max_size=9), QUICK, st.floats(180, 3000), st.booleans())
def test_the_node_whose_clock_is_minutes_off_is_named(
    nodes: list[tuple[Taken, float]], taken: Taken, off: float, behind: bool
):
    fleet = [answered(n, other, ahead) for n, (other, ahead) in enumerate(nodes)]
    found = only([*fleet, answered(99, taken, -off if behind else off)])
    assert found.odd == ("gpu-99",) and found.status is Status.WARN
    assert f"min {'behind' if behind else 'ahead of'} the others" in found.summary


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(QUICK, RIGHT), min_size=1, max_size=9), st.floats(180, 3000))
def test_where_our_own_clock_is_off_no_node_is_named(nodes: list[tuple[Taken, float]], off: float):
    found = only([answered(n, taken, ahead + off) for n, (taken, ahead) in enumerate(nodes)])
    assert found.odd == () and "this machine's clock is about" in found.summary
    assert "behind those of" in found.summary


def test_what_was_saved_says_nothing_of_clocks():
    assert not list(
        differing_clocks([Node("gpu-1", started="2026-03-01T11:00:00Z"), Node("gpu-2", started="")])
    )
    assert bounds(Node("gpu-1", started="soon"), ASKED, ASKED) is None
    assert bounds(Node("gpu-1", started="2026-03-01T11:00:00Z", replayed=True), ASKED, ASKED) is None


SSH = """#!/bin/sh
[ "$1" = -V ] && exit 0
while [ "$1" != -- ]; do shift; done
cd {repository} && {python} -m nodedoctor --json net.clock | {python} {shift} $2
"""
SHIFT = """
import datetime, json, sys
report = json.load(sys.stdin)
report["node"]["boot_id"] = report["node"]["hostname"] = sys.argv[1]
if sys.argv[1] == "gpu-4":
    began = datetime.datetime.strptime(report["started"], "%Y-%m-%dT%H:%M:%SZ")
    report["started"] = (began - datetime.timedelta(minutes=7)).strftime("%Y-%m-%dT%H:%M:%SZ")
print(json.dumps(report))
"""


@pytest.mark.slow
def test_a_fleet_that_is_asked_now_names_it_and_its_saved_reports_do_not(tmp_path: Path):
    repository = Path(__file__).parents[2]
    (tmp_path / "shift.py").write_text(SHIFT)
    stand_in = SSH.format(repository=repository, python=sys.executable, shift=tmp_path / "shift.py")
    (tmp_path / "ssh").write_text(stand_in)
    (tmp_path / "ssh").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(repository)}
    words = ("fleet", "--ssh", "gpu-[1-4]", "--deadline", "60", "--json", "--save", "kept", "net.clock")
    done = nodedoctor_forked(*words, env=env, cwd=tmp_path)
    (oddity,) = json.loads(done.stdout)["oddities"]
    assert (oddity["key"], oddity["odd"], oddity["status"]) == ("clock", "gpu-4", "warn")
    assert oddity["summary"] == "gpu-4 is about 7 min behind the others"
    again = nodedoctor_forked("fleet", "--reports", "kept", "--json", env=env, cwd=tmp_path)
    assert json.loads(again.stdout)["oddities"] == []
