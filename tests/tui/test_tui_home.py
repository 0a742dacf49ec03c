"""The rows of the first screen: owners in a column, the document's order, what follows under its cause."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from tuidriver import drive, frame, press

from nodedoctor.demo import folder
from nodedoctor.engine.session import Request, Session
from nodedoctor.knowledge.ownership import owner_column
from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.lines import home
from nodedoctor.tui.state import State, Waiting
from nodedoctor.tui.theme import UNICODE, Row, fit_words

NODES = Path(__file__).parents[1] / "nodes"
RAILS = NODES / "ib-rails-down-init-narrow"


def state(node: Path) -> State:
    return State.of(asyncio.run(Session(Request(replay=node)).diagnosis().run()))


def rows(now: State, width: int) -> list[Row]:
    return home.rows(now, (), UNICODE, width)


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_the_owner_has_its_column_at_every_width_and_the_action_only_where_it_fits(width: int):
    now = state(RAILS)
    shown = [row for row in rows(now, width) if row.key.startswith(home.CAUSE)]
    causes = now.report["causes"]
    assert [row.key.removeprefix(home.CAUSE) for row in shown] == [cause["id"] for cause in causes]
    for row, cause in zip(shown, causes, strict=True):
        assert row.owner == owner_column(cause["owner"])
        assert row.text.startswith(cause["headline"]) and cause["owner"] not in row.text
        assert len(row.text) <= width - 17 or row.text == cause["headline"]
    assert any("; restart the service" in row.text for row in shown) is (width >= 80)


def test_owner_and_action_wait_until_all_checks_have_answered():
    now = state(RAILS)
    last = now.report["results"][-1]["check"]
    running = replace(now, running={last: Waiting()})
    for row in rows(running, 140):
        assert not row.owner.strip() and ";" not in row.text
    done = {row.key: row.text.partition(";")[0] for row in rows(now, 140)}
    kept = [row for row in rows(running, 140) if row.key.startswith(home.CAUSE)]
    assert kept and all(done[row.key] == row.text for row in kept)


def test_what_follows_from_a_cause_is_folded_under_it():
    shown = rows(state(RAILS), 140)
    keys = [row.key for row in shown]
    for cause, check in (("ib.rate@port:mlx5_6/1", "ib.width"), ("ib.ports@port:mlx5_4/1", "ib.sm")):
        at = keys.index(home.CAUSE + cause)
        assert keys[at + 1] == home.FOLD + home.SYMPTOMS + cause
        assert shown[at + 1].text == f"► 1 check follows from it: {check}"


def test_what_follows_is_opened_under_its_cause_and_found_by_its_name():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("j", "enter")(app, pilot)
        lines = frame(app).splitlines()
        at = next(number for number, line in enumerate(lines) if "checks follow from it" in line)
        assert "FAIL  PROV   GPU 3" in lines[at - 1] and "kernel.xid" in lines[at + 1]

    drive(Session(Request(replay=Path(folder("nvlinks-down")))), act)


def test_a_row_is_cut_between_words():
    assert fit_words("GPU 3 lost 2 NVLinks", 20, "~") == "GPU 3 lost 2 NVLinks"
    assert fit_words("GPU 3 lost 2 NVLinks", 19, "~") == "GPU 3 lost 2 ~     "
    assert fit_words("0123456789", 6, "~") == "0123 ~"
