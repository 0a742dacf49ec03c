"""A set of nodes that fails together although its pairs are well is a finding, with what to do."""

from __future__ import annotations

from dataclasses import replace

from pairs_world import World

from nodedoctor.pairs.crew import CrewMember
from nodedoctor.pairs.document import document
from nodedoctor.pairs.drive import PlanOutcome, Try


def test_nodes_that_fail_only_together_are_named():
    world = World(8)
    planned, seen, measured, rounds = world.run()
    measured = [replace(one, round=one.round + 1) for one in measured]
    members = tuple(CrewMember(name, "10.0.0.1") for name in world.nodes)
    smallest = world.nodes[2:5]
    tries = (Try(world.nodes, True, 80.0), Try(smallest[::-1], True, 90.0))
    planned = replace(planned, mode="bisect", what="collective")
    outcome = PlanOutcome(members, planned, tuple(measured), (), seen, rounds, tries, smallest)
    told = document(
        outcome, source="ssh", started="2026-01-02T03:04:05Z", seconds=9.0, size=0, groups=world.leaf
    )
    (group,) = [one for one in told["findings"] if one["id"].startswith("pairs.group")]
    assert (group["status"], group["subject"]) == ("warn", "gpu-[002-004]")
    assert "at 90 Gb/s" in group["summary"] and group["fix"]["steps"]
    assert told["verdict"] == "warn"
