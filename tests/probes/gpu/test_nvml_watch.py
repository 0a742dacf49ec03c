"""What the NVML child says while watching: rates, changes, GPUs that get lost meanwhile, the end."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.children.programs import child
from nodedoctor.facts.gpu.nvml.watch import LoadSample, sample_of

Fake = Callable[..., dict[str, str]]


@contextmanager
def watching(env: dict[str, str], interval: str = "0.02") -> Iterator[subprocess.Popen[str]]:
    argv = child("gpu/nvml", "--watch", interval, packages=True)
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env={**os.environ, **env}, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def samples(process: subprocess.Popen[str]) -> Iterator[LoadSample]:
    assert process.stdout is not None
    before = None
    for line in process.stdout:
        before = sample_of(line, before)
        assert before is not None, line
        yield before


def test_changes_are_seen_by_open_handles_and_counters_become_rates(fake_nvml: Fake):
    counters = {"nvlink_tx_kib": 0, "pcie_rx_bytes": 0}
    with watching(fake_nvml({"gpu1.processes": "42:300", **counters})) as process:
        lines = samples(process)
        first = next(lines)
        assert [load.gpu.index for load in first.loads] == list(range(8))
        load = first.loads[1]
        assert (load.gpu.gpu_utilization_percent, load.gpu.memory_used_mib, load.gpu.temperature_c) == (
            0,
            1,
            34,
        )
        assert (load.gpu.power_draw_w, load.gpu.clock_event_reasons) == (71.97, ("gpu_idle",))
        assert load.gpu.processes is not None and [one.pid for one in load.gpu.processes] == [42]
        assert (load.nvlink_tx_mib_s, load.pcie_rx_mib_s) == (None, None)
        fake_nvml({"gpu1.utilization": 99, "nvlink_tx_kib": 1 << 30, "pcie_rx_bytes": 1 << 40})
        busy = next(one for one in lines if one.loads[1].gpu.gpu_utilization_percent == 99)
        assert busy.loads[1].counters["nvlink_tx_kib"] == 1 << 30
        assert busy.time_seconds is not None and first.time_seconds is not None
        assert busy.time_seconds > first.time_seconds
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def test_rates_are_growth_over_time():
    def line(time: float, tx: int, pcie: int) -> str:
        values = {"nvlink_tx_kib": tx, "pcie_tx_bytes": pcie}
        return json.dumps({"time_seconds": time, "gpus": [{"index": 0, "values": values, "errors": {}}]})

    first = sample_of(line(10.0, 0, 1 << 30))
    second = sample_of(line(12.0, 4096, (1 << 30) + (6 << 20)), first)
    assert second is not None
    assert (second.loads[0].nvlink_tx_mib_s, second.loads[0].pcie_tx_mib_s) == (2.0, 3.0)
    wrapped = sample_of(line(14.0, 0, 5), second)
    assert wrapped is not None
    assert (wrapped.loads[0].nvlink_tx_mib_s, wrapped.loads[0].pcie_tx_mib_s) == (None, None)


def test_without_pcie_counters_the_sampled_rate_is_told(fake_nvml: Fake):
    told = {"pcie_tx_bytes": "-", "pcie_rx_bytes": "-", "pcie_tx_kb_s": 2048}
    with watching(fake_nvml({"gpus": 1, **told})) as process:
        load = next(samples(process)).loads[0]
        assert load.pcie_tx_mib_s == 2.0 and load.pcie_rx_mib_s is not None


def test_a_gpu_that_cannot_be_opened_is_in_every_line_and_one_that_gets_lost_says_so(fake_nvml: Fake):
    with watching(fake_nvml({"gpu3.handle_error": 15})) as process:
        lines = samples(process)
        first = next(lines)
        assert [(gone.index, gone.error) for gone in first.lost] == [(3, "GPU_IS_LOST")]
        assert len(first.loads) == 7
        fake_nvml({"gpu5.error.*": 15})
        later = next(one for one in lines if one.loads[4].gpu.errors.get("temperature_c") == "GPU_IS_LOST")
        assert later.loads[4].gpu.index == 5 and later.loads[4].gpu.temperature_c is None
        assert later.loads[3].gpu.temperature_c == 34


def test_a_library_that_does_not_start_is_one_line(fake_nvml: Fake):
    with watching(fake_nvml({"init_error": 9})) as process:
        (only,) = samples(process)
        assert only.init_error is not None and only.init_error.name == "DRIVER_NOT_LOADED"
        assert process.wait(60) == 0


def test_a_call_that_hangs_is_named(fake_nvml: Fake):
    with watching(fake_nvml({"gpu1.hang": "utilization"})) as process:
        assert next(samples(process)).waiting == "nvmlDeviceGetUtilizationRates"


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_line_is_a_sample_or_none(line: str):
    assert isinstance(sample_of(line), LoadSample | None)


@pytest.mark.parametrize("gpus", ["[1]", '[{"index": 0, "values": 1}]', '[{"index": "x"}]', "{}", "null"])
def test_damaged_gpus_are_left_out(gpus: str):
    sample = sample_of(f'{{"time_seconds": 1.0, "gpus": {gpus}}}')
    assert sample is not None
