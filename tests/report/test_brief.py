"""The text of a report on one screen, its first line, and the ticket for the provider."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from any_report import reports
from hypothesis import given
from in_turn import in_turn
from recorded import judged

from nodedoctor.knowledge.ownership import carries_out
from nodedoctor.model import Report as Found
from nodedoctor.report import brief, cause_text, json, ticket
from nodedoctor.report.document import Report
from nodedoctor.report.page import cause_line, root

HERE = Path(__file__).parent.parent
DEMOS = HERE.parent / "nodedoctor" / "demo"
NODES = [path.parent for folder in (DEMOS, HERE / "nodes") for path in sorted(folder.glob("*/manifest.json"))]
NAMES = [path.name for path in NODES]


@cache
def document(node: Path) -> Report:
    return json.document(judged(node))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("node", NODES, ids=NAMES)
@pytest.mark.parametrize("width", [80, 110])
def test_one_cause_fits_a_terminal(node: Path, width: int) -> None:
    report = document(node)
    lines = brief.render(report, width=width).splitlines()
    causes = report["causes"]
    if len(causes) < 2:
        assert len(lines) <= cause_text.ONE_SCREEN
    if causes:
        assert lines[0].startswith(cause_line(causes[0]))
        assert all(any(cause["headline"].split()[0] in line for line in lines) for cause in causes)


@pytest.mark.slow
@in_turn("node", NODES, ids=NAMES)
def test_nothing_but_a_command_is_wider_than_the_page(node: Path) -> None:
    lines = brief.render(document(node), width=100).splitlines()
    assert not [line for line in lines[2:] if len(line) > 100 and not line.startswith("     $ ")]


@pytest.mark.slow
@in_turn("node", NODES, ids=NAMES)
def test_what_the_headline_asks_for_can_be_typed(node: Path) -> None:
    """The one cause's command that reboots, resets or restarts as its headline says is on the page."""
    report = document(node)
    if len(report["causes"]) == 1 and (found := root(report, report["causes"][0])) and found[1]["fix"]:
        page, steps = brief.render(report, width=80), found[1]["fix"]["steps"]
        action = report["causes"][0]["action"]
        goals = [step["command"] for step in steps if carries_out(action, step["command"])]
        typed = (f"     $ {goal}\n" in page or f"with -v, also {goal}\n" in page for goal in goals)
        assert not goals or any(typed), (action, goals)
        assert action != "replace-node" or "nodedoctor --ticket ticket.md" in page


@pytest.mark.sampled(6)
@pytest.mark.parametrize("node", NODES, ids=NAMES)
@pytest.mark.parametrize("width", [80, 60, 110])
def test_no_step_before_a_reset_is_hidden_while_the_reset_shows(node: Path, width: int) -> None:
    """The steps on a page are the first ones of a fix, without a gap."""
    report = document(node)
    whole = brief.render(report, width=width)
    for cause in report["causes"]:
        found = root(report, cause)
        steps = [s["command"] for s in found[1]["fix"]["steps"]] if found and found[1]["fix"] else []
        resets = [n for n, step in enumerate(steps) if carries_out(cause["action"], step)]
        for reset in resets[:1]:
            if f"     $ {steps[reset]}\n" in whole:
                assert all(f"     $ {step}\n" in whole for step in steps[:reset])


def test_a_port_asks_for_its_cable_and_not_for_another_node() -> None:
    first = brief.render(document(HERE / "nodes" / "pasted-verbs-one-rail-down")).splitlines()[0]
    assert first == "provider: mlx5_6 port 1 is down; check cable and switch port"


def test_the_first_line_says_what_is_broken_whose_move_it_is_and_what_to_ask_for() -> None:
    lines = brief.render(document(DEMOS / "nvlinks-down")).splitlines()
    assert lines[0] == "provider: GPU 3 lost 2 NVLinks; request a replacement"
    page = "\n".join(lines)
    assert "16 of 18 NVLinks up" in page and "= NVML gpus[index=3].links[link=4].values.active = 0" in page
    assert "     since    2026-11-14 08:41:07" in page and "     follows  kernel.xid, topo.matrix\n" in page
    assert brief.render(document(DEMOS / "raylet-1024-files")).startswith("you: raylet")


def test_a_healthy_node_has_a_short_page() -> None:
    lines = brief.render(document(DEMOS / "healthy")).splitlines()
    assert lines[0] == "PASS: no problem found" and len(lines) < 6


def test_quiet_leaves_out_what_is_well_and_what_was_not_seen() -> None:
    page = brief.render(document(HERE / "nodes" / "cpu-only"), quiet=True)
    assert "UNKN: no problem found" in page and "see it" not in page


@given(reports())
def test_nothing_from_the_node_is_live(report: Found) -> None:
    page = brief.render(json.document(report))
    assert not [
        c for c in page if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2028"
    ]


@in_turn("node", NODES, ids=NAMES)
def test_a_ticket_has_every_proof_of_what_its_owner_must_act_on(node: Path) -> None:
    report = document(node)
    page = ticket.render(report, "node.zip")
    for cause in report["causes"]:
        if cause["owner"] in ("provider", "administrator"):
            assert f"`{cause['id']}`" in page and cause["headline"] in page
    assert "node.zip" in page and ticket.BUG_REPORT in page


def test_a_ticket_names_the_part() -> None:
    page = ticket.render(document(DEMOS / "nvlinks-down"))
    (part,) = re.findall(r"^- Part: (.*)$", page, re.MULTILINE)
    assert part.startswith("GPU 3: ") and "serial 1655022005473" in part and "bus id 0000:5d:00.0" in part
    assert (
        "NVLink: fatal error detected on link 4" in page
        and "gpus[index=3].links[link=11].values.active = 0" in page
    )
    assert "--record node.zip --redact" in page
