"""What a key reports has a line of its own, above the keys and the prompt, until the next key."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from tuidriver import drive, frame, press, rack, until

from nodedoctor.tui.app import NodeDoctor


@pytest.mark.slow
def test_a_message_covers_neither_the_keys_nor_the_prompt_and_goes_with_the_next_key(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        footer = frame(app).splitlines()[-1]
        await press("C")(app, pilot)
        await until(pilot, lambda: "printed again when you leave" in frame(app))
        lines = frame(app).splitlines()
        assert "printed again" in lines[-2] and lines[-1] == footer
        await press("j")(app, pilot)
        await until(pilot, lambda: "printed again" not in frame(app))
        await press("d", *"/nowhere.json", "enter")(app, pilot)
        await until(pilot, lambda: "No such file" in frame(app))
        await press("d")(app, pilot)
        app.notify("in front of the prompt", markup=False)
        await until(pilot, lambda: "in front of the prompt" in frame(app))
        assert frame(app).splitlines()[-1].startswith("compare with")

    drive(rack(tmp_path), act, messages=True)
