"""What NVML's numbers mean: the enumerations of nvml.h as words.

Source: https://github.com/NVIDIA/go-nvml/blob/v0.13.3-0/gen/nvml/nvml.h (CUDA 13.3). NVML 615 added what that
header lacks (docs.nvidia.com/deploy/nvml-api/change-log.html): the recovery actions 6 and 7, with their
numbers in nvidia-ml-py 13.615.71, and the clock event reasons 0x200 and 0x400, with theirs in cuda-python
(cuda.bindings.nvml.ClocksEventReasons: 512 and 1024). The words are those of `nvidia-smi -q -x` where it has
any, so that both sources of a reading say the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodedoctor.knowledge.error_codes import CODES

COMPUTE_MODE = dict(enumerate(("default", "exclusive-thread", "prohibited", "exclusive-process")))
VIRTUALIZATION_MODE = dict(enumerate(("none", "pass-through", "vgpu", "host-vgpu", "host-vsga")))
ADDRESSING_MODE = dict(enumerate(("none", "hmm", "ats")))
RECOVERY_ACTION = dict(
    enumerate(
        (
            "none",
            "gpu-reset",
            "node-reboot",
            "drain-p2p",
            "drain-and-reset",
            "recover-imex-domain",
            "bus-reset",
            "system-reboot",
        )
    )
)
BRAND = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA Virtual Applications",
    8: "NVIDIA Virtual PC",
    9: "NVIDIA Virtual Compute Server",
    10: "NVIDIA RTX Virtual Workstation",
    11: "NVIDIA Cloud Gaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
}
ARCHITECTURE = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}

CLOCK_EVENT_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
    0x200: "board_limit",
    0x400: "reliability",
}

NVLINK_VERSION = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
NVLINK_REMOTE = {0: "gpu", 1: "npu", 2: "switch", 255: "unknown"}

P2P_STATUS = dict(
    enumerate(
        (
            "ok",
            "chipset-not-supported",
            "gpu-not-supported",
            "topology-not-supported",
            "disabled-by-regkey",
            "not-supported",
            "unknown",
        )
    )
)
# Level of the common ancestor as `topo -m` writes it; two GPUs on one board share at least its switch.
TOPOLOGY = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}

FABRIC_STATE = dict(enumerate(("not-supported", "not-started", "in-progress", "completed")))
FABRIC_SUMMARY = {1: "healthy", 2: "unhealthy", 3: "limited capacity"}
_TRUE_FALSE = {1: "true", 2: "false"}
_CONFIGURATION = {
    1: "none",
    2: "incorrect sysguid",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "insufficient nvlinks",
    6: "incompatible gpu firmware",
    7: "invalid location",
    8: "gpu state invalid",
}
# Element of the XML, shift and mask in the health mask, meaning; 0 is always "not supported".
_HEALTH = (
    ("bandwidth", 0, 0x3, {1: "degraded", 2: "full"}),
    ("route_recovery_in_progress", 2, 0x3, _TRUE_FALSE),
    ("route_unhealthy", 4, 0x3, _TRUE_FALSE),
    ("access_timeout_recovery", 6, 0x3, _TRUE_FALSE),
    ("incorrect_configuration", 8, 0xF, _CONFIGURATION),
    ("partition_assigned", 12, 0x3, _TRUE_FALSE),
    ("gfm_state", 14, 0x3, {1: "connected", 2: "disconnected"}),
)

RETURN = {0: "SUCCESS", **{number: name for name, number in CODES.items()}}


def clock_event_reasons(mask: int) -> tuple[str, ...]:
    """The names of the bits that are set; a bit without a name is `bit_N`."""
    bits = (bit for bit in range(64) if mask >> bit & 1)
    return tuple(CLOCK_EVENT_REASONS.get(1 << bit, f"bit_{bit}") for bit in bits)


def fabric_health(mask: int, summary: int) -> dict[str, str]:
    """The parts of the fabric's health that this GPU tells, as in the XML."""
    return dict(_fabric_health(mask, summary))


def _fabric_health(mask: int, summary: int) -> Iterator[tuple[str, str]]:
    if summary:
        yield "summary", word(FABRIC_SUMMARY, summary)
    for name, shift, width, meaning in _HEALTH:
        if part := mask >> shift & width:
            yield name, word(meaning, part)


def word(meaning: Mapping[int, str], number: int) -> str:
    """The word for a number; one that nvml.h did not have yet stays visible."""
    return meaning.get(number, f"unknown-{number}")


_SWITCH = {0: "off", 1: "on"}
_BY_NAME: Mapping[str, Mapping[int, str]] = {
    "active": {0: "down", 1: "up"},
    "addressing_mode": ADDRESSING_MODE,
    "brand": BRAND,
    "architecture": ARCHITECTURE,
    "compute_mode": COMPUTE_MODE,
    "ecc_mode": _SWITCH,
    "mig_mode": _SWITCH,
    "persistence_mode": _SWITCH,
    "recovery_action": RECOVERY_ACTION,
    "remote_type": NVLINK_REMOTE,
    "virtualization_mode": VIRTUALIZATION_MODE,
}
_FABRIC = {"state": FABRIC_STATE, "status": RETURN, "healthSummary": FABRIC_SUMMARY}


def meaning(path: str, value: object) -> str:
    """What a number at a path of NVML's answers means, as `in-progress`; empty where it is a quantity."""
    if not isinstance(value, int):
        return ""
    *_, above, name = ("", *re.sub(r"\[[^\[\]]*\]", "", path).split("."))
    if name == "clock_event_reasons":
        return ", ".join(clock_event_reasons(value)) or "none"
    if name == "healthMask":
        return ", ".join(f"{part} {word}" for part, word in fabric_health(value, 0).items())
    if above == "values" and path.startswith("peers["):
        return P2P_STATUS.get(value, "")
    if above == "fabric":
        return _FABRIC.get(name, {}).get(value & 0xFF if name == "state" else value, "")
    return _BY_NAME.get(name, {}).get(value, "")
