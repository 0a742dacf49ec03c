"""GPUs against their peers: what they are, how they work under load, what slowed them, what they lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from asking import brief, judge

from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.gpu import Gpu, NvLink, SlowCall
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory, Slot
from nodedoctor.facts.host.machine import Machine
from nodedoctor.knowledge.error_codes import QUIET
from nodedoctor.model import Finding

SXM = Board("H100 SXM5 80GB", "HGX H100/H200 8-GPU", 8, 8, 4, False)
LINKS = tuple(NvLink(n, active=True) for n in range(18))
H100 = Gpu(
    0,
    name="NVIDIA H100 80GB HBM3",
    pci_device_id="2330",
    board_part_number="692-2G520-0200-000",
    vbios_version="96.00.89.00.01",
    gsp_firmware_version="570.86.10",
    inforom_image_version="G520.0200.00.05",
    inforom_ecc_version="7.16",
    memory_total_mib=81559,
    bar1_total_mib=131072,
    ecc_mode=True,
    ecc_mode_pending=True,
    power_limit_default_w=700.0,
    power_limit_max_w=700.0,
    power_draw_w=690.0,
    memory_used_mib=70000,
    pstate=0,
    gpu_utilization_percent=100,
    nvlinks=LINKS,
)


def gpus(count: int = 8, source: str = "nvml", **odd: object) -> Gpus:
    """Like GPUs; `odd` is what GPU 3 has instead."""
    like = [replace(H100, index=n) for n in range(count)]
    if odd:
        like[3] = replace(like[3], **odd)  # type: ignore[arg-type]
    return Gpus(source, gpus=tuple(like))


def found(check: str, *facts: object) -> list[tuple[str, str]]:
    return [one for one in brief(judge(check, *facts)) if one[0] != "pass"]


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        ({}, []),
        ({"name": "NVIDIA H100 PCIe"}, [("warn", "gpu:3")]),
        ({"nvlinks": None, "errors": {"nvlinks": "NOT_SUPPORTED"}}, [("fail", "gpu:3")]),
        ({"nvlinks": None, "errors": {"nvlinks": "NOT_ASKED"}}, []),
        ({"nvlinks": None, "mig_mode": True}, []),
        ({"pci_device_id": "2339"}, [("warn", "gpu:3/pci-device-id")]),
        ({"memory_total_mib": 65536}, [("warn", "gpu:3/memory")]),
        ({"memory_total_mib": 81555}, []),
        ({"bar1_total_mib": 65536}, [("warn", "gpu:3/bar1")]),
        ({"ecc_mode_pending": False}, [("warn", "gpu:3/ecc-after-the-next-reset")]),
        ({"ecc_mode": False, "ecc_mode_pending": False}, []),  # memory.ecc's finding
        ({"gsp_firmware_version": None, "errors": {"gsp_firmware_version": "NOT_SUPPORTED"}},
         [("warn", "gpu:3/gsp-firmware")]),
        ({"gsp_firmware_version": None, "errors": {"gsp_firmware_version": "NOT_ASKED"}}, []),
        ({"power_limit_max_w": 350.0}, [("warn", "gpu:3/maximum-power-limit")]),
        ({"vbios_version": "96.00.74.00.01"}, [("warn", "gpu:3/vbios")]),
        # A replaced module of another revision works as well.
        ({"board_part_number": "692-2G520-0202-000"}, [("note", "gpu:3/part-number")]),
        ({"inforom_image_version": "G520.0202.00.05"}, [("note", "gpu:3/inforom-image")]),
    ],
)  # fmt: skip
def test_the_odd_one_is_named(odd, expected):
    assert found("gpu.identity", gpus(**odd), SXM) == expected


def test_a_pass_names_how_many_were_compared_and_in_what():
    (passed,) = judge("gpu.identity", gpus(), SXM)
    assert passed.summary.startswith("8 GPUs alike in NVLinks")


def test_workstations_may_mix_cards():
    cards = [
        Gpu(n, name="NVIDIA GeForce RTX 4090", vbios_version=f"95.02.{n}", bar1_total_mib=256)
        for n in range(3)
    ]
    mixed = Gpus("nvml", gpus=(*cards, Gpu(3, name="NVIDIA GeForce RTX 3080", bar1_total_mib=256)))
    assert {status for status, _ in found("gpu.identity", mixed)} <= {"note"}
    pair = Gpus("nvml", gpus=(cards[0], replace(cards[1], memory_total_mib=1)))
    assert found("gpu.identity", pair) == [("skip", "")]


def test_two_kinds_half_and_half_are_a_machine_of_two_kinds():
    half = Gpus("nvml", gpus=tuple(replace(H100, index=n, vbios_version=f"{n % 2}") for n in range(8)))
    assert found("gpu.identity", half, SXM) == []


SHORT = "NVIDIA A100-SXM..."


@pytest.mark.parametrize("name", [SHORT, None])
@pytest.mark.parametrize("off", [0, 1, 2, 3, 4, 7, 8])
def test_ecc_that_is_off_on_few_of_like_gpus_is_a_warning_without_the_model(name: str | None, off: int):
    like = tuple(Gpu(n, name=name, ecc_mode=n >= off, ecc_mode_pending=n >= off) for n in range(8))
    judged = found("memory.ecc", Gpus("nvidia-smi", gpus=like))
    few = off if off < 4 else 0
    assert [place for status, place in judged if status == "warn"] == [f"gpu:{n}" for n in range(few)]
    passed = [one.summary for one in judge("gpu.identity", Gpus("nvidia-smi", gpus=like))]
    assert any("alike in ECC" in summary for summary in passed) is (off == 0)


def test_ecc_is_not_compared_between_two_cards_or_two_kinds():
    two = (Gpu(0, name=SHORT, ecc_mode=True), Gpu(1, name=SHORT, ecc_mode=False))
    assert "warn" not in dict(found("memory.ecc", Gpus("nvidia-smi", gpus=two)))
    others = (*(Gpu(n, name=SHORT, ecc_mode=True) for n in range(3)), Gpu(3, name="NVIDIA T1000 8GB..."))
    kinds = Gpus("nvidia-smi", gpus=(*others[:3], replace(others[3], ecc_mode=False)))
    assert "warn" not in dict(found("memory.ecc", kinds))


def test_levels_under_like_load():
    assert found("gpu.levels", gpus()) == []
    for unread, words in (("power_draw_w", "P-state"), ("pstate", "power")):
        silent = [replace(H100, index=n, **{unread: None}) for n in range(4)]  # type: ignore[arg-type]
        (calm,) = judge("gpu.levels", Gpus("nvidia-smi-q", gpus=tuple(silent)))
        assert words in calm.summary and ("P-state" in calm.summary) is not ("power" in calm.summary)
    assert found("gpu.levels", gpus(power_draw_w=210.0)) == [("warn", "gpu:3")]
    assert found("gpu.levels", gpus(power_draw_w=640.0)) == []
    assert found("gpu.levels", gpus(pstate=8, power_draw_w=120.0)) == [("warn", "gpu:3")]
    # Another load is no fault: an idle GPU, one with other data, ranks that all draw differently.
    assert found("gpu.levels", gpus(gpu_utilization_percent=0, power_draw_w=70.0, pstate=8)) == []
    assert found("gpu.levels", gpus(memory_used_mib=9000, power_draw_w=210.0)) == []
    uneven = tuple(replace(H100, index=n, power_draw_w=200.0 + 70 * n) for n in range(8))
    assert found("gpu.levels", Gpus("nvml", gpus=uneven)) == []
    assert found("gpu.levels", gpus(2)) == [("skip", "")]


def test_one_gpu_that_is_slow_to_answer_is_named():
    slow = replace(gpus(), slow_calls=(SlowCall(5, "nvmlDeviceGetPowerUsage", 3.1),))
    (one,) = judge("gpu.levels", slow)
    assert (one.status.value, one.subject) == ("warn", "gpu:5") and "nvmlDeviceGetPowerUsage" in one.summary
    everywhere = tuple(SlowCall(n, "nvmlDeviceGetPowerUsage", 3.1) for n in range(8))
    assert found("gpu.levels", replace(gpus(), slow_calls=everywhere)) == []  # driver.answers tells it


DAYS = Machine(uptime_seconds=10 * 86400.0)


def history(
    *hours: float, machine: Machine | None = DAYS, reason: str = "sw_thermal_slowdown"
) -> list[tuple[str, str]]:
    told = tuple(replace(H100, index=n, clock_event_seconds={reason: 3600 * h}) for n, h in enumerate(hours))
    return found("thermal.history", Gpus("nvml", gpus=told), *([machine] if machine else []))


def test_what_slowed_a_gpu_is_remembered():
    assert history(0, 0, 0.1, 0) == []
    assert history(0, 0.2, 8, 0.1) == [("warn", "gpu:2/sw-thermal-slowdown")]
    assert history(3, 3, 4, 3) == []  # an hour a week, the same on all
    assert [status for status, _ in history(30, 31, 29, 30, reason="hw_power_brake_slowdown")] == ["warn"] * 4
    assert history(0, 0.2, 8, 0.1, machine=None) == [("unknown", "")]
    assert found("thermal.history", Gpus("nvml", gpus=(H100,)), DAYS)[0][0] in ("skip", "unknown")


def test_a_corrupt_inforom():
    (one,) = judge("gpu.inforom", gpus(errors={"inforom_ecc_version": "CORRUPTED_INFOROM"}))
    assert (one.status.value, one.subject) == ("warn", "gpu:3") and one.fix is not None
    assert found("gpu.inforom", gpus(errors={"inforom_ecc_version": "NOT_SUPPORTED"})) == []


def complete(model: str, count: int, *, switches: int = 0, virtual: bool | None = False) -> list[Finding]:
    slots = tuple(
        Slot(f"0000:{n:02x}:00.0", "10de:2901", "nvidia", False, "granted", n) for n in range(count)
    )
    board = Board(model, None, count, count, switches, virtual)
    return judge("driver.board-complete", board, Inventory(slots, count, nvswitches=switches))


@pytest.mark.parametrize(
    ("model", "count", "virtual", "status"),
    [
        ("B200 SXM6", 8, False, "pass"),
        ("B200 SXM6", 7, False, "fail"),
        ("B200 SXM6", 7, True, "warn"),
        ("B200 SXM6", 7, None, "warn"),
        ("B200 SXM6", 4, True, "pass"),
        ("B200 SXM6", 1, True, "pass"),
        ("GB200", 3, False, "fail"),
        ("GB200", 4, False, "pass"),
        ("GH200 96GB", 1, False, "pass"),
        ("H100 SXM5 80GB", 4, False, "pass"),
        ("H100 SXM5 80GB", 6, False, "fail"),
        ("L40S", 3, False, "skip"),
        ("H100 PCIe 80GB", 3, False, "skip"),
    ],
)
def test_boards_ship_in_certain_numbers(model, count, virtual, status):
    assert complete(model, count, virtual=virtual)[0].status.value == status


def test_switches_on_the_bus_are_the_other_checks_evidence():
    assert complete("H100 SXM5 80GB", 7, switches=4)[0].status.value == "skip"
    assert complete("H100 SXM5 80GB", 7, switches=4, virtual=True)[0].status.value == "warn"


@pytest.mark.parametrize(
    ("worn", "words"),
    [
        ({"sram_threshold_exceeded": True}, "SRAM error threshold"),
        ({"unrepairable_memory": True}, "limit of repairable memory"),
        ({"sram_threshold_exceeded": False, "unrepairable_memory": False}, ""),
    ],
)
def test_either_verdict_of_the_driver_replaces_a_gpu(worn: dict[str, bool], words: str):
    told = [finding for finding in judge("memory.ecc", gpus(**worn)) if finding.severity.is_problem]
    assert [(one.status.value, one.subject) for one in told] == ([("fail", "gpu:3")] if words else [])
    assert all(words in one.summary and one.fix and one.fix.action == "replace" for one in told)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (sorted(QUIET), ("skip", None)),
        *(([code], ("skip", None)) for code in sorted(QUIET)),
        ([], ("unknown", "not-visible-here")),
        (["NOT_ASKED"], ("unknown", "not-visible-here")),
        (["NO_PERMISSION"], ("unknown", "denied")),
        ([*sorted(QUIET), "NO_PERMISSION"], ("unknown", "denied")),
    ],
)
def test_a_value_that_no_gpu_told_is_skipped_only_if_none_of_them_has_it(
    codes: list[str], expected: tuple[str, str | None]
):
    silent = [replace(H100, index=n, errors={"pcie_replays": code}) for n, code in enumerate(codes)]
    found = judge("pcie.replays", Gpus("nvml", gpus=tuple(silent or [H100])))
    assert [(finding.status.value, finding.reason) for finding in found] == [expected]
