"""What fixes say of the hardware is true: held to laws and to NVIDIA's own documents, not to one text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from asking import brief, judge

from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.gpu.gpu import BankAvailability, Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.gpu.nvml.enums import CLOCK_EVENT_REASONS
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.pci.pci import Pci, PciDevice
from nodedoctor.knowledge.error_codes import nvml_error
from nodedoctor.knowledge.fixes.gpu import recovery_fix
from nodedoctor.knowledge.fixes.recipes import gpu_reset
from nodedoctor.knowledge.nvml_errors import HUNG

HOST = Container()
BUSY = Gpu(
    0,
    name="NVIDIA H100 80GB HBM3",
    pstate=0,
    gpu_utilization_percent=100,
    clock_sm_mhz=1980,
    clock_max_sm_mhz=1980,
    clock_event_reasons=(),
)


def one(gpu: Gpu) -> Gpus:
    return Gpus("nvml", gpus=(gpu,))


def test_a_reset_of_one_gpu_disturbs_that_gpu_alone():
    """nvidia-smi(1), --gpu-reset: from Ampere on GPUs are reset individually, with NVSwitch too."""
    steps = [
        *gpu_reset(3),
        *recovery_fix("gpu-reset", 3).steps,
        *nvml_error("RESET_REQUIRED").fix_here(False, 3).steps,
    ]
    resets = [step for step in steps if "--gpu-reset" in step.command]
    assert len(resets) == 3
    for step in resets:
        assert (
            "-i 3" in step.command and "NVSwitch" not in step.disturbs and "all" not in step.disturbs.split()
        )


def test_each_way_to_lower_clocks_has_its_own_way_back():
    """nvidia-smi(1): -rgc, -rmc, -rac and, for what -lmcd locked, -rmcd with the next load of the driver."""
    lowered = replace(BUSY, clock_app_graphics_mhz=1200, clock_default_app_graphics_mhz=1980)
    (found,) = judge("clock.limits", one(lowered))
    assert found.fix is not None
    back = {step.command.split()[-1]: step.when for step in found.fix.steps}
    assert set(back) == {"-rgc", "-rmc", "-rac", "-rmcd"}
    assert "-ac" in back["-rac"] and "older" not in back["-rac"], "deprecated since R580 is not gone"
    assert "-lmcd" in back["-rmcd"] and "driver load" in back["-rmcd"]


@pytest.mark.parametrize("reason", ["board_limit", "reliability"])
def test_clocks_that_the_board_itself_holds_low_under_load_are_told(reason: str):
    assert reason in CLOCK_EVENT_REASONS.values()
    held = replace(BUSY, clock_sm_mhz=900, clock_event_reasons=(reason,))
    assert brief(judge("clock.limits", one(held))) == [("warn", "gpu:0")]
    # At the top of the range such a limit is what always ends a boost; idle clocks are low by themselves.
    assert brief(judge("clock.limits", one(replace(held, clock_sm_mhz=1935)))) == [("pass", "")]
    idle = replace(held, gpu_utilization_percent=0, pstate=8)
    assert brief(judge("clock.limits", one(idle))) == [("pass", "")]


def test_only_a_bank_without_spare_rows_cannot_remap_the_next_one():
    def fix(low: int, none: int) -> str:
        banks = BankAvailability(max=600, high=30, partial=5, low=low, none=none)
        gpu = replace(BUSY, remap_banks=banks, remap_pending=False, remap_failure=False)
        (found,) = [f for f in judge("memory.remap", one(gpu)) if f.status.value == "warn"]
        assert found.fix is not None
        return found.fix.text

    assert "cannot be remapped" in fix(low=3, none=1)
    assert "cannot be remapped" not in fix(low=1, none=0)


def test_an_uncorrected_error_is_not_said_to_leave_wrong_data():
    (found,) = judge("memory.ecc", one(replace(BUSY, ecc_mode=True, ecc_volatile_uncorrectable=1)))
    assert found.status.value == "fail" and found.fix is not None
    assert "wrong data" not in found.fix.text and "killed the program" in found.fix.text


def test_blackwell_on_the_proprietary_module_needs_the_open_one():
    driver = Driver(loaded=True, kind="proprietary", version="570.86.10", modules={"nvidia": "Live"})
    empty = Gpus("nvml", counted=0)

    def fixes(device: str) -> list[str]:
        gpus = (PciDevice(f"0000:1{n}:00.0", "10de", device, "030200", driver="nvidia") for n in range(8))
        inventory = Inventory.parse(Pci(tuple(gpus)), driver, empty, HOST)
        found = judge("driver.gpus-present", inventory, empty, driver)
        assert {f.status.value for f in found} == {"fail"}, found
        return [f.fix.text for f in found if f.fix]

    assert len(fixes("2901")) == 1 and "open kernel modules" in fixes("2901")[0]
    assert not any("open kernel modules" in text for text in fixes("2330"))


def test_a_hang_ends_with_taking_the_power_away():
    last = HUNG.steps[-1]
    assert last.role == "last-resort" and "chassis power cycle" in last.command and "console" in last.when
