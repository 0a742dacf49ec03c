"""The panels of the subjects: every one has its place, the sick come first, and keys walk them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.pilot import Pilot
from tuidriver import drive, frame, press, rack

from nodedoctor.demo import folder
from nodedoctor.engine.session import Request, Session
from nodedoctor.model import Status
from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.lines.panel_grid import Place, arrange, draw
from nodedoctor.tui.lines.subjects import Panel
from nodedoctor.tui.theme import ASCII, UNICODE, Glyphs
from nodedoctor.tui.widgets.listing import Listing
from nodedoctor.tui.widgets.subjects import Subjects

NODES = Path(__file__).parents[1] / "nodes"
NAMES = ("Driver", "GPUs", "NVLink", "InfiniBand", "Kernel log", "Ray/Slurm", "Other")
TEXTS = st.text("ab 測-", max_size=120)
STATUSES = (Status.FAIL, Status.WARN, Status.UNKNOWN, Status.PASS)


def demo(name: str) -> Session:
    return Session(Request(replay=Path(folder(name))))


def panel(name: str, status: Status | None = Status.PASS, count: int = 3, **more: object) -> Panel:
    counts = ((status, count),) if status else ()
    return Panel(name, name[:3].upper(), status, counts, **more)  # type: ignore[arg-type]


@st.composite
def some_panels(draw_: st.DrawFn) -> list[Panel]:
    made = []
    for name in NAMES[: draw_(st.integers(1, len(NAMES)))]:
        statuses = draw_(st.lists(st.sampled_from(STATUSES), unique=True, max_size=4))
        counts = tuple((status, draw_(st.integers(1, 30))) for status in STATUSES if status in statuses)
        worst = counts[0][0] if counts else None
        made.append(
            Panel(
                name,
                name[:4].upper(),
                worst,
                counts,
                draw_(st.integers(0, 3)),
                is_sick=worst in (Status.FAIL, Status.WARN),
                worst=draw_(TEXTS),
                blind="not read",
                command=draw_(TEXTS),
                follows=draw_(TEXTS),
                also=tuple((Status.WARN, text) for text in draw_(st.lists(TEXTS, max_size=3))),
                facts=tuple(draw_(st.lists(TEXTS, max_size=4))),
            )
        )
    return made


def lines(places: list[Place], glyphs: Glyphs = UNICODE, here: str = "") -> list[str]:
    return ["".join(text for text, _ in parts) for parts in draw(places, glyphs, here=here, focus=True)]


@given(
    some_panels(), st.integers(60, 220), st.integers(3, 60), st.booleans(), st.sampled_from([ASCII, UNICODE])
)
def test_every_panel_has_one_place_and_every_line_is_as_wide_as_the_screen(
    panels: list[Panel], width: int, height: int, ample: bool, glyphs: Glyphs
):
    places = arrange(panels, width, height, boxes=True, ample=ample)
    shown = [place.panel.name for place in places]
    assert len(set(shown)) == len(shown)
    assert {one.name for one in panels if one.is_here} <= set(shown)
    drawn = lines(places, glyphs, here=shown[0] if shown else "")
    boxes = [place for place in places if not place.flat]
    assert len(drawn) <= height or not boxes
    for place in boxes:
        assert all(cell_len(line) <= width for line in drawn[place.y : place.y + place.height])
        assert cell_len(drawn[place.y]) == cell_len(drawn[place.y + place.height - 1])


def test_the_sick_come_first_and_are_larger_and_a_small_screen_has_counts():
    panels = [
        panel("Driver", facts=("580.95.05",)),
        panel("PCIe", Status.WARN, is_sick=True, worst="x8", command="lspci"),
        panel("NVLink", Status.FAIL, is_sick=True, worst="2 links down", command="nvidia-smi"),
        panel("Ray", None, 0),
    ]
    places = arrange(panels, 100, 20, boxes=True)
    assert [place.panel.name for place in places] == ["NVLink", "PCIe", "Driver"]
    assert places[0].height > places[2].height == 3
    assert ["".join(lines(arrange(panels, 80, 2, boxes=False)))] == ["NVL 3X  PCI 3!  DRI 3  "]


@pytest.mark.slow
def test_arrows_walk_the_panels_enter_opens_one_and_escape_lists_everything():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        subjects = app.screen.query_one(Subjects)
        walked = []
        for key in ("h", "down", "right", "up", "right", "left"):
            await press(key)(app, pilot)
            walked.append(subjects.selected)
        assert walked == ["NVLink", "GPUs", "Memory", "NVLink", "Kernel log", "NVLink"]
        await press("enter")(app, pilot)
        assert app.screen.query_one(Listing).has_focus and "[NVLink]" in frame(app)
        assert "┏━ NVLink" in frame(app) and "2 fail 9 pass" in frame(app)
        await press("escape")(app, pilot)
        assert not subjects.selected and "┏" not in frame(app)

    drive(demo("nvlinks-down"), act, (140, 40))


def test_beyond_the_last_panel_is_the_list():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("h", *["down"] * 4)(app, pilot)
        assert app.screen.query_one(Listing).has_focus

    drive(demo("healthy"), act, (100, 30))


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (140, 40), (200, 60)])
def test_a_sick_subject_its_worst_finding_and_a_first_step_are_on_every_screen(size: tuple[int, int]):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        shown = frame(app)
        assert "$ nvidia-smi nvlink -s -i 3" in shown and "GPU 3 lost 2 NVLinks" in shown
        assert ("NVL 2X" in shown) is (size[0] < 100) and ("2 fail 9 pass" in shown) is (size[0] >= 100)
        await press("h")(app, pilot)
        assert app.screen.query_one(Subjects).selected == "NVLink"

    drive(demo("nvlinks-down"), act, size)


def test_what_was_only_not_seen_is_small_and_what_follows_names_its_cause():
    async def of_rails(app: NodeDoctor, pilot: Pilot[None]) -> None:
        places = app.screen.query_one(Subjects)._places
        assert [place.panel.name for place in places if place.panel.is_sick] == ["InfiniBand"]

    async def of_links(app: NodeDoctor, pilot: Pilot[None]) -> None:
        assert "follows from NVLink" in frame(app)

    drive(Session(Request(replay=NODES / "ib-rails-down-init-narrow")), of_rails, (140, 40))
    drive(demo("nvlinks-down"), of_links, (140, 40))


@pytest.mark.slow
def test_panels_are_drawn_without_unicode_too(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        shown = frame(app)
        assert shown.isascii() and "| $ " in shown

    drive(rack(tmp_path), act, (140, 40), ascii=True)


def test_a_large_screen_has_the_cards_of_the_next_causes_and_the_focused_panel_is_marked():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        shown = frame(app)
        assert app.state is not None
        cards = shown[shown.index("owner  ") :]
        second = app.state.report["causes"][1]["headline"]
        assert cards.index("verify") < cards.index(second) < cards.rindex("owner  ")
        subjects = app.screen.query_one(Subjects)
        await press("h")(app, pilot)
        assert any("reverse" in style for line in subjects._lines for _, style in line)
        await press("enter")(app, pilot)
        assert not any("reverse" in style for line in subjects._lines for _, style in line)

    drive(Session(Request(replay=NODES / "ib-rails-down-init-narrow")), act, (200, 60))
