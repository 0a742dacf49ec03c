"""What each screen looks like, as text. NODEDOCTOR_UPDATE_FRAMES=1 writes the frames anew; read the diff."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from textual.pilot import Pilot
from tuidriver import FRAMES, after, check_frame, check_frames, drive, frame, hung, press, rack, until

from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.screens.compare import CompareScreen

SMALL, LARGE, TINY = (80, 24), (140, 40), (60, 16)


@pytest.mark.slow
def test_screens_on_a_small_terminal(tmp_path: Path):
    check_frames(
        rack(tmp_path),
        SMALL,
        ("checks-80x24", ""),
        ("read-80x24", "j j j enter"),
        ("filter-80x24", "escape slash exclamation_mark p o r t"),
        ("help-80x24", "escape escape question_mark"),
        ("topology-80x24", "escape 2"),
        ("probes-80x24", "6 j"),
        ("live-recorded-80x24", "3"),
        ("triage-nothing-80x24", "4"),
        ("compare-nothing-80x24", "5"),
    )


@pytest.mark.slow
def test_screens_on_a_large_terminal(tmp_path: Path):
    check_frames(
        rack(tmp_path),
        LARGE,
        ("checks-140x40", ""),
        ("topology-140x40", "2"),
        ("probes-140x40", "6"),
        ("unseen-140x40", "1 slash i s : u n k n enter"),
    )


@pytest.mark.parametrize("size", [TINY, pytest.param((50, 12), marks=pytest.mark.slow)])
def test_checks_on_a_tiny_terminal(tmp_path: Path, size: tuple[int, int]):
    check_frames(rack(tmp_path), size, (f"checks-{size[0]}x{size[1]}", ""))


@pytest.mark.slow
def test_without_unicode_nothing_else_is_drawn(tmp_path: Path):
    shown = after(rack(tmp_path), (), ascii=True)
    check_frame("checks-ascii-80x24", shown)
    assert shown.isascii()


@pytest.mark.slow
@pytest.mark.parametrize("size", [(SMALL,), (LARGE,)])
def test_triage(tmp_path: Path, size: tuple[int, int]):
    document = json.loads((FRAMES / "triage.json").read_text())
    shown = after(rack(tmp_path), ("j", "j", "j", "j", "j"), size, triage=document)
    check_frame(f"triage-{size[0]}x{size[1]}", shown)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(SMALL,), (LARGE,)])
def test_compare(tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    saved = _earlier(tmp_path)

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("d", *saved, "enter")(app, pilot)
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        app.clear_notifications()
        await until(pilot, lambda: "reading" not in frame(app) and "00:00 ->" in frame(app))
        check_frame(f"compare-{size[0]}x{size[1]}", frame(app))

    drive(rack(tmp_path), act, size)


@pytest.mark.slow
def test_what_changed_alike_is_one_row_of_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    saved = _earlier(tmp_path)
    document = json.loads((tmp_path / saved).read_text())
    for gpu in range(3):
        document["facts"]["topology"]["links"][f"GPU{gpu}"]["GPU7"] = "SYS"
    (tmp_path / saved).write_text(json.dumps(document))

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("5", "d", *saved, "enter")(app, pilot)
        await until(pilot, lambda: "topology.links.GPU*.GPU7" in frame(app))
        assert frame(app).count("SYS -> NV18") == 1 and "(3 values)" in frame(app)
        await press("j", "enter")(app, pilot)  # the list has the keys again
        assert "topology.links.GPU0.GPU7, topology.links.GPU1.GPU7" in frame(app)

    drive(rack(tmp_path), act, (120, 40))


@pytest.mark.slow
def test_everything_hung_is_named_with_its_seconds(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "waiting for hung-7" in frame(app))
        _, *rest = frame(app).splitlines(keepends=True)  # the name of this machine
        check_frame("hung-80x24", re.sub(r" *\d+(\.\d)? s\b", " N s", "".join(rest)))

    drive(hung(tmp_path), act, asking=8)


@pytest.mark.slow
def test_no_color_means_none_and_the_same_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    pictures = []

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        pictures.append((frame(app), app.export_screenshot()))

    drive(rack(tmp_path), act)
    ((shown, svg),) = pictures
    check_frame("checks-80x24", shown)
    styles = re.findall(r"-r\d+ { fill: (#\w+)", svg)
    channels = [tuple(int(style[at : at + 2], 16) for at in (1, 3, 5)) for style in styles]
    assert all(max(rgb) - min(rgb) < 8 for rgb in channels), styles  # greys only


def _earlier(tmp_path: Path) -> str:
    """A report of the rack before things went wrong."""
    import asyncio

    from nodedoctor.report import json as report_json

    report = asyncio.run(rack(tmp_path).diagnosis().run())
    document = report_json.document(report)
    document["started"] = "2026-11-01T00:00:00Z"
    for result in document["results"]:
        if result["check"] == "rack.links":
            result["findings"] = [{"status": "pass", "summary": "18 links up on 8 GPUs"}]
    document["facts"]["topology"]["links"]["GPU3"]["GPU0"] = "NV18"
    path = tmp_path / "earlier.json"
    path.write_text(json.dumps(document))
    return path.name
