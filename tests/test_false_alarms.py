"""Healthy nodes of many kinds: every check is asked and nothing warns or fails. What looks odd is normal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import smi_texts
from recorded import (
    A100,
    DRIVER,
    alarms,
    container,
    driver_files,
    iommu,
    machine,
    mesh,
    nvml,
    pci,
    processes,
    replay,
    services,
    topo,
)

Fake = Callable[..., dict[str, str]]
PLAIN = {"links": 0, "fabric_state": "-", "t_limit_margin": "-"}
NO_GB200_CPU_LINK = {"pcie_generation": 1, "pcie_width": 16}
DOWN = {f"link{link}": "down" for link in range(18)}
LONE = {"gpus": 1, "fabric_state": "-"}
SWITCHES = ("22a3",) * 4
V100_CUBE = [
    ["NV1" if (i ^ j) in (1, 2) else "NV2" if (i ^ j) in (3, 4) else "SYS" for j in range(8)]
    for i in range(8)
]
PAIRS = [["NV12" if i ^ j == 1 else "SYS" for j in range(4)] for i in range(4)]
BLIND = {f"{path}": "" for path in (f"/dev/nvidia{minor}" for minor in range(4, 8))}
GIVEN = {f"{path}": "rw" for path in ("/dev/nvidiactl", *(f"/dev/nvidia{minor}" for minor in range(4)))}

Kind = tuple[dict[str, object], dict[str, str]]
KINDS: dict[str, Kind] = {
    "HGX H100 with a rail per GPU": (
        {},
        {
            "pci": pci(8, "2330", SWITCHES, nics=8),
            "nvidia-smi-topo": topo(mesh(8, "NV18"), nics=8),
            "services": services("nvidia-persistenced", "nvidia-fabricmanager"),
            "iommu": iommu("dmar0", "dmar1"),
            "fabric-manager": f"Fabric Manager version is : {DRIVER}\n",
        },
    ),
    "HGX H100 with MIG on one GPU": (
        {"gpu4.mig": 1, "gpu4.mig_devices": 2},
        {"pci": pci(8, "2330", SWITCHES), "nvidia-smi-topo": topo(mesh(8, "NV18"))},
    ),
    "HGX H100 with one power limit for all": (
        {"power_limit": 500},
        {"pci": pci(8, "2330", SWITCHES), "nvidia-smi-topo": topo(mesh(8, "NV18"))},
    ),
    "HGX H200 under full load at its power cap": (
        {
            "name": "NVIDIA H200",
            "pci_id": "0x233510de",
            "reasons": 0x4,
            "utilization": 100,
            "clock_sm": 1755,
            "gpu3.clock_sm": 1665,
            "power_draw": 699.2,
            "temperature": 66,
            "gpu5.temperature": 74,
            "t_limit_margin": 14,
            "memory_used_mib": 120000,
            "processes": "4242:119000",
        },
        {"pci": pci(8, "2335", SWITCHES), "nvidia-smi-topo": topo(mesh(8, "NV18"))},
    ),
    "HGX A100 with applications clocks as delivered": (
        A100,
        {
            "pci": pci(8, "20b2", ("1af1",) * 6),
            "nvidia-smi-topo": topo(mesh(8, "NV12"), nics=4, near="PXB"),
            "services": services("nvidia-persistenced", "nvidia-fabricmanager"),
        },
    ),
    "HGX A100 whose fabric manager is in a driver container": (
        A100,
        {
            "pci": pci(8, "20b2", ("1af1",) * 6),
            "nvidia-smi-topo": topo(mesh(8, "NV12"), nics=4, near="PXB"),
            "services": services("nvidia-persistenced"),
            "processes": processes("nv-fabricmanage"),
        },
    ),
    "HGX A100 of which only the links show that it is managed": (
        A100,
        {"pci": pci(8, "20b2", ("1af1",) * 6), "services": services(), "processes": processes()},
    ),
    "HGX H100 with confidential computing, and a slowdown of a moment": (
        {"confidential_compute": 1, "gpu2.reasons": 0x8, "temperature": 33},
        {
            "pci": pci(8, "2330", SWITCHES),
            "services": services("nvidia-persistenced", "nvidia-fabricmanager"),
        },
    ),
    "host of virtual GPUs whose guests use the memory": (
        {
            **PLAIN,
            "gpus": 2,
            "name": "NVIDIA A40",
            "pci_id": "0x223510de",
            "virtualization": 3,
            "p2p": 5,
            "memory_used_mib": 30000,
        },
        {"pci": pci(2, "2235"), "processes": processes()},
    ),
    "HGX A100 with four GPUs and no switch": (
        {**A100, "gpus": 4},
        {"pci": pci(4, "20b2"), "nvidia-smi-topo": topo(mesh(4, "NV4")), "services": services()},
    ),
    "HGX B200 whose switches are not on the host's bus": (
        {
            "name": "NVIDIA B200",
            "pci_id": "0x290110de",
            "architecture": 10,
            "cc": "10.0",
            "nvlink_version": 7,
            "speed_mbytes_s": 53125,
            "symbol_errors": 1234,
        },
        {
            "pci": pci(8, "2901"),
            "nvidia-smi-topo": topo(mesh(8, "NV18")),
            "services": services("nvidia-persistenced", "nvidia-fabricmanager"),
        },
    ),
    "H100 NVL: twelve of eighteen links by design": (
        {
            "gpus": 4,
            "name": "NVIDIA H100 NVL",
            "pci_id": "0x232110de",
            "fabric_state": 1,
            **{f"link{link}": "down" for link in range(12, 18)},
        },
        {"pci": pci(4, "2321"), "nvidia-smi-topo": topo(PAIRS), "services": services("nvidia-persistenced")},
    ),
    "A100 PCIe without bridges": (
        {**A100, "gpus": 2, "name": "NVIDIA A100 80GB PCIe", "pci_id": "0x20b510de", **DOWN},
        {"pci": pci(2, "20b5"), "nvidia-smi-topo": topo(mesh(2, "SYS"))},
    ),
    "L4 without peer access, asleep and clocked down": (
        {
            **PLAIN,
            "gpus": 4,
            "name": "NVIDIA L4",
            "pci_id": "0x27b810de",
            "p2p": 1,
            "pstate": 8,
            "pcie_generation": 1,
            "pcie_generation_max": 4,
            "clock_sm": 210,
        },
        {"pci": pci(4, "27b8"), "nvidia-smi-topo": topo(mesh(4, "PHB"))},
    ),
    "RTX 4090s in a workstation": (
        {
            **PLAIN,
            "gpus": 2,
            "name": "NVIDIA GeForce RTX 4090",
            "pci_id": "0x268410de",
            "ecc_mode": "-",
            "p2p": 5,
            "persistence": 0,
            "gpu1.pcie_width": 8,
            "gpu1.pcie_width_max": 8,
        },
        {"pci": pci(2, "2684"), "nvidia-smi-topo": topo(mesh(2, "PHB"))},
    ),
    "one A10 of a cloud, on eight lanes": (
        {**PLAIN, "gpus": 1, "name": "NVIDIA A10", "pci_id": "0x223610de", "pcie_width": 8, "persistence": 0},
        {"pci": pci(1, "2236"), "machine": machine(virtual=True), "nvidia-smi-topo": topo(mesh(1, "X"))},
    ),
    "eight A10G of a cloud, all on eight lanes": (
        {**PLAIN, "name": "NVIDIA A10G", "pci_id": "0x223710de", "pcie_width": 8, "p2p": 1},
        {"pci": pci(8, "2237"), "machine": machine(virtual=True), "nvidia-smi-topo": topo(mesh(8, "PHB"))},
    ),
    "Grace Hopper without a fabric manager": (
        {
            **LONE,
            "name": "NVIDIA GH200 480GB",
            "pci_id": "0x234210de",
            "pcie_width": 1,
            "numa": 1,
            "power_limit": 900,
            "power_limit_default": 900,
            **DOWN,
        },
        {"pci": pci(1, "2342"), "machine": machine(arm=True), "services": services("nvidia-persistenced")},
    ),
    "GB200 tray": (
        {
            "gpus": 4,
            "name": "NVIDIA GB200",
            "pci_id": "0x294110de",
            "architecture": 10,
            "cc": "10.0",
            "nvlink_version": 7,
            "speed_mbytes_s": 50000,
            "fabric_uuid": "f5123456789abcdef0123456789abcde",
            "fabric_clique": 32766,
            **NO_GB200_CPU_LINK,
            "c2c_links": 10,
        },
        {
            "pci": pci(4, "2941", nics=4),
            "machine": machine(arm=True),
            "nvidia-smi-topo": topo(mesh(4, "NV18"), nics=4, near="NODE"),
            "services": services("nvidia-persistenced", "nvidia-imex"),
            "iommu": iommu("smmu3.0x1", kind="DMA-FQ", parameters=""),
        },
    ),
    "DGX-1 with V100: pairs differ by design": (
        {
            "name": "Tesla V100-SXM2-32GB",
            "pci_id": "0x1db510de",
            "architecture": 5,
            "cc": "7.0",
            "links": 6,
            "nvlink_version": 2,
            "speed_mbytes_s": 25781,
            "retired_pages_pending": 0,
            "retired_pages_double_bit": 0,
            "clock_app_graphics": 1290,
            "clock_default_app_graphics": 1290,
            **{f"p2p.{i}-{j}": 3 for i in range(8) for j in range(8) if V100_CUBE[i][j] == "SYS"},
            "fabric_state": "-",
            "t_limit_margin": "-",
        },
        {"pci": pci(8, "1db5"), "nvidia-smi-topo": topo(V100_CUBE)},
    ),
    "laptop that lowers its limit itself": (
        {
            **PLAIN,
            "gpus": 1,
            "name": "NVIDIA GeForce RTX 4070 Laptop GPU",
            "pci_id": "0x282010de",
            "ecc_mode": "-",
            "persistence": 0,
            "pcie_width": 8,
            "pcie_width_max": 8,
            "power_limit": 55,
            "power_limit_requested": "-",
            "power_limit_default": 80,
            "power_limit_max": 140,
            "pstate": 8,
        },
        {"pci": pci(1, "2820"), "nvidia-smi-topo": topo(mesh(1, "X"))},
    ),
    "MIG on every GPU": (
        {"mig": 1, "mig_devices": 7, "p2p": 5},
        {"pci": pci(8, "2330", SWITCHES), "nvidia-smi-topo": topo(mesh(8, "SYS"))},
    ),
    "virtual machine with eight H100 and no switch": (
        {},
        {"pci": pci(8, "2330"), "machine": machine(virtual=True), "nvidia-smi-topo": topo(mesh(8, "NV18"))},
    ),
    "virtual machine with one of eight H100": (
        {**LONE, **DOWN},
        {"pci": pci(1, "2330"), "machine": machine(virtual=True), "nvidia-smi-topo": topo(mesh(1, "X"))},
    ),
    "job with four of eight GPUs": (
        {"gpus": 4},
        {
            "pci": pci(8, "2330", SWITCHES),
            "driver-files": driver_files({**GIVEN, **BLIND}),
            "nvidia-smi-topo": topo(mesh(4, "NV18")),
            "services": services("nvidia-persistenced", "nvidia-fabricmanager"),
        },
    ),
    "container that sees no service": (
        {},
        {
            "pci": pci(8, "2330", SWITCHES),
            "driver-files": driver_files({**GIVEN, **dict.fromkeys(BLIND, "rw")}),
            "container": container(inside=True),
            "nvidia-smi-topo": topo(mesh(8, "NV18"), nics=8),
            "services": "System has not been booted with systemd as init system (PID 1). Can't operate.\n",
        },
    ),
    "old errors that were repaired long ago": (
        {
            "gpu2.remapped_uncorrectable": 3,
            "gpu2.ecc_aggregate_uncorrectable": 3,
            "gpu2.ecc_aggregate_dram_uncorrectable": 3,
            "gpu4.pcie_replays": 41,
            "gpu6.link3.replay": 2,
            "gpu6.link3.crc_flit": 117,
        },
        {"pci": pci(8, "2330", SWITCHES), "nvidia-smi-topo": topo(mesh(8, "NV18"))},
    ),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_node_gets_no_alarm(kind: str, fake_nvml: Fake, tmp_path: Path):
    told, probes = KINDS[kind]
    usual = {"driver-files": driver_files(), "machine": machine(), "container": container()}
    said = nvml(fake_nvml(told))
    report = replay(tmp_path / "node", {**usual, "nvml": said, **probes})
    assert alarms(report) == []
    looked = {result.check for result in report.results if result.status.value == "pass"}
    assert {"driver.gpus-present", "thermal.gpu", "power.limit", "pcie.width", "memory.ecc"} - looked <= (
        {"memory.ecc"} if "4090" in kind or "laptop" in kind else set()
    )


LINK = {"PCIe Generation": {"Max": 4, "Current": 1}, "Link Width": {"Max": "16x", "Current": "8x"}}
Q_GPU: dict[str, object] = {
    "Product Name": "NVIDIA RTX A6000",
    "GPU UUID": "GPU-0b1e7e5c-0000-0000-0000-000000000001",
    "Persistence Mode": "Disabled",
    "PCI": {"GPU Link Info": LINK, "Replays Since Reset": 0},
    "Performance State": "P8",
    "Clocks Event Reasons": {"Idle": "Active", "SW Power Cap": "Not Active", "HW Slowdown": "Not Active"},
    "Temperature": {
        "GPU Current Temp": "31 C",
        "GPU Slowdown Temp": "95 C",
        "GPU Max Operating Temp": "93 C",
    },
    "ECC Mode": {"Current": "Disabled", "Pending": "Disabled"},
}
TEXTS = {
    "nvidia-smi-q": smi_texts.q([smi_texts.q_gpu("00000000:01:00.0", Q_GPU)]),
    "nvidia-smi-xml": smi_texts.xml([smi_texts.xml_gpu()]),
    "nvidia-smi": smi_texts.table(smi_texts.row(0), smi_texts.row(1, bus="00000000:2A:00.0")),
    "nvidia-smi-topo": topo(mesh(2, "NV3"), nics=1, near="NODE", far="NODE"),
    "nvidia-smi-topo-p2p": " \tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tCNS\tX\n",
    "nvidia-smi-nvlink": "GPU 0: NVIDIA L40S (UUID: GPU-1)\nDevice does not have or support Nvlink\n",
    "nvidia-smi-nvlink-errors": "GPU 0: NVIDIA H200 (UUID: GPU-1)\n\t Link 0: Replay Errors: 0\n\n\t [...]\n",
}


@pytest.mark.parametrize("probe", TEXTS)
def test_a_healthy_paste_gets_no_alarm(probe: str, tmp_path: Path):
    assert alarms(replay(tmp_path, {probe: TEXTS[probe]})) == []


def test_what_is_left_of_a_damaged_paste_gets_no_alarm(tmp_path: Path):
    whole = topo(mesh(8, "NV18"), nics=4)
    for place in range(10, len(whole), 97):
        report = replay(tmp_path, {"nvidia-smi-topo": whole[:place]})
        assert alarms(report) == [], whole[:place]
