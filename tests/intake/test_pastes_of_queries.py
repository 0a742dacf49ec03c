"""Tables of `nvidia-smi --query-gpu`: rows of one query are peers, with their names or without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import alarms, replay

from nodedoctor.facts.gpu.smi.smi import Q
from nodedoctor.model import Status

NAMES = ["", "NVIDIA H100 80GB HBM3"]


def query(columns: str, row: Callable[[int], str], *, name: str = "", gpus: int = 8) -> str:
    """A row for each GPU, with its name where one is given."""
    head = "index, name, " if name else "index, "
    rows = (f"{gpu}, {f'{name}, ' if name else ''}{row(gpu)}\n" for gpu in range(gpus))
    return f"{head}{columns}\n{''.join(rows)}"


def summaries(tmp_path: Path, text: str, check: str) -> list[str]:
    """All that a check says, in order."""
    results = replay(tmp_path, {Q: text}).results
    return [f"{f.subject} {f.summary}" for one in results if one.check == check for f in one.findings]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("odd", [0, 5, 7])
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_fewer_lanes_than_the_other_rows_fail(tmp_path: Path, name: str, odd: int, lanes: int):
    text = query(
        "pcie.link.width.current, pcie.link.width.max",
        lambda gpu: f"{lanes if gpu == odd else 16}, 16",
        name=name,
    )
    (alarm,) = alarms(replay(tmp_path, {Q: text}))
    assert alarm.startswith(f"FAIL pcie.width@gpu:{odd}: x{lanes} of x16")


@pytest.mark.parametrize(
    ("widths", "expected"),
    [
        (("16, 16",) * 4, ["4 GPUs at the expected width"]),
        (("8, 16",) * 4, []),
        (("8, 8", "16, 16", "16, 16", "16, 16"), ["4 GPUs at the expected width"]),
        (("16, 16", "8, 16"), ["1 GPU at the expected width"]),
    ],
)
def test_slots_that_differ_by_design_are_noted_and_not_counted_as_expected(
    tmp_path: Path, widths: tuple[str, ...], expected: list[str]
):
    text = query("pcie.link.width.current, pcie.link.width.max", lambda gpu: widths[gpu], gpus=len(widths))
    assert alarms(replay(tmp_path / "alarms", {Q: text})) == []
    lines = summaries(tmp_path / "lines", text, "pcie.width")
    assert [line.strip() for line in lines if "expected" in line] == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("gpus", "sick"), [(8, True), (7, True), (4, False)])
def test_less_memory_than_seven_others_is_a_warning(tmp_path: Path, name: str, gpus: int, sick: bool):
    text = query(
        "memory.total [MiB]", lambda gpu: f"{40960 if gpu == 1 else 81559} MiB", name=name, gpus=gpus
    )
    warned = alarms(replay(tmp_path / "alarms", {Q: text}))
    assert bool(warned) is (sick or bool(name))
    lines = summaries(tmp_path / "lines", text, "gpu.identity")
    assert not any(f"{gpus} GPUs alike" in line for line in lines)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "columns",
    ["power.limit [W], power.default_limit [W]", "enforced.power.limit [W], power.default_limit [W]"],
)
def test_each_column_of_the_power_limit_is_judged(tmp_path: Path, name: str, columns: str):
    text = query(columns, lambda gpu: f"{350 if gpu == 4 else 700}.00 W, 700.00 W", name=name)
    (alarm,) = alarms(replay(tmp_path, {Q: text}))
    assert alarm == "WARN power.limit@gpu:4: power limit 350 W, below the default of 700 W"


def test_the_enforced_limit_counts_where_both_are_shown(tmp_path: Path):
    text = query("power.limit, enforced.power.limit, power.default_limit", lambda _: "400 W, 700 W, 700 W")
    assert alarms(replay(tmp_path, {Q: text})) == []


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("enabled", [0, 1, 2, 8])
def test_mig_on_one_of_many_is_a_warning(tmp_path: Path, name: str, gpus: int, enabled: int):
    state = ("Disabled", "Enabled")
    text = query("mig.mode.current", lambda gpu: state[gpu < enabled], name=name, gpus=gpus)
    warned = [alarm for alarm in alarms(replay(tmp_path, {Q: text})) if "MIG" in alarm]
    assert bool(warned) is (enabled == 1 and gpus >= 4)


LIMITS = {
    "pcie.link.gen.max": "4",
    "pcie.link.gen.gpumax, pcie.link.gen.hostmax": "5, 4",
    "pcie.link.gen.gpumax": "4",
    "pstate": "P0",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("columns", sorted(LIMITS))
@pytest.mark.parametrize(("used", "status"), [(4, ""), (1, "FAIL"), (2, "FAIL"), (3, "WARN")])
def test_a_loaded_link_below_what_it_or_its_peers_can_do_is_slow(
    tmp_path: Path, columns: str, used: int, status: str
):
    text = query(
        f"utilization.gpu [%], pcie.link.gen.current, {columns}",
        lambda gpu: f"97 %, {used if gpu == 3 else 4}, {LIMITS[columns]}",
        name=NAMES[1],
    )
    alarm = f"{status} pcie.speed@gpu:3: PCIe generation {used} of 4 under load"
    assert alarms(replay(tmp_path, {Q: text})) == ([alarm] if status else [])


@pytest.mark.parametrize("columns", ["pstate", "pcie.link.gen.gpumax"])
def test_links_of_unknown_speed_are_not_as_expected(tmp_path: Path, columns: str):
    text = query(f"pcie.link.gen.current, {columns}", lambda _: f"1, {LIMITS[columns]}", gpus=4)
    results = replay(tmp_path, {Q: text}).results
    (finding,) = [f for one in results if one.check == "pcie.speed" for f in one.findings]
    assert finding.status is Status.UNKNOWN
