"""The mouse is the terminal's until somebody wants it; then it selects, and what it selects is copied."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from tuidriver import drive, press, rack

from nodedoctor.tui.app import NodeDoctor


@pytest.mark.slow
def test_selecting_copies_what_was_selected(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        page = app.query_one("#page")
        await pilot.mouse_down(page, offset=(10, 2))
        await pilot.hover(page, offset=(20, 2))
        await pilot.mouse_up(page, offset=(20, 2))
        await pilot.pause()
        assert app.copied == ["rack.links"]

    drive(rack(tmp_path), act)


@pytest.mark.slow
def test_a_click_on_a_tab_opens_its_screen(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await pilot.click("Tabs", offset=(16, 0))
        await pilot.pause()
        assert app.current_mode == "topology"
        await press("escape")(app, pilot)
        assert app.current_mode == "checks"

    drive(rack(tmp_path), act)
