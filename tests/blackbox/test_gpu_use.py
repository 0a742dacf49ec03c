"""What GPUs do while a job hangs or runs slowly, asked of NVML by our own child, and what is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from fakes import build_nvml, nvml_env, write_config

from nodedoctor.blackbox import gpus
from nodedoctor.triage.live.examine import judge_live
from nodedoctor.triage.live.gpu_use import GpuUse, compare
from nodedoctor.triage.live.running_job import LiveJob, RankProcess
from nodedoctor.triage.model import Verdict

COUNT = 4
GIB = 1 << 30
WAITS = {"utilization": 100, "power_draw": 118, "power_limit": 700}
TRAINS = {"utilization": 100, "power_draw": 640, "power_limit": 700}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml"))


def asked(
    library: Path,
    folder: Path,
    patch: pytest.MonkeyPatch,
    values: Mapping[str, object],
    moved: Mapping[int, int] | None = None,
) -> dict[int, GpuUse]:
    """What is read of GPUs that are used by the processes 100, 101 ..., and move so many bytes a second."""
    used = {f"gpu{index}.processes": f"{100 + index}:70000" for index in range(COUNT)}
    config = folder / "nvml.conf"

    def tell(seconds: float) -> None:
        bytes_moved = {
            f"gpu{index}.{name}": int(seconds * rate) // (1024 if name.endswith("kib") else 1)
            for index, rate in (moved or {}).items()
            for name in ("nvlink_tx_kib", "nvlink_rx_kib", "pcie_tx_bytes", "pcie_rx_bytes")
        }
        write_config(config, {"gpus": COUNT, **used, **values, **bytes_moved})

    async def run() -> dict[int, GpuUse]:
        asking = asyncio.ensure_future(gpus.ask(2.0))
        begun = asyncio.get_running_loop().time()
        while not asking.done():
            tell(asyncio.get_running_loop().time() - begun)
            await asyncio.wait({asking}, timeout=0.1)
        return await asking

    tell(0)
    for name, value in nvml_env(library, config).items():
        patch.setenv(name, value)
    return asyncio.run(run())


def verdict(uses: Mapping[int, GpuUse], **of_rank_2: object) -> Verdict:
    """On ranks whose stacks cannot be read: the kernel has all of them in one place."""
    states = ("S", "S")
    processes = [
        RankProcess(100 + n, n, COUNT, COUNT, states, "futex", gpu=uses.get(100 + n)) for n in range(COUNT)
    ]
    processes[2] = RankProcess(102, 2, COUNT, COUNT, states, "futex", gpu=uses.get(102), **of_rank_2)  # type: ignore[arg-type]
    return judge_live(LiveJob("gpu-7", tuple(processes))).verdict


@pytest.mark.slow
def test_the_rank_whose_gpu_is_idle_while_all_others_wait(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses = asked(library, tmp_path, monkeypatch, WAITS | {"gpu2.utilization": 0, "gpu2.power_draw": 74})
    assert {pid: use.only_waits for pid, use in uses.items()} == {100: True, 101: True, 102: False, 103: True}
    found = verdict(uses)
    assert [who.rank for who in found.culprits] == [2]
    assert found.confidence == "medium"
    assert "GPU 2 0 % busy at 74 of 700 W" in found.headline
    assert "3 ranks wait for it in a collective's kernel" in found.headline
    assert [standing.doing for standing in found.standings if 0 in standing.ranks] == [
        "waiting in a collective's kernel on its GPU"
    ]
    working = verdict(uses, ticks=150)
    assert working.outcome == "undetermined", "it may be at work on something else, and come yet"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "moved"),
    [
        (TRAINS, dict.fromkeys(range(COUNT), 40 * GIB)),
        (TRAINS | {"gpu2.utilization": 0}, dict.fromkeys((0, 1, 3), 40 * GIB)),
        (WAITS | {"gpu2.utilization": 0}, dict.fromkeys((0, 1, 3), GIB)),  # data passes: they do not wait
        (WAITS, {}),  # all wait: for a rank of another node, perhaps
        (WAITS | {"gpu1.utilization": 0, "gpu2.utilization": 0}, {}),
        (WAITS | {"gpu2.utilization": 0, "gpu1.utilization": 60}, {}),
        (WAITS | {"gpu2.utilization": 0, "gpu1.power_draw": "-"}, {}),
        (WAITS | {"gpu2.utilization": 0, "gpu1.processes": "-"}, {}),
        ({"utilization": 0, "power_draw": 72}, {}),
    ],
    ids=[
        "trains",
        "idle-of-busy",
        "traffic",
        "all-wait",
        "two-idle",
        "one-works",
        "no-power",
        "no-user",
        "idle",
    ],
)
def test_gpus_alone_name_nobody_else(
    values: Mapping[str, object],
    moved: Mapping[int, int],
    library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = verdict(asked(library, tmp_path, monkeypatch, values, moved))
    assert found.outcome != "failure"
    assert found.culprits == ()


@pytest.mark.slow
def test_a_slow_clock_stands_beside_its_peers(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"clock_sm": 1980, "gpu2.clock_sm": 1410, "reasons": 0, "gpu2.reasons": 0x20}
    uses = asked(library, tmp_path, monkeypatch, TRAINS | slow)
    peers = [uses[pid] for pid in (100, 101, 103)]
    assert compare(uses[102], peers) == (
        "its GPU 2 runs at 1410 MHz, its peers at 1980 MHz (sw thermal slowdown)"
    )
    assert all(compare(peer, [use for use in uses.values() if use != peer]) == "" for peer in peers)
    assert compare(uses[102], peers[:1]) == compare(uses[102], [*peers, None]) == compare(None, peers) == ""


@pytest.mark.parametrize("clocks", [(1980, 1980, 1845), (1700, 1560, 1400), (1980, 1410, 1700)])
def test_clocks_within_their_spread_are_not_told(clocks: tuple[float, float, float]) -> None:
    one, *peers = (GpuUse(index, 100, 600, 700, clock) for index, clock in enumerate(clocks))
    assert compare(one, peers) == ""
    assert compare(peers[1], [one, peers[0]]) == ""
