"""Faults injected into seven kinds of nodes: what the fake driver reports, and the causes it must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from recorded import A100, driver_files, iommu, machine, mesh, pci, services, topo

Values = Mapping[str, object]
SWITCHES = ("22a3",) * 4
MANAGED = services("nvidia-persistenced", "nvidia-fabricmanager")
UNMANAGED = services("nvidia-persistenced")
CARD: Values = {"links": 0, "fabric_state": "-", "t_limit_margin": "-", "p2p": 1}
BUSY: Values = {"utilization": 100, "clock_sm": 1980, "power_draw": 640, "pstate": 0, "reasons": 4}
EVERY = range(8)


class Kind(NamedTuple):
    """A healthy node: what its driver reports beside the fake's own values, and the rest of the machine."""

    values: Values
    around: Mapping[str, str]


class Fault(NamedTuple):
    """What is different, and which causes it has: status and id, the worst first."""

    kind: str
    values: Values
    causes: tuple[str, ...]
    around: Mapping[str, str] = {}


_A100: Values = {**A100, "clock_app_graphics": 1410}
_B200: Values = {
    "name": "NVIDIA B200",
    "pci_id": "0x290110de",
    "architecture": 10,
    "cc": "10.0",
    "nvlink_version": 7,
    "speed_mbytes_s": 53125,
}
_GB200: Values = {
    **_B200,
    "gpus": 4,
    "name": "NVIDIA GB200",
    "pci_id": "0x294110de",
    "speed_mbytes_s": 50000,
    "fabric_uuid": "f5123456789abcdef0123456789abcde",
    "fabric_clique": 32766,
    "pcie_generation": 1,
    "pcie_width": 16,
}
_TRAY: Mapping[str, str] = {
    "machine": machine(arm=True),
    "nvidia-smi-topo": topo(mesh(4, "NV18"), nics=4, near="NODE"),
    "services": services("nvidia-persistenced", "nvidia-imex"),
    "iommu": iommu("smmu3.0x1", kind="DMA-FQ", parameters=""),
}
_L40S: Values = {
    **CARD,
    "name": "NVIDIA L40S",
    "pci_id": "0x26b910de",
    "architecture": 8,
    "cc": "8.9",
    "memory_total_mib": 46068,
    "pcie_generation": 4,
    "pcie_generation_max": 4,
    "pcie_generation_device_max": 4,
    "power_limit": 350,
    "power_limit_requested": 350,
    "power_limit_default": 350,
    "power_limit_max": 350,
}
_T4: Values = {
    **CARD,
    "gpus": 4,
    "name": "Tesla T4",
    "pci_id": "0x1eb810de",
    "architecture": 6,
    "cc": "7.5",
    "memory_total_mib": 15360,
    "pcie_generation": 3,
    "pcie_generation_max": 3,
    "pcie_generation_device_max": 3,
    "power_limit": 70,
    "power_limit_requested": 70,
    "power_limit_default": 70,
    "power_limit_max": 70,
    "retired_pages_pending": 0,
    "retired_pages_double_bit": 0,
}

KINDS: Mapping[str, Kind] = {
    "a100": Kind(
        _A100,
        {
            "pci": pci(8, "20b2", ("1af1",) * 6),
            "nvidia-smi-topo": topo(mesh(8, "NV12")),
            "services": MANAGED,
        },
    ),
    "h100": Kind(
        BUSY,
        {"pci": pci(8, "2330", SWITCHES), "nvidia-smi-topo": topo(mesh(8, "NV18")), "services": MANAGED},
    ),
    "b200": Kind(
        _B200, {"pci": pci(8, "2901"), "nvidia-smi-topo": topo(mesh(8, "NV18")), "services": MANAGED}
    ),
    "gb200": Kind(_GB200, {**_TRAY, "pci": pci(4, "2941", nics=4)}),
    "gb300": Kind(
        {**_GB200, "name": "NVIDIA GB300", "pci_id": "0x31c210de"}, {**_TRAY, "pci": pci(4, "31c2", nics=4)}
    ),
    "l40s": Kind(_L40S, {"pci": pci(8, "26b9"), "nvidia-smi-topo": topo(mesh(8, "SYS"))}),
    "t4": Kind(_T4, {"pci": pci(4, "1eb8"), "nvidia-smi-topo": topo(mesh(4, "PHB"))}),
}


def on_all(values: Values, count: int = 8) -> dict[str, object]:
    """The same on every GPU."""
    return {f"gpu{index}.{key}": value for index in range(count) for key, value in values.items()}


def _one(**values: object) -> dict[str, object]:
    """On the GPU with index 2."""
    return {f"gpu2.{key}": value for key, value in values.items()}


_LINKS_OFF = {f"link{link}": "down" for link in range(18)}
_OFF_THE_BUS = {"missing": 2}
_VIRTUAL = {"machine": machine(virtual=True)}

FAULTS: Mapping[str, Fault] = {
    # One device, one value.
    "a100: row remap pending": Fault("a100", _one(remap_pending=1), ("fail memory.remap@gpu:2",)),
    "a100: row remap failed": Fault("a100", _one(remap_failure=1), ("fail memory.remap@gpu:2",)),
    "a100: uncorrected ECC error": Fault(
        "a100", _one(ecc_volatile_uncorrectable=1), ("fail memory.ecc@gpu:2",)
    ),
    "a100: ECC off": Fault("a100", _one(ecc_mode=0), ("warn memory.ecc@gpu:2",)),
    "a100: one link down": Fault("a100", {"gpu2.link5": "down"}, ("fail nvlink.links@gpu:2",)),
    "a100: PCIe x8": Fault("a100", _one(pcie_width=8), ("fail pcie.width@gpu:2",)),
    "a100: power brake": Fault("a100", _one(reasons=0x88), ("fail thermal.throttle@gpu:2",)),
    "a100: hardware slowdown": Fault("a100", _one(reasons=0x48), ("fail thermal.throttle@gpu:2",)),
    "a100: too hot": Fault("a100", _one(temperature=95), ("fail thermal.gpu@gpu:2",)),
    "a100: power limit lowered": Fault("a100", _one(power_limit=250), ("warn power.limit@gpu:2",)),
    "a100: recovery action": Fault("a100", _one(recovery_action=1), ("fail driver.recovery-action@gpu:2",)),
    "b200: row remap pending": Fault("b200", _one(remap_pending=1), ("fail memory.remap@gpu:2",)),
    "b200: uncorrected ECC error": Fault(
        "b200", _one(ecc_volatile_uncorrectable=1), ("fail memory.ecc@gpu:2",)
    ),
    "b200: one link down": Fault("b200", {"gpu2.link5": "down"}, ("fail nvlink.links@gpu:2",)),
    "b200: PCIe x8": Fault("b200", _one(pcie_width=8), ("fail pcie.width@gpu:2",)),
    "b200: registration failed": Fault("b200", _one(fabric_status=23), ("fail fabric.state@gpu:2",)),
    "b200: power brake": Fault("b200", _one(reasons=0x88), ("fail thermal.throttle@gpu:2",)),
    "b200: too hot": Fault("b200", _one(temperature=91, t_limit_margin=-3), ("fail thermal.gpu@gpu:2",)),
    "b200: recovery action": Fault("b200", _one(recovery_action=1), ("fail driver.recovery-action@gpu:2",)),
    "gb200: CPU links inactive": Fault(
        "gb200", {"c2c_links": 10, "gpu2.c2c_down": 2}, ("warn gpu.c2c@gpu:2",)
    ),
    "gb200: row remap pending": Fault("gb200", _one(remap_pending=1), ("fail memory.remap@gpu:2",)),
    "gb200: one link down": Fault("gb200", {"gpu2.link5": "down"}, ("fail nvlink.links@gpu:2",)),
    "gb200: registration failed": Fault("gb200", _one(fabric_status=23), ("fail fabric.state@gpu:2",)),
    "gb200: too hot": Fault("gb200", _one(temperature=91, t_limit_margin=-3), ("fail thermal.gpu@gpu:2",)),
    "gb300: uncorrected ECC error": Fault(
        "gb300", _one(ecc_volatile_uncorrectable=1), ("fail memory.ecc@gpu:2",)
    ),
    "gb300: one link down": Fault("gb300", {"gpu2.link5": "down"}, ("fail nvlink.links@gpu:2",)),
    "gb300: power brake": Fault("gb300", _one(reasons=0x88), ("fail thermal.throttle@gpu:2",)),
    "l40s: PCIe x8 of x16": Fault("l40s", _one(pcie_width=8), ("fail pcie.width@gpu:2",)),
    "l40s: uncorrected ECC error": Fault(
        "l40s", _one(ecc_volatile_uncorrectable=1), ("fail memory.ecc@gpu:2",)
    ),
    "l40s: too hot": Fault("l40s", _one(temperature=96), ("fail thermal.gpu@gpu:2",)),
    "l40s: power brake": Fault("l40s", _one(reasons=0x88), ("fail thermal.throttle@gpu:2",)),
    "l40s: power limit lowered": Fault("l40s", _one(power_limit=200), ("warn power.limit@gpu:2",)),
    "t4: page retirement pending": Fault("t4", _one(retired_pages_pending=1), ("fail memory.remap@gpu:2",)),
    "t4: ECC off": Fault("t4", _one(ecc_mode=0), ("warn memory.ecc@gpu:2",)),
    "t4: PCIe x4": Fault("t4", _one(pcie_width=4), ("fail pcie.width@gpu:2",)),
    "t4: hardware slowdown": Fault("t4", _one(reasons=0x48), ("fail thermal.throttle@gpu:2",)),
    "h100: link at half its rate": Fault(
        "h100", {"gpu2.link4.speed_mbytes_s": 13281}, ("warn nvlink.speed@gpu:2",)
    ),
    "h100: spare rows nearly exhausted": Fault(
        "h100", _one(banks="2500,40,15,4,1"), ("warn memory.remap@gpu:2",)
    ),
    "h100: clock outlier": Fault("h100", _one(clock_sm=1200), ("warn clock.outlier@gpu:2",)),
    "h100: PCIe generation 1 under load": Fault("h100", _one(pcie_generation=1), ("fail pcie.speed@gpu:2",)),
    "h100: no peer access": Fault("h100", {f"p2p.{i}-2": 4 for i in EVERY}, ("fail p2p.status@gpu:2",)),
    "h100: corrupted InfoROM": Fault("h100", _one(inforom_ecc="!14"), ("warn gpu.inforom@gpu:2",)),
    "h100: channel repair pending": Fault("h100", _one(channel_repair_pending=1), ("warn memory.ecc@gpu:2",)),
    "h100: unhealthy fabric route": Fault(
        "h100", _one(fabric_health=0x19A, fabric_summary=2), ("fail fabric.state@gpu:2",)
    ),
    # The odd one among like devices.
    "odd model": Fault("h100", _one(name="NVIDIA H100 PCIe"), ("warn gpu.identity@gpu:2",)),
    "odd VBIOS": Fault("h100", _one(vbios="96.00.74.00.01"), ("warn gpu.identity@gpu:2/vbios",)),
    "odd memory": Fault("h100", _one(memory_total_mib=65536), ("warn gpu.identity@gpu:2/memory",)),
    "ECC off at the next reset": Fault(
        "h100", _one(ecc_mode_pending=0), ("warn gpu.identity@gpu:2/ecc-after-the-next-reset",)
    ),
    "GSP firmware off": Fault("h100", _one(gsp="-"), ("warn gpu.identity@gpu:2/gsp-firmware",)),
    "no NVLink reported by one": Fault("h100", {"gpu2.error.nvlink": 3}, ("fail gpu.identity@gpu:2",)),
    "odd default power limit": Fault(
        "h100", _one(power_limit_default=600), ("warn gpu.identity@gpu:2/default-power-limit",)
    ),
    "idle clocks under load": Fault(
        "h100", _one(pstate=8, clock_sm=345, power_draw=120), ("warn gpu.levels@gpu:2",)
    ),
    "third of the power under load": Fault("h100", _one(power_draw=210), ("warn gpu.levels@gpu:2",)),
    "slow to answer": Fault("h100", {"gpu2.delay_ms.energy": 2500}, ("warn gpu.levels@gpu:2",)),
    # A GPU that cannot be opened, or is gone.
    "handle: no permission": Fault("h100", _one(handle_error=4), ("fail driver.answers@gpu:2",)),
    "handle: insufficient power": Fault("h100", _one(handle_error=8), ("fail driver.answers@gpu:2",)),
    "handle: timeout": Fault("h100", _one(handle_error=10), ("fail driver.answers@gpu:2",)),
    "handle: interrupt issue": Fault("h100", _one(handle_error=11), ("fail driver.answers@gpu:2",)),
    "handle: lost": Fault("h100", _one(handle_error=15), ("fail driver.answers@gpu:2",)),
    "handle: reset required": Fault("h100", _one(handle_error=16), ("fail driver.answers@gpu:2",)),
    "handle: unknown error": Fault("h100", _one(handle_error=999), ("fail driver.answers@gpu:2",)),
    "a100: lost": Fault("a100", _one(handle_error=15), ("fail driver.answers@gpu:2",)),
    "l40s: lost": Fault("l40s", _one(handle_error=15), ("fail driver.answers@gpu:2",)),
    "t4: lost": Fault("t4", _one(handle_error=15), ("fail driver.answers@gpu:2",)),
    "a call times out": Fault("h100", {"gpu2.error.temperature": 10}, ("warn driver.answers@gpu:2",)),
    "every sensor fails": Fault("h100", {"gpu2.error.*": 999}, ("fail driver.answers@gpu:2",)),
    "one GPU not bound": Fault("h100", _OFF_THE_BUS, ("fail driver.gpus-present@pci:0000:3a:00.0",)),
    "b200: seven of eight": Fault(
        "b200", {"gpus": 7}, ("fail driver.board-complete",), {"pci": pci(7, "2901")}
    ),
    "gb200: three of four": Fault(
        "gb200", {"gpus": 3}, ("fail driver.board-complete",), {"pci": pci(3, "2941", nics=4)}
    ),
    "h100: seven of eight": Fault(
        "h100", {"gpus": 7}, ("fail driver.gpus-present",), {"pci": pci(7, "2330", SWITCHES)}
    ),
    # The library does not start.
    "driver not loaded": Fault("h100", {"init_error": 9}, ("fail driver.answers",)),
    "library of another version": Fault("h100", {"init_error": 18}, ("fail driver.module-userspace",)),
    "library without permission": Fault("h100", {"init_error": 4}, ("fail driver.answers",)),
    "library with an unknown error": Fault("h100", {"init_error": 999}, ("fail driver.answers",)),
    "no GPU counted": Fault("h100", {"gpus": 0}, ("fail driver.gpus-present@pci:0000:18:00.0",)),
    # The same on all: one cause.
    "all braked": Fault("h100", on_all({"reasons": 0x88}), ("fail thermal.throttle@gpu:0",)),
    "all links down": Fault("h100", on_all(_LINKS_OFF), ("fail nvlink.links@gpu:0",)),
    "fabric manager not started": Fault(
        "h100", on_all({"fabric_state": 1}), ("fail fabric.state@gpu:0",), {"services": UNMANAGED}
    ),
    "all x8": Fault("h100", on_all({"pcie_width": 8}), ("fail pcie.width@gpu:0",)),
    "all hot": Fault("h100", on_all({"temperature": 91, "t_limit_margin": -3}), ("fail thermal.gpu@gpu:0",)),
    "all exclusive": Fault("h100", on_all({"compute_mode": 3}), ("warn driver.mode@gpu:0",)),
    "all without ECC": Fault("h100", on_all({"ecc_mode": 0}), ("warn memory.ecc@gpu:0",)),
    "no pair with peer access": Fault("h100", {"p2p": 4}, ("fail p2p.status",)),
    # The rest of the machine.
    "guest with switches, registration in progress": Fault(
        "h100", on_all({"fabric_state": 2}), ("fail fabric.state@gpu:0",), {**_VIRTUAL, "services": UNMANAGED}
    ),
    "guest with switches, seven of eight": Fault(
        "h100", {"gpus": 7}, ("warn driver.board-complete",), {**_VIRTUAL, "pci": pci(7, "2330", SWITCHES)}
    ),
    "matrix without any NVLink": Fault(
        "h100", {}, ("fail topo.matrix",), {"nvidia-smi-topo": topo(mesh(8, "SYS"))}
    ),
    "matrix with an odd pair": Fault(
        "h100",
        {},
        ("fail topo.matrix@pair:2-6",),
        {"nvidia-smi-topo": topo([["NV16" if {i, j} == {2, 6} else "NV18" for j in EVERY] for i in EVERY])},
    ),
    "IMEX of the tray failed": Fault(
        "gb200",
        {},
        ("warn fabric.imex@service:nvidia-imex",),
        {
            "services": services("nvidia-persistenced")
            + "\nId=nvidia-imex.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\n"
            "UnitFileState=enabled\nResult=exit-code\n"
        },
    ),
}

USUAL = {"driver-files": driver_files(), "machine": machine()}
"""What every kind has where it says nothing else."""
