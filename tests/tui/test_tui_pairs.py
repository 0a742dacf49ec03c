"""The list of nodes measured in pairs: the odd ones first, at any size, and nothing that a terminal obeys."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pairs_world import World

from nodedoctor.pairs.crew import CrewMember
from nodedoctor.pairs.document import document
from nodedoctor.pairs.drive import PlanOutcome
from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.lines import pairs
from nodedoctor.tui.screens.measured import MeasuredScreen
from nodedoctor.tui.state import Nothing


def told(size: int) -> dict[str, Any]:
    world = World(size)
    world.share["gpu-003"] = 0.5
    planned, seen, measured, rounds = world.run()
    measured = [replace(one, round=one.round + 1) for one in measured]
    members = tuple(CrewMember(name, "10.0.0.1") for name in world.nodes)
    outcome = PlanOutcome(members, planned, tuple(measured), (), seen, rounds)
    started = "2026-01-02T03:04:05Z"
    return document(outcome, source="ssh", started=started, seconds=9.0, size=0, groups=world.leaf)


@pytest.mark.parametrize("size", [8, 128])
def test_the_odd_one_is_first_among_findings_and_nodes(size: int):
    found = told(size)
    rows = pairs.rows(found)
    assert (rows[0].key, rows[0].word) == ("finding pairs.node@gpu-003", "FAIL")
    nodes = [row for row in rows if row.key.startswith("node ")]
    assert nodes[0].name == "gpu-003" and len(nodes) == size
    assert any("$ " in para.lead for para in pairs.page(found, rows[0].key))
    met = sum("gpu-003" in one["pair"] for one in found["measurements"])
    assert len(pairs.page(found, "node gpu-003")) == 1 + met
    assert [pairs.name_of(row.key) for row in (rows[0], nodes[0])] == ["gpu-003", "gpu-003"]


def test_what_a_node_says_cannot_move_the_cursor():
    found = told(8)
    found["findings"][0]["summary"] = found["nodes"][0]["note"] = "\x1b[2Jx\x07"
    found["nodes"][0]["state"] = "busy"
    rows = pairs.rows(found)
    said = [row.text for row in rows] + [
        para.text + para.lead for row in rows for para in pairs.page(found, row.key)
    ]
    assert not any("\x1b" in text or "\x07" in text for text in said)
    assert pairs.rows({}) == [] and pairs.page({}, "") and pairs.head({})


def test_the_screen_opens_on_the_odd_one_and_copies_its_name():
    async def scenario() -> None:
        app = NodeDoctor(Nothing(), measured=told(8))
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.pause()
            assert isinstance(app.screen, MeasuredScreen)
            assert app.screen.panes.listing.key == "finding pairs.node@gpu-003"
            await pilot.press("c")
            assert app.copied == ["gpu-003"]
            await pilot.press("enter", "escape", "escape")
            assert isinstance(app.screen, MeasuredScreen)

    asyncio.run(scenario())
