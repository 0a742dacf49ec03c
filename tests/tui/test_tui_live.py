"""The Live screen: who is late, what the host does, on a fake driver and on recorded nodes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.pilot import Pilot
from tuidriver import checks, drive, frame, press, until

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.engine.session import Request, Session
from nodedoctor.facts.gpu.gpu import Gpu, LostGpu
from nodedoctor.facts.gpu.nvml.watch import GpuLoad
from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.lines import hardware, load
from nodedoctor.tui.process.kernel import kernel_lines
from nodedoctor.tui.screens.live import _ranks
from nodedoctor.tui.theme import ASCII, UNICODE, Para
from nodedoctor.tui.widgets.listing import Listing

FACT_KEYS = ("gpus", "lost", "index", "nvlinks", "active", "bus_id", "ib", "ports", "hca", "rails", "machine")
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


@pytest.mark.parametrize("width", [60, 80, 99, 140])
@pytest.mark.parametrize("samples", [0, 3])
def test_a_row_lines_up_with_its_columns_and_fits(width: int, samples: int):
    (one,) = gpus(98)
    history = load.History()
    for _ in range(samples):
        history.add([one])
    for sample in (one, replace(one, nvlink_rx_mib_s=1000, pcie_tx_mib_s=9)):
        shown = load.layout([sample], width, history)
        heads = "".join(text for text, _ in load.heads(shown))
        row = "".join(text for text, _ in load.row(sample, False, history, shown, UNICODE).parts)
        assert len(heads) == len(row) + 7 <= width  # the mark and the name are before it


def test_a_bar_is_beside_its_number_and_what_nobody_reports_has_no_column():
    (one,) = gpus(50)
    shown = load.layout([one], 140, load.History())
    heads = "".join(text for text, _ in load.heads(shown))
    assert heads.split() == ["util", "memory", "GiB", "temp", "power", "W"]
    parts = load.row(one, False, load.History(), shown, UNICODE).parts
    texts = [text.strip() for text, _ in parts if text.strip()]
    assert texts[0] == "50%" and texts[1].startswith("\u2595") and texts[2] == "68.4/79.6"
    assert not any("yellow" in style for _, style in parts)
    busy = replace(one, gpu=replace(one.gpu, clock_event_reasons=("sw_power_cap",)), nvlink_rx_mib_s=1.0)
    heads = "".join(text for text, _ in load.heads(load.layout([one, busy], 140, load.History())))
    assert "NVLink GB/s" in heads and "clocks" in heads and "PCIe" not in heads


def test_a_gpu_that_says_nothing_shows_it():
    bare = GpuLoad(Gpu(0, errors={"power_draw_w": "GPU_IS_LOST", "bar1_used_mib": "NOT_SUPPORTED"}))
    shown = load.layout([bare], 80, load.History())
    row = "".join(text for text, _ in load.row(bare, False, load.History(), shown, UNICODE).parts)
    assert row.split() == ["-"] * 4
    told = [para.text for para in load.about(bare, {})]
    assert "power_draw_w: GPU_IS_LOST" in told and not any("NOT_SUPPORTED" in text for text in told)


def test_without_a_driver_it_says_at_once_that_no_gpu_can_be_read(tmp_path: Path):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("3")(app, pilot)
        await until(pilot, lambda: "GPU can be read here" in frame(app) or "no NVIDIA GPU in" in frame(app))
        assert "waiting for the first reading" not in frame(app)

    drive(Session(Request(("changing",), folders=(checks(tmp_path),))), act)


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


@pytest.mark.slow
def test_a_kernel_log_that_is_denied_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("journalctl", "dmesg"):
        denied = tmp_path / name
        denied.write_text("#!/bin/sh\necho 'not permitted' >&2\nexit 1\n")
        denied.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    async def all_lines() -> list[str]:
        return [line async for line in kernel_lines()]

    assert asyncio.run(all_lines()) == ["the kernel log cannot be followed: not permitted"]


@pytest.mark.slow
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


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_a_gpu_that_fell_off_the_bus_keeps_its_row(size: tuple[int, int]):
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("3")(app, pilot)
        listing = app.screen.query_one(Listing)
        assert [row.word for row in listing.rows] == [f"GPU{number}" for number in range(8)]
        assert listing.key == "5" and "lost  has fallen off the bus" in frame(app)
        await press("k")(app, pilot)
        assert "NVIDIA H100" in frame(app)

    node = Path(__file__).parents[1] / "nodes" / "h100-off-the-bus"
    drive(Session(Request(("driver",), replay=node)), act, size)


def test_a_gpu_that_is_lost_while_it_is_watched_is_among_the_lost():
    gone = GpuLoad(Gpu(3, errors={"power_draw_w": "GPU_IS_LOST", "gpu_utilization_percent": "GPU_IS_LOST"}))
    (lost,) = load.newly_lost([*gpus(100, 100), gone])
    row = hardware.lost_row(lost)
    assert (row.key, row.word) == ("3", "GPU3") and "lost" in row.parts[0][0]
    silent = hardware.lost_row(LostGpu(4, "0000:9a:00.0", "NO_PERMISSION"))
    assert "lost" not in "".join(text for text, _ in silent.parts) and "NO_PERMISSION" in silent.parts[1][0]


def shown(paras: Iterable[Para]) -> list[str]:
    return ["".join(text for text, _ in para.parts) for para in paras if para.parts]


@pytest.mark.parametrize("width", [60, 200])
def test_the_links_of_every_gpu_and_port_of_a_recording_are_listed_and_the_odd_one_is_marked(width: int):
    """Adapters that are no rails are of other kinds on healthy nodes: they are listed and not compared."""
    links = [{"link": number, "active": True} for number in range(18)]
    told = [
        {"index": i, "bus_id": f"0000:{i}a:00.0", "nvlinks": links, "pcie_generation": 5} for i in range(8)
    ]
    told[3] = {**told[3], "nvlinks": [*links[:16], {"link": 16, "active": False}, {"link": 17}]}
    rates = {"mlx5_0": 400, "mlx5_1": 400, "mlx5_2": 200, "mlx5_3": 400, "mlx5_9": 25}
    ports = [{"hca": name, "number": 1, "state": "ACTIVE", "rate_gbps": rate} for name, rate in rates.items()]
    facts = {"gpus": {"gpus": told}, "ib": {"ports": ports},
             "rails": {"ports": [f"mlx5_{number}/1" for number in range(4)]}}  # fmt: skip
    lines = shown(hardware.page(facts, width))
    assert len(lines) == 2 + 8 + 5 and all(len(line) <= width for line in lines)
    assert [line.split()[0] for line in lines if "<" in line] == ["GPU3", "mlx5_2/1"]
    assert "16 of 18<" in lines[4] and "200 Gb/s<" in lines[12]


@pytest.mark.parametrize("width", [60, 110, 200])
@pytest.mark.parametrize("which", [0, 5, 7])
def test_a_gpu_that_is_not_read_has_its_place_in_the_table(which: int, width: int):
    links = [{"link": number, "active": True} for number in range(18)]
    same = {"nvlinks": links, "pcie_generation": 5, "pcie_width": 16}
    told = [{"index": i, "bus_id": f"0000:{i}a:00.0", **same} for i in range(8) if i != which]
    for error, word in ((hardware.IS_LOST, "lost<"), ("NO_PERMISSION", "unread<")):
        facts = {"gpus": {"gpus": told, "lost": [{"index": which, "bus_id": "0000:ff:00.0", "error": error}]}}
        lines = shown(hardware.page(facts, width))
        assert [line.split()[0] for line in lines[1:]] == [f"GPU{number}" for number in range(8)]
        assert [line for line in lines if "<" in line] == [lines[1 + which]]
        assert word in lines[1 + which] and "0000:ff:00.0" in lines[1 + which]
    only_lost = {"gpus": {"gpus": [], "lost": [{"index": which, "error": hardware.IS_LOST}]}}
    assert "lost<" in shown(hardware.page(only_lost, width))[1]


@given(facts=st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FACT_KEYS), inner, max_size=4)
), max_leaves=20), width=st.integers(0, 120))  # fmt: skip
def test_facts_of_any_shape_make_a_page(facts: Any, width: int):
    facts = facts if isinstance(facts, dict) else {"gpus": facts}
    assert all(cell_len(line) <= max(width, 0) for line in shown(hardware.page(facts, width)))
    hardware.lost_gpus(facts)


def test_a_recorded_node_is_not_this_machine():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("3")(app, pilot)
        shown = frame(app)
        assert "a recorded node: one reading" in shown
        assert "69.6/79.6" in shown and "cpu " not in shown

    drive(Session(Request(("driver",), replay=DEMO / "raylet-1024-files")), act)
