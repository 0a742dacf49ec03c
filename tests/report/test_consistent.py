"""No view contradicts itself: on all recorded nodes, what is beside a command or an action is true of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import recorded
from in_turn import in_turn
from textual.geometry import Size

from nodedoctor.report import brief, html, junit, text, ticket
from nodedoctor.report import json as report_json
from nodedoctor.report.page import root
from nodedoctor.report.steps import interrupted, told_step
from nodedoctor.tui.lines import card, detail
from nodedoctor.tui.lines import ticket as of_check
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import Para

HERE = Path(__file__).parent.parent
DEMOS = HERE.parent / "nodedoctor" / "demo"
NODES = [path.parent for folder in (DEMOS, HERE / "nodes") for path in sorted(folder.glob("*/manifest.json"))]
NAMES = [path.name for path in NODES]
SMALL = Size(80, 15)
"""The page about a row on a terminal of 80x24."""


@cache
def document(folder: Path) -> Any:
    return json.loads(report_json.render(report_json.document(recorded.judged(folder, preview=True))))


@cache
def without_preview(folder: Path) -> Any:
    return json.loads(report_json.render(report_json.document(recorded.judged(folder))))


def lines_of(paras: list[Para]) -> str:
    return "\n".join(f"{para.lead}{para.text}" for para in paras)


def pages(report: Any) -> Iterator[tuple[str, str]]:
    yield "text", text.render(report, width=10_000)
    yield "brief", brief.render(report, width=10_000)
    yield "ticket", ticket.render(report)
    yield "html", unescape(re.sub(r"<[^>]*>", "\n", html.render(report)))
    yield "junit", unescape(junit.render(report))
    state = State(report)
    for result in report["results"]:
        yield "check", lines_of(detail.detail(state, result, None, full=True))
        yield "check's ticket", of_check.markdown(result, report)
    for cause in report["causes"]:
        yield "card", lines_of(card.card(report, cause))
        yield "explained", lines_of(card.explained(report, cause))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("node", NODES, ids=NAMES)
def test_interrupts_stands_in_a_fix_or_on_a_step_that_changes_something(node: Path) -> None:
    report = document(node)
    fixes = [f["fix"] for r in report["results"] for f in r["findings"] if f["fix"]]
    looks = {s["command"] for fix in fixes for s in fix["steps"] if s["role"] in ("look", "keep", "verify")}
    for view, page in pages(report):
        assert "interrupts nothing" not in page.lower(), view
        before = ""
        for line in map(str.strip, page.splitlines()):
            if line.lower().startswith(("interrupts ", "interrupts:", "disturbs")):
                command = before.partition("$ ")[2] or before
                assert command not in looks, (view, command, line)
            before = line or before


@pytest.mark.sampled(6)
@pytest.mark.parametrize("node", NODES, ids=NAMES)
def test_what_a_fix_interrupts_is_printed(node: Path) -> None:
    report = document(node)
    page = text.render(report, width=10_000)
    for finding in (f for r in report["results"] for f in r["findings"] if f["status"] in ("warn", "fail")):
        if finding["fix"] and (what := interrupted(finding["fix"]["disturbs"])):
            on_steps = [told_step(step).interrupts for step in finding["fix"]["steps"]]
            assert any(f"interrupts {one}" in page for one in (what, *filter(None, on_steps)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("node", NODES, ids=NAMES)
def test_no_view_invites_jobs_to_what_must_be_replaced_or_reset(node: Path) -> None:
    for report, cause in [(one, c) for one in (document(node), without_preview(node)) for c in one["causes"]]:
        alone = {**report, "causes": [cause]}
        views = [brief.render(alone, width=10_000), ticket.render(alone), lines_of(card.card(report, cause))]
        if cause["action"] in ("replace-node", "reboot", "reset-gpu", "restart-service"):
            assert not [page for page in views if "new jobs may start" in page]
        if any("in this container fails" in page for page in views):
            assert not [page for page in views if "new jobs may start here" in page]


@pytest.mark.slow
@in_turn("node", NODES, ids=NAMES)
@in_turn("room", [SMALL, Size(80, 9), Size(140, 26)])
def test_what_comes_before_a_reset_is_in_view_with_it(node: Path, room: Size) -> None:
    """Of the steps on a card those in view are the first ones, in their order."""
    report = document(node)
    for cause in report["causes"]:
        found = root(report, cause)
        if found is None or not found[1]["fix"]:
            continue
        keys = [key for key, s in of_check.keyed(card.steps(report, cause)).items() if not told_step(s).last]
        used, seen = 0, []
        for para in card.card(report, cause, room=room):
            used += card.height([para], room.width)
            lead = re.match(r"(\S) (?:look|keep|repair|verify)\b", para.lead)
            if lead and used <= room.height:
                seen.append(lead[1])
        assert seen == keys[: len(seen)]
