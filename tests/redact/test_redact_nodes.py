"""A document about many nodes that leaves the site names none of them, and says what it said."""

from __future__ import annotations

import json
from dataclasses import replace

from pairs_world import World

from nodedoctor.pairs import text
from nodedoctor.pairs.crew import CrewMember
from nodedoctor.pairs.document import document
from nodedoctor.pairs.drive import PlanOutcome
from nodedoctor.redact.documents import redacted_nodes
from nodedoctor.report import html

ORIGINALS = ("gpu-0", "rack7", "172.19.4.", "acme.example")


def told() -> dict[str, object]:
    world = World(8)
    world.share["gpu-003"] = 0.5
    planned, seen, measured, rounds = world.run(topology=True)
    members = tuple(
        CrewMember(name, f"172.19.4.{place + 20}", busy=(f"mount of {name}.acme.example",))
        for place, name in enumerate(world.nodes)
    )
    members = (*members, CrewMember("gpu-099", why="ssh: connect to host gpu-099 port 22: timed out"))
    measured = [replace(one, round=one.round + 1) for one in measured]
    outcome = PlanOutcome(members, planned, tuple(measured), (), seen, rounds)
    leaves = {name: "rack7-leaf" for name in world.nodes}
    started = "2026-01-02T03:04:05Z"
    return document(outcome, source="ssh", started=started, seconds=9.0, size=0, groups=leaves)


def test_no_original_is_left_in_any_view():
    before = told()
    after = redacted_nodes(before)
    views = [json.dumps(after), text.render(after), html.render(after)]
    assert [name for name in ORIGINALS if any(name in view for view in views)] == []
    assert all(name in json.dumps(before) for name in ORIGINALS)


def test_what_is_said_stays():
    before, after = told(), redacted_nodes(told())
    assert after.keys() == before.keys()
    for key in ("verdict", "plan", "reference_gbps", "slow_below"):
        assert after[key] == before[key]
    sick = {one["subject"] for one in after["findings"] if one["status"] == "fail"}
    assert sick < set(after["failing"]) and len(sick) == 1
    assert [one["gbps"] for one in after["measurements"]] == [one["gbps"] for one in before["measurements"]]  # type: ignore[attr-defined]
    assert len({name for one in after["measurements"] for name in one["pair"]}) == 8
