"""Help and palette: sections by what a person wants, on one screen, in words that say what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.pilot import Pilot
from tuidriver import drive, frame, press, rack, until

from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.keys import COPY, ELSEWHERE, LOOK, MOVE
from nodedoctor.tui.screens.help import HelpScreen
from nodedoctor.tui.widgets.page import Page


@pytest.mark.slow
def test_help_fits_on_one_screen_at_80_by_24_in_four_sections(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        for screen in "123456":
            await press(screen, "question_mark")(app, pilot)
            shown = frame(app)
            for name in (MOVE, LOOK, COPY, ELSEWHERE, "could not be judged"):
                assert name in shown, shown
            assert ("tag:ib is:fail" in shown) is (screen == "1"), shown
            assert app.screen.query_one(Page).max_scroll_y == 0, shown
            assert all(len(line) <= 80 for line in shown.splitlines()), shown
            await press("escape")(app, pilot)
            assert not isinstance(app.screen, HelpScreen)

    drive(rack(tmp_path), act)


@pytest.mark.slow
def test_the_palette_has_one_row_a_command_with_its_key_and_what_is_wanted_most_is_first(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("colon")(app, pilot)
        await until(pilot, lambda: "Open Triage" in frame(app))
        rows = [line.strip() for line in frame(app).splitlines() if re.search(r"\(\S+\)$", line)]
        assert rows[0] == "Copy a step   (c)" and "Open Triage: why a job died   (4)" in rows
        await press(*"open logs")(app, pilot)
        await until(pilot, lambda: "Open logs: why a job died" in frame(app))

    drive(rack(tmp_path), act)
