"""The real NVML child behind the real pynvml, on a fake library: what it says of healthy and sick GPUs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from fakes import nvml_env, write_config

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.facts.gpu.gpu import Gpu, GpuReading, LostGpu
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.model import Observation, Outcome, Unseen

Fake = Callable[..., dict[str, str]]
PATIENCE = 60  # seconds; nothing here takes one


def ask(env: dict[str, str], *args: str) -> Observation:
    asked = Command(child("gpu/nvml", *args, packages=True), env=env)
    return asyncio.run(child_process.run("nvml", asked, PATIENCE))


def read(env: dict[str, str]) -> GpuReading:
    seen = ask(env)
    assert (seen.outcome, seen.rc, seen.note) == (Outcome.OK, 0, "")
    reading = NvmlReading.parse(seen)
    assert isinstance(reading, NvmlReading)
    json.dumps(asdict(reading), allow_nan=False)
    return reading.gpus


def test_a_healthy_node_tells_everything(fake_nvml: Fake, nvml_folder: Path):
    reading = read(fake_nvml())
    assert (reading.driver_version, reading.cuda_version) == ("570.86.10", "12.8")
    assert (reading.nvml_version, reading.driver_branch) == ("12.570.86.10", "r570_00")
    assert reading.library == str(nvml_folder / "libnvidia-ml.so.1")
    assert (reading.counted, reading.lost, reading.init_error, reading.interrupted) == (8, (), None, None)
    assert [gpu.index for gpu in reading.gpus] == list(range(8))
    assert reading.errors == {}
    gpu = reading.gpus[3]
    assert (gpu.name, gpu.bus_id, gpu.minor) == ("NVIDIA H100 80GB HBM3", "0000:5d:00.0", 3)
    assert (gpu.architecture, gpu.compute_capability, gpu.pci_device_id) == ("hopper", "9.0", "2330")
    assert (gpu.memory_total_mib, gpu.memory_reserved_mib, gpu.memory_used_mib) == (81559, 551, 1)
    assert (gpu.power_draw_w, gpu.power_limit_w, gpu.power_limit_min_w) == (71.97, 700.0, 200.0)
    assert (gpu.slowdown_t_limit_c, gpu.shutdown_t_limit_c, gpu.t_limit_margin_c) == (-2, -8, 53)
    assert (gpu.fabric_state, gpu.fabric_status) == ("completed", "SUCCESS")
    assert gpu.fabric_health is not None and gpu.fabric_health["bandwidth"] == "full"
    assert gpu.clock_event_reasons == ("gpu_idle",)
    assert (gpu.cpu_affinity, gpu.numa_nodes) == ("0-31", "0")
    assert reading.gpus[4].cpu_affinity == "32-63"
    assert gpu.remap_banks is not None and gpu.remap_banks.max == 2560
    assert gpu.processes == ()


def test_a_value_is_there_or_explained(fake_nvml: Fake):
    for gpu in read(fake_nvml()).gpus:
        absent = {item.name for item in fields(Gpu) if getattr(gpu, item.name) is None}
        assert absent == gpu.errors.keys()
        assert gpu.errors == {
            "c2c_active": "NOT_ASKED",
            "c2c_links": "NOT_SUPPORTED",
            "fan_percent": "NOT_SUPPORTED",
            "gpu_numa_node": "NO_VALUE",
            "inforom_power_version": "NOT_SUPPORTED",
            "mig_devices": "NOT_ASKED",
            "pcie_generation_host_max": "NOT_ASKED",
            "retired_pages_double_bit": "NOT_SUPPORTED",
            "retired_pages_pending": "NOT_SUPPORTED",
            "retired_pages_single_bit": "NOT_SUPPORTED",
            "vgpu_license": "NOT_ASKED",
        }


FAULTS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "hot": ({"temperature": 95, "t_limit_margin": -3}, {"temperature_c": 95, "t_limit_margin_c": -3}),
    "hardware slowdown": (
        {"reasons": 0x48},
        {"clock_event_reasons": ("hw_slowdown", "hw_thermal_slowdown")},
    ),
    "power brake": ({"reasons": 0x80}, {"clock_event_reasons": ("hw_power_brake_slowdown",)}),
    "a reason nobody knows yet": ({"reasons": 1 << 40}, {"clock_event_reasons": ("bit_40",)}),
    "volatile ECC": ({"ecc_volatile_uncorrectable": 2}, {"ecc_volatile_uncorrectable": 2}),
    "aggregate SRAM ECC": (
        {"ecc_aggregate_sram_uncorrectable": 3, "sram_threshold": 1, "sram_l2": 3},
        {"ecc_aggregate_sram_uncorrectable": 3, "sram_threshold_exceeded": True},
    ),
    "ECC off": (
        {"ecc_mode": 0, "ecc_mode_pending": 1},
        {"ecc_mode": False, "ecc_mode_pending": True, "ecc_volatile_correctable": None},
    ),
    "remap pending": ({"remap_pending": 1, "remapped_uncorrectable": 1}, {"remap_pending": True}),
    "remap failure": ({"remap_failure": 1}, {"remap_failure": True}),
    "repair pending": ({"channel_repair_pending": 1}, {"channel_repair_pending": True}),
    "retired pages": (
        {"retired_pages_double_bit": 2, "retired_pages_pending": 1},
        {"retired_pages_double_bit": 2, "retired_pages_pending": True},
    ),
    "power limit": ({"power_limit": 500.5}, {"power_limit_w": 500.5, "power_limit_default_w": 700.0}),
    "slow clock": ({"clock_sm": 210, "pstate": 5}, {"clock_sm_mhz": 210, "pstate": 5}),
    "narrow PCIe": ({"pcie_width": 8, "pcie_replays": 9}, {"pcie_width": 8, "pcie_replays": 9}),
    "MIG": (
        {"mig": 1, "mig_devices": 2},
        {"mig_mode": True, "mig_mode_pending": True, "mig_devices": 2},
    ),
    "exclusive": ({"compute_mode": 3}, {"compute_mode": "exclusive-process"}),
    "recovery": ({"recovery_action": 4}, {"recovery_action": "drain-and-reset"}),
    "an action nobody knows yet": ({"recovery_action": 99}, {"recovery_action": "unknown-99"}),
    "fabric failed": (
        {"fabric_status": 23, "fabric_health": 0x155, "fabric_summary": 2},
        {"fabric_state": "completed", "fabric_status": "INSUFFICIENT_RESOURCES"},
    ),
    "fabric in progress": ({"fabric_state": 2}, {"fabric_state": "in-progress"}),
    "NVLink domain": (
        {"fabric_uuid": "0123456789abcdef0123456789abcdef", "fabric_clique": 32766},
        {"fabric_cluster_uuid": "01234567-89ab-cdef-0123-456789abcdef", "fabric_clique_id": 32766},
    ),
    "coherent memory": ({"numa": 2, "addressing": 2}, {"gpu_numa_node": 2, "addressing_mode": "ats"}),
    "virtual": ({"virtualization": 2}, {"virtualization_mode": "vgpu"}),
    "busy": (
        {"utilization": 97, "memory_used_mib": 70000},
        {"gpu_utilization_percent": 97, "memory_used_mib": 70000},
    ),
}


def test_every_fault_is_told_of_its_gpu_and_of_no_other(fake_nvml: Fake):
    """Each fault on a GPU of its own, eight to a node."""
    healthy = read(fake_nvml()).gpus[7]
    names = list(FAULTS)
    for start in range(0, len(names), 7):
        group = names[start : start + 7]
        told = {f"gpu{i}.{k}": v for i, name in enumerate(group) for k, v in FAULTS[name][0].items()}
        reading = read(fake_nvml(told))
        for gpu, name in zip(reading.gpus, group, strict=False):
            expected = FAULTS[name][1]
            assert {field: getattr(gpu, field) for field in expected} == expected, name
        assert reading.gpus[7] == healthy


def test_the_fabric_says_what_is_unhealthy(fake_nvml: Fake):
    gpu = read(fake_nvml({"gpu0.fabric_health": 0x2595, "gpu0.fabric_summary": 3})).gpus[0]
    assert gpu.fabric_health == {
        "summary": "limited capacity",
        "bandwidth": "degraded",
        "route_recovery_in_progress": "true",
        "route_unhealthy": "true",
        "access_timeout_recovery": "false",
        "incorrect_configuration": "insufficient nvlinks",
        "partition_assigned": "false",
    }


REFUSALS: dict[str, tuple[int, str, set[str]]] = {
    "ecc": (999, "UNKNOWN", {"ecc_volatile_uncorrectable", "ecc_aggregate_correctable"}),
    "temperature": (3, "NOT_SUPPORTED", {"temperature_c"}),
    "memory": (4, "NO_PERMISSION", {"memory_total_mib", "memory_used_mib", "bar1_total_mib"}),
    "fields": (10, "TIMEOUT", {"memory_temperature_c", "recovery_action", "pcie_errors"}),
    "field_values": (999, "UNKNOWN", {"memory_temperature_c", "shutdown_t_limit_c"}),
    "processes": (3, "NOT_SUPPORTED", {"processes"}),
    "fabric": (13, "FUNCTION_NOT_FOUND", {"fabric_state", "fabric_health"}),
    "power": (77, "ERROR_77", {"power_draw_w", "power_limit_max_w"}),
}


def test_one_failing_call_hides_nothing_else(fake_nvml: Fake):
    """On each GPU another call fails, on the last one none."""
    told = {f"gpu{i}.error.{topic}": code for i, (topic, (code, *_)) in enumerate(REFUSALS.items())}
    reading = read(fake_nvml({"gpus": len(REFUSALS) + 1, **told}))
    assert len(reading.gpus) == len(REFUSALS) + 1 and reading.lost == ()
    healthy = reading.gpus[-1]
    for gpu, (_, name, without) in zip(reading.gpus, REFUSALS.values(), strict=False):
        assert {field: gpu.errors.get(field) for field in without} == dict.fromkeys(without, name)
        assert gpu.uuid is not None and gpu.pcie_width == 16
        assert without.isdisjoint(healthy.errors)


def test_a_gpu_that_cannot_be_opened_is_lost_and_the_others_are_read(fake_nvml: Fake):
    reasons = {4: "NO_PERMISSION", 15: "GPU_IS_LOST", 16: "RESET_REQUIRED", 999: "UNKNOWN", 77: "ERROR_77"}
    told = {f"gpu{place + 1}.handle_error": code for place, code in enumerate(reasons)}
    reading = read(fake_nvml(told))
    assert reading.lost == tuple(
        LostGpu(place + 1, None, name) for place, name in enumerate(reasons.values())
    )
    assert reading.counted == 8
    assert [gpu.index for gpu in reading.gpus] == [0, 6, 7]
    assert [peer.index for peer in reading.gpus[0].peers or ()] == [6, 7]


def test_a_gpu_that_gets_lost_after_it_was_opened_is_lost_with_its_address(fake_nvml: Fake):
    reading = read(fake_nvml({"gpu5.error.temperature": 15, "gpu5.error.power": 15}))
    assert [(gone.index, gone.bus_id, gone.error) for gone in reading.lost] == [
        (5, "0000:ab:00.0", "GPU_IS_LOST")
    ]
    assert len(reading.gpus) == 7


def test_a_gpu_that_fell_off_the_bus_before_is_not_even_counted(fake_nvml: Fake):
    reading = read(fake_nvml({"missing": 3}))
    assert (reading.counted, len(reading.gpus), reading.lost) == (7, 7, ())
    assert "0000:5d:00.0" not in {gpu.bus_id for gpu in reading.gpus}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("code", "name", "text"),
    [
        (4, "NO_PERMISSION", "Insufficient Permissions"),
        (6, "NOT_FOUND", "Not Found"),
        (9, "DRIVER_NOT_LOADED", "Driver Not Loaded"),
        (15, "GPU_IS_LOST", "GPU is lost"),
        (18, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"),
        (999, "UNKNOWN", "Unknown Error"),
        (77, "ERROR_77", "Error of the fake"),
    ],
)
def test_a_library_that_does_not_start_says_why(fake_nvml: Fake, code: int, name: str, text: str):
    reading = read(fake_nvml({"init_error": code, "nvml_version": "12.580.95"}))
    assert reading.init_error is not None
    assert (reading.init_error.name, reading.init_error.code, reading.init_error.text) == (name, code, text)
    assert reading.nvml_version == "12.580.95"
    assert (reading.gpus, reading.counted, reading.interrupted) == ((), None, None)
    assert reading.errors["driver_version"] == "UNINITIALIZED"


def test_a_library_that_cannot_be_loaded_says_why(tmp_path: Path):
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    reading = read({"LD_LIBRARY_PATH": str(tmp_path)})
    assert reading.init_error is not None
    assert (reading.init_error.name, reading.init_error.code) == ("LIBRARY_NOT_FOUND", 12)
    assert "libnvidia-ml.so.1" in reading.init_error.text
    assert reading.library is None


def test_without_pynvml_it_is_unknown_with_a_way_out(fake_nvml: Fake):
    asked = Command(child("gpu/nvml", packages=False), env=fake_nvml())
    seen = asyncio.run(child_process.run("nvml", asked, PATIENCE))
    assert (seen.outcome, seen.rc) == (Outcome.OK, 0)
    why = NvmlReading.parse(seen)
    assert isinstance(why, Unseen)
    assert why.reason == "missing-tool" and "nvidia-ml-py" in why.way_out and "pynvml" in why.note


def test_a_node_without_gpus_has_none(fake_nvml: Fake):
    reading = read(fake_nvml({"gpus": 0}))
    assert (reading.counted, reading.gpus, reading.lost) == (0, (), ())


def test_an_old_driver_explains_what_it_does_not_know_and_tells_the_rest(
    old_nvml_folder: Path, tmp_path: Path
):
    told = {"driver": "470.256.02", "cuda": 11040, "processes": "4242:100", "gpu2.link3": "down"}
    reading = read(nvml_env(old_nvml_folder, write_config(tmp_path / "conf", told)))
    assert (reading.driver_version, reading.cuda_version) == ("470.256.02", "11.4")
    assert reading.errors == {
        "driver_branch": "FUNCTION_NOT_FOUND",
        "confidential_compute": "FUNCTION_NOT_FOUND",
    }
    gpu = reading.gpus[2]
    missing = {name for name, error in gpu.errors.items() if error == "FUNCTION_NOT_FOUND"}
    assert missing == {
        "addressing_mode",
        "channel_repair_pending",
        "memory_reserved_mib",
        "sram_threshold_exceeded",
        "sram_uncorrectable_by_unit",
        "t_limit_margin_c",
        "tpc_repair_pending",
        "unrepairable_memory",
        "fabric_health",
    }
    assert (gpu.memory_total_mib, gpu.memory_used_mib) == (81559, 552)  # reserved memory is part of it
    assert gpu.clock_event_reasons == ("gpu_idle",)
    assert gpu.processes is not None and gpu.processes[0].used_mib == 100
    assert gpu.fabric_state == "completed"
    assert gpu.nvlinks is not None and [link.link for link in gpu.nvlinks if not link.active] == [3]


def test_processes_are_named_without_their_arguments(fake_nvml: Fake):
    env = fake_nvml(
        {
            "gpu1.processes": "4242:1024,77:-",
            "gpu1.graphics": "900:12",
            "gpu1.mps": "4242:0",
            "program.4242": "/opt/venv/bin/python3 train.py --api-key very-secret",
            "program.77": "ray::Worker.run",
        }
    )
    assert "secret" not in ask(env).text and "train.py" not in ask(env).text
    found = read(env).gpus[1].processes
    assert found is not None
    assert [(one.pid, one.kind, one.used_mib, one.name) for one in found] == [
        (4242, "compute", 1024, "python3"),
        (77, "compute", None, "ray::Worker.run"),
        (900, "graphics", 12, None),
        (4242, "mps", 0, "python3"),
    ]
    assert (found[0].gpu_instance, found[0].compute_instance) == (None, None)


def test_peers_say_what_is_refused_between_whom(fake_nvml: Fake):
    gpus = read(fake_nvml({"p2p.0-3": 5, "p2p.1-2.write": 4, "path.0-1": 10})).gpus
    first = {peer.index: peer for peer in gpus[0].peers or ()}
    assert set(first) == {1, 2, 3, 4, 5, 6, 7}
    assert (first[3].read, first[3].nvlink) == ("not-supported", "not-supported")
    assert (first[1].read, first[1].path, first[2].path, first[7].path) == ("ok", "PIX", "NODE", "SYS")
    second = {peer.index: peer for peer in gpus[1].peers or ()}
    assert (second[2].read, second[2].write) == ("ok", "disabled-by-regkey")


def test_confidential_computing_and_hidden_gpus_are_told(fake_nvml: Fake):
    reading = read(fake_nvml({"confidential_compute": 1, "excluded": "0000:1b:00.0,0001:2c:00.0"}))
    assert reading.confidential_compute is True
    assert all(gpu.confidential_compute for gpu in reading.gpus)
    assert reading.excluded == ("0000:1b:00.0", "0001:2c:00.0")


def test_slow_calls_are_listed(fake_nvml: Fake):
    reading = read(fake_nvml({"gpu1.delay_ms.temperature": 150, "init_delay_ms": 120}))
    slow = {(call.index, call.call) for call in reading.slow_calls}
    assert {(None, "nvmlInit"), (1, "nvmlDeviceGetTemperature")} <= slow
    assert reading.init_seconds is not None and reading.init_seconds >= 0.12


@pytest.mark.parametrize(("driver", "known"), [("580.95.05", False), ("590.48.01", True)])
def test_field_numbers_that_changed_their_meaning_are_asked_only_where_it_is_known(
    fake_nvml: Fake, driver: str, known: bool
):
    gpu = read(fake_nvml({"driver": driver, "hw_thermal_slowdown_ns": 3_000_000_000})).gpus[0]
    seconds = {"hw_thermal_slowdown": 3.0, "hw_power_brake_slowdown": 0.0} if known else {}
    others = dict.fromkeys(("sw_power_cap", "sync_boost", "sw_thermal_slowdown"), 0.0)
    assert gpu.clock_event_seconds == others | seconds
