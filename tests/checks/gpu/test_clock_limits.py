"""What may be stated of clocks: a lock has no field, only clocks under load and settings show it."""

from __future__ import annotations

from typing import Any

import pytest
from asking import brief, judge
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus

BUSY: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "pstate": 0,
    "gpu_utilization_percent": 100,
    "clock_sm_mhz": 1980,
    "clock_max_sm_mhz": 1980,
    "clock_max_graphics_mhz": 1980,
    "power_draw_w": 560.0,
    "power_limit_w": 700.0,
    "temperature_c": 56,
}
SETTING = ("applications_clocks_setting",)


def shown(*changes: dict[str, Any]) -> Gpus:
    gpus = tuple(Gpu(index, **{**BUSY, **change}) for index, change in enumerate(changes))
    return Gpus("nvidia-smi-q", counted=len(gpus), gpus=gpus)


@pytest.mark.parametrize(
    ("change", "limits"),
    [
        ({}, "unknown"),  # neither a setting nor a reason is shown
        ({"clock_app_graphics_mhz": 1980}, "pass"),
        ({"clock_event_reasons": ()}, "pass"),
        ({"clock_event_reasons": ("sw_power_cap",)}, "pass"),
        ({"clock_app_graphics_mhz": 1980, "clock_sm_mhz": 1095}, "note"),
        ({"clock_event_reasons": SETTING, "clock_sm_mhz": 1095}, "warn"),
        ({"clock_event_reasons": SETTING, "clock_sm_mhz": 1095, "gpu_utilization_percent": None}, "warn"),
        ({"clock_event_reasons": SETTING, "gpu_utilization_percent": None}, "note"),
        ({"clock_event_reasons": ("gpu_idle",), "clock_sm_mhz": 345, "gpu_utilization_percent": 0}, "pass"),
        ({"clock_app_graphics_mhz": 1095, "clock_default_app_graphics_mhz": 1095}, "pass"),
        ({"clock_app_graphics_mhz": 1095}, "note"),
    ],
)
def test_no_lowered_limits_are_stated_only_where_something_shows_it(change: dict[str, Any], limits: str):
    assert [status for status, _ in brief(judge("clock.limits", shown(change)))] == [limits]


CAPPED: dict[str, Any] = {"clock_sm_mhz": 1095, "power_draw_w": 298.0, "temperature_c": 45}


@given(
    st.integers(1, 8),
    st.sampled_from([
        ({}, True),
        ({"clock_event_reasons": ()}, True),
        ({"clock_event_reasons": ("sw_power_cap",)}, False),
        ({"power_draw_w": 690.0}, False),
        ({"temperature_c": 86}, False),
        ({"power_limit_w": None}, False),
        ({"gpu_utilization_percent": 60}, False),
        ({"pstate": 8, "gpu_utilization_percent": 0}, False),
        ({"clock_default_app_graphics_mhz": 1095}, False),
    ]),
)  # fmt: skip
def test_clocks_far_below_their_maximum_without_power_or_heat_are_locked(
    count: int, case: tuple[dict[str, Any], bool]
):
    """All GPUs of a node are as slow as each other, so comparing them shows nothing."""
    change, is_capped = case
    statuses = [status for status, _ in brief(judge("clock.outlier", shown(*[{**CAPPED, **change}] * count)))]
    assert ("warn" in statuses) is is_capped


@pytest.mark.parametrize(
    ("change", "command"), [(CAPPED, "-rgc"), ({"clock_sm_mhz": 1095, "power_draw_w": 690.0}, "-q -d")]
)
def test_a_slow_gpu_with_reserve_is_unlocked_before_it_is_replaced(change: dict[str, Any], command: str):
    found = judge("clock.outlier", shown({}, {}, {}, change))
    (finding,) = [finding for finding in found if finding.fix]
    assert finding.subject == "gpu:3"
    assert finding.fix is not None
    assert command in finding.fix.steps[0].command


def test_a_slow_clock_is_told_where_no_limit_is_shown():
    gpus = [
        Gpu(n, clock_sm_mhz=clock, clock_max_sm_mhz=2600, gpu_utilization_percent=99, clock_event_reasons=())
        for n, clock in enumerate((2010, 1130))
    ]
    (calm,) = judge("clock.limits", Gpus("nvidia-smi-q", gpus=tuple(gpus)))
    assert calm.note and "GPU 1 at 1130 of 2600 MHz" in calm.summary
