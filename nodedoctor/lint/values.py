"""Is the value one that the reader understands, in the unit it expects?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.facts.host.settings import Setting
from nodedoctor.knowledge.env_vars import EnvVar, env_var
from nodedoctor.lint.remark import NodeContext, Remark, switched_off, switched_on
from nodedoctor.patterns import regex
from nodedoctor.steps import repair

NCCL_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"

_NUMBER = regex(r"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|\d{1,19})")
_WORDS = {
    # NVIDIA/nccl, src/debug.cc: strcasecmp, and anything else leaves it at none
    "NCCL_DEBUG": (("VERSION", "WARN", "INFO", "ABORT", "TRACE", "NONE"), "warn"),
    # NVIDIA/nccl, src/graph/paths.cc, ncclGetLevel
    "NCCL_P2P_LEVEL": (("LOC", "NVL", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"), "warn"),
    "NCCL_NET_GDR_LEVEL": (("LOC", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"), "warn"),
    # pytorch, torch/csrc/distributed/c10d/debug.cpp: raises for any other word
    "TORCH_DISTRIBUTED_DEBUG": (("OFF", "INFO", "DETAIL"), "fail"),
    "CUDA_DEVICE_ORDER": (("FASTEST_FIRST", "PCI_BUS_ID"), "warn"),
    "CUDA_MODULE_LOADING": (("LAZY", "EAGER", "DEFAULT"), "warn"),
}
_LEVELS = ("NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL")  # also take 0 to 7

LONGEST_SECONDS, SHORTEST_MS, LONGEST_MINUTES = 100_000, 50, 1440
"""Not plausible: a day in seconds, a few milliseconds to wait for a rank, a day in minutes."""


LOWEST_EXPONENT = 14
"""Of NCCL_IB_TIMEOUT: the lowest default that NCCL ever had (2.3.5 to 2.13); a lower value means seconds."""
_COMPUTED = ("NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME")
"""What scripts look up for a node and set."""


def judge_value(setting: Setting, node: NodeContext) -> Iterator[Remark]:
    """Words that are not understood, numbers that are none, and units mixed up."""
    row = env_var(setting.name)
    if row is None or row.phantom:
        return
    value = setting.value.strip()
    if not value and setting.name in _COMPUTED:
        text = "it is empty, so NCCL chooses itself: the script that sets it found no value"
        yield Remark("warn", text, "Find out why the script finds no value on this node, or unset it.")
        return
    yield from _word_remarks(setting.name, value)
    yield from _boolean_remarks(row, value)
    yield from _unit_remarks(row, value)
    if setting.name == "NCCL_IB_TIMEOUT":
        yield from _exponent_remarks(value)
    number = _parse_number(value)
    if row.unit == "fraction" and number is not None and number > 1:
        yield Remark("warn", f"{value}: must be a fraction up to 1", f"Set {min(number / 100, 0.95):g}.")


def _word_remarks(name: str, value: str) -> Iterator[Remark]:
    if name not in _WORDS or (name in _LEVELS and value.isdecimal()):
        return
    words, level = _WORDS[name]
    if value.upper() not in words:
        raises = "torch refuses to start with it" if level == "fail" else "it is ignored"
        text = f"{value or '(empty)'} is not one of {' '.join(words)}: {raises}"
        yield Remark("fail" if level == "fail" else "warn", text, f"Use one of {', '.join(words)}.")


def _boolean_remarks(row: EnvVar, value: str) -> Iterator[Remark]:
    """torch takes words and raises for others (c10d, Utils.hpp); NCCL takes numbers only (param.cc)."""
    if row.unit not in ("bool", "0|1", "0|1|2"):
        return
    if row.owner == "torch" and row.name.startswith(("TORCH_NCCL_", "NCCL_", "TORCH_FR_")):
        if not (switched_on(value) or switched_off(value)) or value.lower() in ("on", "off"):
            what = value or "(empty)"
            text = f"{what} is not a boolean: torch fails with 'Invalid value for environment variable'"
            yield Remark("fail", text, "Use 1 or 0.")
    elif row.owner == "nccl" and not _NUMBER.fullmatch(value):
        means = "1" if switched_on(value) else "0" if switched_off(value) else "a number"
        text = f"{value or '(empty)'} is not a number: NCCL uses 0 or the default"
        yield Remark("warn", text, f"Set {means}.", docs=NCCL_ENV)


def _unit_remarks(row: EnvVar, value: str) -> Iterator[Remark]:
    """Seconds given where milliseconds are read, and the other way round."""
    number = _parse_number(value)
    if number is None:
        if row.unit in ("ms", "s", "minutes", "bytes") and re.fullmatch(r"[\d.]+ ?[a-zA-Z]+", value):
            yield Remark("warn", f"{value}: the unit is {_unit_name(row.unit)}, written as a plain number")
        return
    if row.unit == "s" and number >= LONGEST_SECONDS:
        text = f"it is in seconds: {value} s are {_in_days(number)}; {number / 1000:g} s probably intended"
        yield Remark("warn", text, f"Set {number / 1000:g}.")
    elif row.unit == "ms" and 0 < number <= SHORTEST_MS and "POLL" not in row.name:
        text = f"it is in milliseconds: {value} ms; {value} s would be {number * 1000:g}"
        yield Remark("warn", text, f"Set {number * 1000:g}, if seconds were intended.")
    elif row.unit == "minutes" and number > LONGEST_MINUTES:
        text = f"it is in minutes: {value} min are {_in_days(number * 60)}; {number / 60:g} probably intended"
        yield Remark("warn", text, f"Set {number / 60:g}.")


def _exponent_remarks(value: str) -> Iterator[Remark]:
    """NVIDIA/nccl, docs/env.rst: 4.096 us x 2^n; InfiniBand's field has five bits, 0 means forever."""
    if not _NUMBER.fullmatch(value):
        return
    number = int(value, 0) if value.lower().startswith("0x") else int(value)
    if number == 0:
        text = "0 waits forever: a dead link becomes a hang instead of an error"
        yield Remark("warn", text, "Unset it (default 20 since NCCL 2.23).", docs=NCCL_ENV)
    elif not 1 <= number <= 22:
        text = f"{number} is out of range: an exponent from 1 to 22 (4.096 us x 2^n), not seconds"
        fix = "Unset it (default 20 since NCCL 2.23: reports a dead link after about 30 s), or set 22."
        yield Remark("warn", text, fix, (repair("unset NCCL_IB_TIMEOUT"),), NCCL_ENV)
    elif number < LOWEST_EXPONENT:
        wait = 4.096e-6 * 2**number
        text = (
            f"{number} waits {_in_ms(wait)} for an acknowledgement (4.096 us x 2^n): a moment of congestion "
            "ends in status=12"
        )
        fix = "Unset it (default 20 since NCCL 2.23), or set 20 to 22."
        yield Remark("warn", text, fix, (repair("unset NCCL_IB_TIMEOUT"),), NCCL_ENV)


def _in_ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def _parse_number(value: str) -> float | None:
    return float(value) if re.fullmatch(r"\d{1,15}(?:\.\d{1,9})?", value) else None


def _unit_name(unit: str) -> str:
    return {"ms": "milliseconds", "s": "seconds"}.get(unit, unit)


def _in_days(seconds: float) -> str:
    return f"{seconds / 86400:.1f} days" if seconds >= 2 * 86400 else f"{seconds / 3600:.0f} hours"
