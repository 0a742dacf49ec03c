"""The keys, in the real app on recorded nodes and on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from pathlib import Path

import pytest
from pastes import IBSTAT
from textual import events
from textual.app import App, ComposeResult
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.widgets import Input
from tuidriver import FRAMES, checks, drive, frame, hung, press, rack, settled, until

from nodedoctor.demo import folder
from nodedoctor.engine.session import Request, Session
from nodedoctor.model import Status
from nodedoctor.report.document import worst
from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.screens.checks import ChecksScreen
from nodedoctor.tui.screens.help import HelpScreen
from nodedoctor.tui.screens.topology import TopologyScreen
from nodedoctor.tui.theme import UNICODE, Row
from nodedoctor.tui.widgets.listing import Listing
from nodedoctor.tui.widgets.subjects import Subjects

NODES = Path(__file__).parents[1] / "nodes"


def listing(app: NodeDoctor) -> Listing:
    return app.screen.query_one(Listing)


def shown(app: NodeDoctor) -> list[str]:
    return [row.name for row in listing(app).rows]


def said(app: NodeDoctor) -> str:
    return "\n".join(note.message for note in app._notifications)


def keys(app: NodeDoctor) -> list[str]:
    return [row.key for row in listing(app).rows]


@pytest.mark.slow
def test_moving_filtering_folding(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        causes = [key for key in keys(app) if key.startswith("cause ")]
        assert len(causes) == 5 and listing(app).key == causes[0] == "cause rack.links@gpu:3"
        assert keys(app)[5:] == ["fold unknown", "fold pass", "fold skip"]
        await press("j", "j", "k")(app, pilot)
        assert listing(app).key == causes[1]
        await press("G")(app, pilot)
        assert listing(app).key == "fold skip"
        await press("enter")(app, pilot)
        assert shown(app)[-1] == "rack.ray"
        await press("enter", "g", "N")(app, pilot)
        assert listing(app).key == causes[-1] and "rack.ray" not in shown(app)  # round and round
        await press("n")(app, pilot)
        assert listing(app).key == causes[0]
        await press("p")(app, pilot)
        assert "rack.driver" in shown(app)
        await press("p", "slash", *"tag:ib is:warn", "enter")(app, pilot)
        assert shown(app) == ["rack.rate"] and "[/tag:ib is:warn]" in frame(app)
        await press("escape")(app, pilot)
        assert len(keys(app)) == 8 and "[" not in frame(app).splitlines()[1]
        await press("slash", *"LINKS DOWN")(app, pilot)
        assert shown(app) == ["rack.links"]
        await press("escape")(app, pilot)
        assert len(keys(app)) == 8

    drive(rack(tmp_path), act)


def test_a_subject_narrows_the_list_and_escape_lists_everything(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("h")(app, pilot)
        assert app.screen.query_one(Subjects).selected == "NVLink"  # the first that is not well
        assert set(shown(app)) >= {"nvlink.links", "topo.matrix", "p2p.status"}
        assert all(
            name.split(".")[0] in ("nvlink", "topo", "p2p", "fabric", "bandwidth") for name in shown(app)
        )
        assert listing(app).key == "nvlink.links"
        await press("l")(app, pilot)
        assert {name.split(".")[0] for name in shown(app)} == {"kernel"}
        await press("enter", "j")(app, pilot)
        assert listing(app).has_focus and "[Kernel log]" in frame(app)
        await press("escape")(app, pilot)
        assert listing(app).key == "cause nvlink.links@gpu:3" and "[Kernel log]" not in frame(app)

    drive(Session(Request(replay=Path(folder("nvlinks-down")))), act, (140, 40))


def test_nothing_wrong_says_what_was_not_measured_and_what_is_next(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        assert listing(app).key == "well"
        for words in ("no problem found", "Not measured", "bandwidth.p2p", "nodedoctor expect"):
            assert words in frame(app)

    drive(Session(Request(replay=Path(folder("healthy")))), act)


def test_a_node_without_gpus_is_offered_nothing_that_loads_or_shows_gpus():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        following = frame(app).partition("\nNext\n")[2]
        assert "nodedoctor expect" in following
        assert "--deep" not in following and "GPU" not in following

    drive(Session(Request(replay=NODES / "cpu-only")), act)


def test_every_reason_why_checks_did_not_judge_is_named_with_its_count_on_a_small_terminal():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        shown = " ".join(frame(app).split())
        assert "8 AMD Instinct accelerators on the PCI bus, not judged here" in shown
        assert re.search(r"\d+ checks not in this recording: nvml \d+, target-python \d+", shown)
        assert "2 checks no bandwidth was measured" in shown and "each for a reason of its own" in shown
        assert "$ nodedoctor fleet" in shown and "load of the GPUs" not in shown

    drive(Session(Request(replay=NODES / "mi300x-not-judged")), act)


def test_a_lost_gpu_marks_topology_and_a_long_command_is_not_shown_in_part():
    async def of_lost(app: NodeDoctor, pilot: Pilot[None]) -> None:
        assert "2 Topology!" in frame(app)

    async def of_long(app: NodeDoctor, pilot: Pilot[None]) -> None:
        shown = frame(app)
        assert "$ sudo fuser -v" in shown and "$ grep -h -A4 nvidia" in shown
        assert "a long command: c shows it and copies it" in shown and "dpkg-query" not in shown

    drive(Session(Request(replay=NODES / "h100-off-the-bus")), of_lost)
    drive(Session(Request(replay=NODES.parents[1] / "nodedoctor/demo/driver-mismatch")), of_long, (100, 42))


def test_a_gpu_that_fell_off_the_bus_is_under_the_cursor_of_the_topology_and_leads_to_its_finding():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("2")(app, pilot)
        assert listing(app).key == "GPU5" and len(listing(app).rows) == 8
        shown = frame(app)
        assert "lost      has fallen off the bus (0000:ab:00.0)" in shown and "below 90%" not in shown
        await press("enter")(app, pilot)
        assert "driver.answers" in frame(app) and isinstance(app.screen, ChecksScreen)

    drive(Session(Request(replay=NODES / "h100-off-the-bus")), act)


@pytest.mark.slow
def test_copied_is_remembered_for_the_end(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("c", "1")(app, pilot)
        assert app.clipboard == "nvidia-smi --gpu-reset -i 3"
        await press("C")(app, pilot)
        assert app.clipboard.startswith("**FAIL `rack.links`** on `gpu-a3-017`")
        assert "```sh\nnvidia-smi --gpu-reset -i 3\n```" in app.clipboard
        await press("G", "c")(app, pilot)  # it has no command
        assert len(app.copied) == 2

    drive(rack(tmp_path), act)


@pytest.mark.slow
def test_one_check_is_asked_afresh_and_the_others_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said = tmp_path / "file"
    said.write_text("sick")
    monkeypatch.setenv("NODEDOCTOR_TEST_FILE", str(said))

    def summaries(app: NodeDoctor) -> dict[str, str]:
        assert app.state is not None
        return {result["check"]: worst(result)["summary"] for result in app.state.report["results"]}

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await settled(app, pilot)
        before = summaries(app)
        assert before["changing.file"] == "sick"
        said.write_text("well")
        await press("r")(app, pilot)
        await until(pilot, lambda: summaries(app)["changing.file"] == "well")
        assert summaries(app)["changing.steady"] == before["changing.steady"]
        await settled(app, pilot)
        assert app.state is not None and app.state.report["verdict"] == "pass"
        await press("R")(app, pilot)
        again = "had not finished when the run ended"
        await until(
            pilot, lambda: summaries(app)["changing.steady"] not in (before["changing.steady"], again)
        )

    drive(_changing(tmp_path), act)


@pytest.mark.slow
def test_a_snapshot_saved_is_a_node_that_can_be_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("s", "enter")(app, pilot)
        await until(pilot, lambda: list(tmp_path.glob("*.zip")))

    drive(rack(tmp_path), act)
    (saved,) = tmp_path.glob("nodedoctor-gpu-a3-017-*.zip")
    drive(rack(tmp_path, node=saved), press("6"))


@pytest.mark.slow
def test_what_cannot_be_written_or_read_is_said(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("s", "ctrl+u", *"/nowhere/node.zip", "enter")(app, pilot)
        await until(pilot, lambda: "No such file or directory" in said(app))
        await press("d", *"/nowhere/[b]x.json", "enter")(app, pilot)
        await until(pilot, lambda: "cat: '/nowhere/[b]x.json'" in said(app))
        assert isinstance(app.screen, ChecksScreen)

    drive(rack(tmp_path), act)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["d", "s"])
@pytest.mark.parametrize("path", ["sd/s/d.zip", "/tmp/a.json"])
def test_a_path_typed_behind_its_key_at_once_is_whole(tmp_path: Path, key: str, path: str):
    """As a person who knows what comes types ahead, or a script: no key waits for an answer."""

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("slash", *"ds", "escape")(app, pilot)
        assert not app.query(Input) and isinstance(app.screen, ChecksScreen)
        for letter in (key, *path):
            app.post_message(events.Key(_character_to_key(letter), letter))
        await until(pilot, lambda: any(field.value.endswith(path) for field in app.screen.query(Input)))
        await press("escape", "c", key)(app, pilot)
        assert not app.screen.query(Input)

    drive(rack(tmp_path), act)


@pytest.mark.slow
@pytest.mark.parametrize(("screen", "key"), [("4", "o"), ("5", "d")])
def test_on_its_own_screen_too(tmp_path: Path, screen: str, key: str):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press(screen)(app, pilot)
        before = app.screen
        for letter in (key, *"/tmp/od.log"):
            app.post_message(events.Key(_character_to_key(letter), letter))
        await until(pilot, lambda: any(one.value.endswith("/tmp/od.log") for one in app.screen.query(Input)))
        await press("escape")(app, pilot)
        assert app.screen is before and not app.screen.query(Input)

    drive(rack(tmp_path), act)


@pytest.mark.slow
def test_outputs_of_a_node_open_as_that_node(tmp_path: Path):
    paste, strange = tmp_path / "paste.txt", tmp_path / "strange.txt"
    paste.write_text("$ ibstat\n" + IBSTAT.replace("State: Active", "State: Down"))
    strange.write_text("hello\n")

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        seen = {strange: "No line of a job was recognised", paste: "all 2 ports: DOWN"}
        for path, shown in seen.items():
            await press("4", "o", *str(path), "enter")(app, pilot)
            await until(pilot, lambda shown=shown: shown in frame(app))
        assert isinstance(app.screen, ChecksScreen)

    drive(rack(tmp_path), act, (140, 40))


@pytest.mark.slow
def test_the_key_of_the_logs_is_a_letter_in_a_filter(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("slash", *"too")(app, pilot)
        assert [field.value for field in app.screen.query(Input)] == ["too"]
        await press("escape", "c", "o")(app, pilot)
        assert not app.screen.query(Input)

    document = json.loads((FRAMES / "triage.json").read_text())
    drive(rack(tmp_path), act, triage=document)


@pytest.mark.slow
def test_an_odd_gpu_leads_to_its_finding(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("G", "2")(app, pilot)
        assert isinstance(app.screen, TopologyScreen) and listing(app).key == "GPU3"
        await press("enter")(app, pilot)
        await until(
            pilot,
            lambda: isinstance(app.screen, ChecksScreen) and listing(app).key == "cause rack.links@gpu:3",
        )

    drive(rack(tmp_path), act)


@pytest.mark.slow
def test_the_palette_has_the_words_a_person_would_type(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("colon", *"not be judged")(app, pilot)
        await until(pilot, lambda: "List what could not be judged" in frame(app))
        await press("enter")(app, pilot)
        await until(pilot, lambda: isinstance(app.screen, ChecksScreen) and "rack.health" in shown(app))
        await press("ctrl+p", *"rack.port-7")(app, pilot)
        await until(pilot, lambda: "Go to rack.port-7" in frame(app))
        await press("enter")(app, pilot)
        await until(pilot, lambda: isinstance(app.screen, ChecksScreen) and listing(app).key == "rack.port-7")

    drive(rack(tmp_path), act)


@pytest.mark.slow
def test_a_terminal_may_change_its_size(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        narrow = frame(app)
        await pilot.resize_terminal(140, 40)
        await pilot.pause()
        wide = frame(app)
        assert "links down" in wide and len(wide.splitlines()) == 40
        await pilot.resize_terminal(20, 5)
        await pilot.pause()
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert frame(app) == narrow

    drive(rack(tmp_path), act)


def test_the_cursor_keeps_its_place_when_its_row_goes():
    rows = [Row(name, "PASS", "", name) for name in "abcde"]
    places: list[str | None] = []

    class Rows(App[None]):
        def compose(self) -> ComposeResult:
            yield Listing(UNICODE)

    async def act() -> None:
        async with Rows().run_test() as pilot:
            listed = pilot.app.query_one(Listing)
            listed.show(rows)
            await pilot.press("j", "j")
            for kept in ("abcde", "abde", "xabe", "ab", ""):
                listed.show([Row(name, "PASS", "", name) for name in kept])
                places.append(listed.key)

    asyncio.run(act())
    assert places == ["c", "d", "e", "b", None]


@pytest.mark.slow
def test_every_key_works_while_all_probes_hang_and_leaving_ends_them(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("j", "G", "n", "r", "R", "c", "C", "p", "p", "z", "z", "enter", "escape")(app, pilot)
        await press("slash", *"driver-3", "enter")(app, pilot)
        assert shown(app) == ["hung.driver-3"]
        await press("escape", "6", "2", "4", "5", "1", "question_mark", "escape", "tab", "tab")(app, pilot)
        assert app.state is not None and len(app.state.running) == 8
        assert len(_sleeping()) == 8

    app = drive(hung(tmp_path), act, asking=8)
    assert {result.status for result in app.engine.report().results} == {Status.UNKNOWN}
    ends = time.monotonic() + 5  # they are killed; on a busy machine the kernel comes to them later
    while left := _sleeping():
        assert time.monotonic() < ends, left
        time.sleep(0.01)


def _changing(tmp_path: Path) -> Session:
    return Session(Request(("changing",), folders=(checks(tmp_path),)))


def _sleeping() -> list[int]:
    """Our own children that sleep and have not ended."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        name = status[status.index("(") + 1 : status.rindex(")")]
        state, parent = status.rpartition(")")[2].split()[:2]
        if name == "sleep" and state != "Z" and int(parent) == os.getpid():
            found.append(int(pid))
    return found


@pytest.mark.slow
def test_help_names_every_key_once_and_a_key_that_can_do_nothing_here_says_why(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        for screen in "1234567":
            await press(screen, "question_mark")(app, pilot)
            assert isinstance(app.screen, HelpScreen)
            keys = [key for command in app.screen._keys for key in command.keys.split()]
            assert len(keys) == len(set(keys)) and {"/", "z", "?", "q"} <= set(keys), screen
            words = {command.text for command in app.screen._keys}
            assert ("Turn the mouse on or off" in words) is (screen not in "27")
            await press("escape")(app, pilot)
        for screen, key, why in (
            ("7", "m", "no nodes were asked"),
            ("7", "n", "no nodes were asked"),
            ("7", "y", "no nodes were asked"),
            ("6", "n", "e on a cause opens its evidence here"),
            ("5", "o", "no check is selected"),
            ("4", "y", "no command to copy here"),
            ("3", "R", "all checks are run again"),
        ):
            app.clear_notifications()
            await press(screen, key)(app, pilot)
            assert why in said(app), (screen, key)

    drive(rack(tmp_path), act)
