"""The Live screen: who is late, what the host does, on a fake driver and on recorded nodes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from tuidriver import checks, drive, frame, press, until

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.engine.session import Request, Session
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.nvml.watch import GpuLoad
from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.lines import load
from nodedoctor.tui.look import ASCII, UNICODE
from nodedoctor.tui.process.kernel import kernel_lines
from nodedoctor.tui.screens.live import _ranks

DEMO = Path(__file__).parents[2] / "nodedoctor" / "demo"


def test_who_uses_a_gpu_is_known_by_its_rank():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        assert _ranks(app.state)[21733] == "rank 3 train.py"

    node = Path(__file__).parents[1] / "nodes" / "h100-driver-hangs"
    drive(Session(Request(("driver",), replay=node)), act)


def gpus(*utilisation: int | None, watts: float = 180, used: int = 70000) -> list[GpuLoad]:
    return [
        GpuLoad(
            Gpu(
                index,
                gpu_utilization_percent=percent,
                memory_used_mib=used,
                memory_total_mib=81559,
                power_draw_w=watts,
                power_limit_w=700,
            )
        )
        for index, percent in enumerate(utilisation)
    ]


@pytest.mark.parametrize(
    ("loads", "late"),
    [
        (gpus(100, 100, 100, 0), {3}),
        (gpus(99, 3, 100, 98), {1}),
        (gpus(0, 100), {0}),
        (gpus(0, 0, 100, 100), {0, 1}),
        (gpus(0, 0, 0, 100), set()),  # most are idle: nobody is waited for
        (gpus(100, 100, 50, 0), set()),  # one works at its own pace: not the picture of a wait
        (gpus(100, 100, 100), set()),
        (gpus(0, 0, 0, 0), set()),
        (gpus(0), set()),
        (gpus(100, 0, used=3), set()),  # nobody uses them
        ([], set()),
    ],
)
def test_the_straggler(loads: list[GpuLoad], late: set[int]):
    assert load.stragglers(loads) == late


def test_low_power_is_the_picture_of_a_hang_and_high_power_is_not():
    assert "GPU3 idle, 3 others at 100% with low power" in load.waiting_words(gpus(100, 100, 100, 0))
    assert "and working" in load.waiting_words(gpus(100, 100, 100, 0, watts=650))
    assert load.waiting_words(gpus(100, 100)) == ""


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_a_sparkline_is_as_wide_as_asked_and_says_where_nothing_was_said(glyphs: load.Glyphs):
    history = load.History()
    for percent in (0, 50, None, 100):
        history.add(gpus(percent))
    line = history.line(0, 10, glyphs)
    assert len(line) == 10 and line[-2] == "-" and line[-1] == glyphs.ramp[-1] and line[-4] == glyphs.ramp[0]
    assert history.line(7, 3, glyphs) == "   "


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_row_lines_up_with_its_columns(width: int):
    (one,) = gpus(98)
    columns = "".join(text for text, _ in load.columns(width, load.History()))
    row = "".join(text for text, _ in load.row(one, False, load.History(), width, UNICODE).parts)
    who = len("rank, pid") if width >= load.WIDEST else 0  # nobody uses this one
    assert len(columns) == len(row) + 7 + who  # the mark and the name stand before it


def test_a_gpu_that_says_nothing_shows_it():
    bare = GpuLoad(Gpu(0, errors={"power_draw_w": "GPU_IS_LOST", "bar1_used_mib": "NOT_SUPPORTED"}))
    row = "".join(text for text, _ in load.row(bare, False, load.History(), 80, UNICODE).parts)
    assert row.split() == ["-"] * 5
    told = [para.text for para in load.about(bare, {})]
    assert "power_draw_w: GPU_IS_LOST" in told and not any("NOT_SUPPORTED" in text for text in told)


def test_the_host_child_says_rates_and_ends_with_its_reader(tmp_path: Path):
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "stat").write_text("cpu 100 0 100 700 100 0 0 0 0 0\nprocs_blocked 3\n")
    (proc / "meminfo").write_text("MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n")
    argv = child("host/host_watch", "0.01", "--root", str(tmp_path))
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as running:
        assert running.stdout is not None and running.stdin is not None
        first = json.loads(running.stdout.readline())
        assert (first["memory_total_gib"], first["memory_available_gib"], first["blocked"]) == (1.0, 0.5, 3)
        assert "cpu_percent" not in first  # one look gives no rate
        (proc / "fresh").write_text("cpu 150 0 150 790 110 0 0 0 0 0\nprocs_blocked 0\n")
        os.replace(proc / "fresh", proc / "stat")
        said = next(said for said in map(json.loads, running.stdout) if "cpu_percent" in said)
        assert (said["cpu_percent"], said["iowait_percent"]) == (50.0, 5.0)
        running.stdin.close()
        assert running.wait(60) == 0


def test_following_yields_lines_and_kills_what_is_left():
    async def first_lines() -> list[str]:
        script = "echo one; printf 'tw'; printf 'o\\n'; echo \xff; exec sleep 600"
        lines = child_process.follow(Command(("sh", "-c", script)))
        found = [await anext(lines) for _ in range(3)]
        await lines.aclose()  # type: ignore[attr-defined]
        return found

    assert asyncio.run(first_lines()) == ["one", "two", "\xff"]

    async def all_lines() -> list[str]:
        return [line async for line in child_process.follow(Command(("sh", "-c", "echo one; exit 3")))]

    assert asyncio.run(all_lines()) == ["one"]


def test_the_kernel_log_is_followed_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    follower = tmp_path / "journalctl"
    follower.write_text("#!/bin/sh\necho 'Xid [/] 79'\nexec sleep 600\n")
    follower.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    async def first() -> str:
        lines = kernel_lines()
        found = await anext(lines)
        await lines.aclose()  # type: ignore[attr-defined]
        return found

    assert asyncio.run(first()) == "Xid [/] 79"


def test_a_kernel_log_that_is_denied_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("journalctl", "dmesg"):
        denied = tmp_path / name
        denied.write_text("#!/bin/sh\necho 'not permitted' >&2\nexit 1\n")
        denied.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    async def all_lines() -> list[str]:
        return [line async for line in kernel_lines()]

    assert asyncio.run(all_lines()) == ["the kernel log cannot be followed: not permitted"]


def test_the_screen_marks_the_straggler(
    tmp_path: Path, fake_nvml: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
):
    busy = {"utilization": 100, "power_draw": 180, "memory_used_mib": 70000}
    env = fake_nvml({**busy, "gpu3.utilization": 0, "gpu3.processes": "4242:70000"})
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("3")(app, pilot)
        await until(pilot, lambda: "GPU3 idle, 7 others at 100% with low power" in frame(app))
        assert [row.word for row in app.screen.query_one("#list").rows] == [f"GPU{n}" for n in range(8)]  # type: ignore[attr-defined]
        assert app.screen.query_one("#list").key == "3"  # type: ignore[attr-defined]
        await until(pilot, lambda: "pid 4242" in frame(app) and "pressure" in frame(app))

    drive(Session(Request(("changing",), folders=(checks(tmp_path),))), act)


def test_a_recorded_node_is_not_this_machine():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("3")(app, pilot)
        shown = frame(app)
        assert "a recorded node: one reading" in shown
        assert "69.6/79.6" in shown and "cpu " not in shown

    drive(Session(Request(("driver",), replay=DEMO / "raylet-1024-files")), act)
