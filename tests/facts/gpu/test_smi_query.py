"""The table of `nvidia-smi --query-gpu`: whatever its columns, it says of each GPU what `-q` would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import replay

from nodedoctor.facts.gpu.smi.smi import Q, SmiQ
from nodedoctor.model import Observation, Outcome, Status

COLUMNS = {
    "name": ("name", "name", st.sampled_from(["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"])),
    "temperature.gpu": ("temperature_c", "temperature.gpu", st.integers(20, 95)),
    "memory.used": ("memory_used_mib", "memory.used [MiB]", st.integers(0, 81559)),
    "utilization.gpu": ("gpu_utilization_percent", "utilization.gpu [%]", st.integers(0, 100)),
    "pcie.link.gen.current": ("pcie_generation", "pcie.link.gen.current", st.integers(1, 6)),
    "pcie.replay_counter": ("pcie_replays", "pcie.replay_counter", st.integers(0, 99_999)),
    "remapped_rows.uncorrectable": (
        "remapped_uncorrectable",
        "remapped_rows.uncorrectable",
        st.integers(0, 9),
    ),
    "ecc.errors.uncorrected.volatile.total": (
        "ecc_volatile_uncorrectable",
        "ecc.errors.uncorrected.volatile.total",
        st.integers(0, 9),
    ),
}
UNITS = {"memory.used": " MiB", "utilization.gpu": " %"}


def read(text: str) -> Any:
    return SmiQ.parse(Observation(Q, Outcome.OK, text=text, rc=0))


def table(heads: list[str], rows: list[list[object]]) -> str:
    return "".join(", ".join(map(str, row)) + "\n" for row in ([heads, *rows]))


@given(st.data(), st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, unique=True), st.integers(1, 8))
def test_every_gpu_has_the_values_of_its_row(data: Any, names: list[str], count: int):
    values = [[data.draw(COLUMNS[name][2]) for name in names] for _ in range(count)]
    rows = [
        [index, *(f"{value}{UNITS.get(name, '')}" for name, value in zip(names, row, strict=True))]
        for index, row in enumerate(values)
    ]
    gpus = read(table(["index", *(COLUMNS[name][1] for name in names)], rows)).gpus.gpus
    assert [gpu.index for gpu in gpus] == list(range(count))
    assert [[getattr(gpu, COLUMNS[name][0]) for name in names] for gpu in gpus] == values


@given(st.integers(1, 8), st.integers(1, 4), st.sampled_from(["index", "uuid", "timestamp"]))
def test_of_a_loop_the_last_row_of_each_gpu_counts(count: int, times: int, name: str):
    rows: list[list[object]] = [
        [{"index": gpu, "uuid": f"GPU-{gpu}", "timestamp": f"10:00:0{moment}"}[name], 30 + moment]
        for moment in range(times)
        for gpu in range(count)
    ]
    gpus = read(table([name, "temperature.gpu"], rows)).gpus.gpus
    assert [gpu.temperature_c for gpu in gpus] == [29 + times] * count


def test_a_lost_gpu_is_lost():
    reading = read(table(["index", "temperature.gpu"], [[0, 35], [3, "[GPU is lost]"]])).gpus
    assert [gpu.index for gpu in reading.gpus] == [0]
    assert [(gone.index, gone.error) for gone in reading.lost] == [(3, "GPU_IS_LOST")]


@pytest.mark.parametrize(("value", "reasons"), [("Active", ("hw_slowdown",)), ("Not Active", None)])
def test_one_reason_that_is_absent_does_not_clear_the_others(value: str, reasons: tuple[str, ...] | None):
    (gpu,) = read(table(["index", "clocks_event_reasons.hw_slowdown"], [[0, value]])).gpus.gpus
    assert gpu.clock_event_reasons == reasons


@given(st.text(alphabet="index,name.temperature gpu[]0123\n\"'", max_size=200))
def test_any_text_is_read(text: str):
    read(f"index, name\n{text}")
    read(text)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize(
    ("words", "status"),
    [(("No", "Yes"), "fail"), (("0", "1"), "fail"), (("false", "True"), "fail"), (("0", "4"), "unknown")],
)
@pytest.mark.parametrize("column", ["remapped_rows.pending", "remapped_rows.failure"])
def test_a_flag_is_read_in_each_spelling_and_what_is_none_is_no_denial(
    tmp_path: Path, at: int, words: tuple[str, str], status: str, column: str
):
    rows = [[gpu, 0, words[gpu == at]] for gpu in range(4)]
    text = table(["index", "remapped_rows.uncorrectable", column], rows)
    (result,) = (row for row in replay(tmp_path, {Q: text}).results if row.check == "memory.remap")
    if status == "fail":
        assert [f.subject for f in result.findings if f.status is Status.FAIL] == [f"gpu:{at}"]
    else:
        assert {finding.summary for finding in result.findings} == {
            "row remapping not reported (UNPARSABLE)",
            "no remap pending or failed on all 3 GPUs",
        }
