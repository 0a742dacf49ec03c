"""What the copying key puts on the clipboard of every demo: one step, never a drastic one by a safe key."""

from __future__ import annotations

import base64
import re
import shlex
from pathlib import Path

import pytest
from textual.pilot import Pilot
from tuidriver import drive, frame, press, rack, until

from nodedoctor.demo import DEMOS, folder
from nodedoctor.engine.session import Request, Session
from nodedoctor.steps import drastic
from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.screens.checks import ChecksScreen
from nodedoctor.tui.screens.steps import StepsScreen
from nodedoctor.tui.widgets.listing import Listing


def sent(app: NodeDoctor, written: list[str]) -> list[str]:
    """What went to the terminal's clipboard, decoded from OSC 52."""
    found = re.findall("\x1b\\]52;c;([A-Za-z0-9+/=]*)\x07", "".join(written))
    return [base64.b64decode(text).decode() for text in found]


def listening(app: NodeDoctor) -> list[str]:
    """Everything that is written to the terminal from now on."""
    written: list[str] = []
    driver = app._driver
    assert driver is not None
    write = driver.write
    driver.write = lambda data: (written.append(data), write(data))[1]  # type: ignore[method-assign]
    return written


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DEMOS if name != "healthy"])
def test_no_safe_key_copies_what_ends_the_work_of_others(name: str):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        written, shown = listening(app), 0
        await press("slash", *"is:problem", "enter")(app, pilot)
        problems = [row.key for row in app.screen.query_one(Listing).rows]
        for problem in problems:
            screen = app.screen
            assert isinstance(screen, ChecksScreen)
            screen.select(problem)
            await pilot.pause()
            for key in "123456789":
                await press("c")(app, pilot)
                if not isinstance(app.screen, StepsScreen):
                    break
                shown += 1
                await press(key)(app, pilot)
                if isinstance(app.screen, StepsScreen):  # there are fewer steps
                    await press("escape")(app, pilot)
                    break
        copies = sent(app, written)
        assert shown and copies
        for text in copies:
            assert "\n" not in text and shlex.split(text) and not drastic(text), text

    drive(Session(Request(replay=Path(folder(name)))), act)


def test_a_last_resort_has_its_own_key_after_its_condition():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        screen = app.screen
        assert isinstance(screen, ChecksScreen)
        screen.select("kernel.driver")
        await pilot.pause()
        await press("c")(app, pilot)
        shown = frame(app)
        assert shown.index("LAST RESORT") < shown.index("the node is drained") < shown.index("$ sudo reboot")
        assert "every job on this node" in shown
        await press("2")(app, pilot)
        assert app.clipboard == "nodedoctor driver"  # what shows whether it worked
        await press("c", "A")(app, pilot)
        assert app.clipboard == "sudo reboot" and isinstance(app.screen, ChecksScreen)

    drive(Session(Request(replay=Path(folder("driver-mismatch")))), act)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_what_is_behind_the_steps_is_below_them(size: tuple[int, int]):
    """Where there is room, the page answers why; the steps are in the same lines with and without it."""

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("c")(app, pilot)
        shown = frame(app)
        assert shown.index("$ nvidia-smi nvlink -s -i 3") < shown.index("$ sudo fuser -v /dev/nvidia*")
        if size == (80, 24):
            assert "proof" not in shown
            await press("G")(app, pilot)
            await until(pilot, lambda: "kernel.xid: GPU 3: Xid 74" in frame(app))
            shown = frame(app)
        else:
            assert shown.index("$ sudo reboot") < shown.index("GPU 3 lost 2 NVLinks", 100)
            assert "owner" in shown and "link=11" in shown
        assert "fix   " in shown and "kernel.xid: GPU 3: Xid 74" in shown

    drive(Session(Request(replay=Path(folder("nvlinks-down")))), act, size)


@pytest.mark.slow
def test_leaving_the_steps_copies_nothing(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        for key in ("escape", "q", "c"):
            await press("c")(app, pilot)
            assert isinstance(app.screen, StepsScreen)
            await press(key)(app, pilot)
            assert isinstance(app.screen, ChecksScreen) and not app.copied
        await press("c", "Z", "9", "escape")(app, pilot)
        assert not app.copied

    drive(rack(tmp_path), act)
