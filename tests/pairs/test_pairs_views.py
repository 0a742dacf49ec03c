"""The document holds what its schema says; text and page name the odd ones first, at any size."""

from __future__ import annotations

import json
from importlib import resources

import pytest
from jsonschema import validate
from pairs_world import World

from nodedoctor.fleet.document import render
from nodedoctor.pairs import text
from nodedoctor.pairs.crew import CrewMember
from nodedoctor.pairs.document import document
from nodedoctor.pairs.drive import PlanOutcome
from nodedoctor.report import html

SCHEMA = json.loads((resources.files("nodedoctor.report") / "schemas/pairs.schema.json").read_text())


@pytest.mark.parametrize("size", [8, 128])
def test_every_view_names_the_slow_node(size: int):
    world = World(size)
    world.share["gpu-003"] = 0.5
    planned, seen, measured, rounds = world.run()
    measured = [
        one.__class__(one.pair, one.gbps, one.fault, one.loss, one.rtt_us, one.round + 1) for one in measured
    ]
    members = tuple(CrewMember(name, "10.0.0.1") for name in world.nodes)
    outcome = PlanOutcome(members, planned, tuple(measured), (), seen, rounds)
    told = document(
        outcome, source="ssh", started="2026-01-02T03:04:05Z", seconds=9.0, size=0, groups=world.leaf
    )
    assert json.loads(render(told)) == json.loads(json.dumps(told))
    validate(told, SCHEMA)
    (cause,) = told["causes"]
    assert (cause["id"], cause["owner"], cause["schedulable"]) == (
        "pairs.node@gpu-003",
        "administrator",
        "no",
    )
    assert told["failing"] == ["gpu-003"] and told["verdict"] == "fail"
    lines = text.render(told).splitlines()
    assert lines[1].startswith("FAIL pairs.node gpu-003: ")
    page = html.render(told)
    assert page.index("pairs.node@gpu-003") < page.index("<table")
    assert page.count('<th scope="col">') <= 64
