"""The error codes of NVIDIA's library and tools that a probe can meet: the one table of what each means.

Names are those of nvmlReturn_t in nvml.h, the source of the meanings; nvidia-smi ends with NVML's number as
its exit code (nvidia-smi(1), RETURN VALUE). Whose move it is follows from the action of the fix (moves.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from nodedoctor.knowledge.fixes.recipes import gpu_reset
from nodedoctor.knowledge.nvml_errors import (
    CORRUPT,
    DEVICES_LOST,
    GIVE_GPUS,
    HOST_OR_CONTAINER,
    HUNG,
    INVESTIGATE,
    LIBRARY,
    NO_DEVICES,
    NO_DRIVER,
    NODES,
    OFF_THE_BUS,
    ON_THE_HOST,
    POWER,
    RECREATE,
    RELOAD,
    RESET,
    STUB,
    UPDATE,
    WAIT,
    WINDOWS,
)
from nodedoctor.model import Fix
from nodedoctor.record import record, replace

Weight = Literal["fail", "warn", "unseen", "quiet"]
"""How bad it is when one value of a GPU that works otherwise is answered so: broken, sick, hidden from us, or
no trouble, because this GPU or driver has no such value."""

NVML_H = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html"

_RANK = "A rank on this GPU fails, and all other ranks wait for it until their watchdog fires."
_NO_CUDA = "No CUDA program can start on this node until the driver initialises."
_SICK = "A driver that cannot answer a question about a GPU often fails the job on it next."
_NO_WORRY = "Training does not notice; what was asked for stays unknown."
_BLIND = "Nothing is known to be wrong; what was asked for could not be seen."


@record
class ErrorCode:
    """One error: what it means, and for training; the fix on a host and, where it differs, in a container.

    `anywhere` is the fix where it is not known whether it was said in a container, if another one is to be
    tried first then.
    `of_value` is how bad it is in the place of a single value; where the library or a GPU cannot be opened
    every error is a failure.
    """

    name: str
    number: int | None
    meaning: str
    training: str
    of_value: Weight
    fix: Fix
    in_container: Fix | None = None
    anywhere: Fix | None = None
    source: str = NVML_H

    def fix_here(self, container: bool | None, index: int | None = None) -> Fix:
        """The fix for where we run, if that is known; it resets the GPU of that index, and none without."""
        fix = (self.anywhere if container is None else self.in_container if container else None) or self.fix
        if fix.action != "reset-gpu" or index is None:
            return fix
        return replace(fix, steps=(*fix.steps, *gpu_reset(index, fix.disturbs)))


NVML: tuple[ErrorCode, ...] = (
    ErrorCode("UNINITIALIZED", 1, "the library was not started", _SICK, "warn", INVESTIGATE),
    ErrorCode("INVALID_ARGUMENT", 2, "this driver does not know this query", _NO_WORRY, "quiet", UPDATE),
    ErrorCode(
        "NOT_SUPPORTED", 3, "this GPU or driver has nothing of the kind", _NO_WORRY, "quiet", INVESTIGATE
    ),
    ErrorCode("NO_PERMISSION", 4, "this user has no permission to ask", _BLIND, "unseen", NODES, GIVE_GPUS),
    ErrorCode("ALREADY_INITIALIZED", 5, "the library was started twice", _NO_WORRY, "warn", UPDATE),
    ErrorCode(
        "NOT_FOUND",
        6,
        "the driver is loaded and does not find what was asked for",
        _BLIND,
        "unseen",
        NO_DEVICES,
        GIVE_GPUS,
    ),
    ErrorCode("INSUFFICIENT_SIZE", 7, "the answer is larger than the space for it", _BLIND, "unseen", UPDATE),
    ErrorCode("INSUFFICIENT_POWER", 8, "the GPU does not get enough power", _RANK, "fail", POWER),
    ErrorCode(
        "DRIVER_NOT_LOADED",
        9,
        "the NVIDIA kernel module is not loaded",
        _NO_CUDA,
        "fail",
        NO_DRIVER,
        ON_THE_HOST,
    ),
    ErrorCode("TIMEOUT", 10, "the driver gave up waiting for the GPU", _SICK, "warn", INVESTIGATE),
    ErrorCode("IRQ_ISSUE", 11, "the GPU's interrupts do not reach the driver", _RANK, "fail", INVESTIGATE),
    ErrorCode("LIBRARY_NOT_FOUND", 12, "libnvidia-ml.so.1 not found", _NO_CUDA, "fail", LIBRARY, GIVE_GPUS),
    ErrorCode(
        "FUNCTION_NOT_FOUND", 13, "a stub or a foreign libnvidia-ml.so.1 was loaded", _NO_WORRY, "quiet", STUB
    ),
    ErrorCode(
        "CORRUPTED_INFOROM",
        14,
        "the InfoROM is corrupt",
        "The GPU computes; its ECC counts, retired pages and limits may be lost or wrong.",
        "warn",
        CORRUPT,
    ),
    ErrorCode("GPU_IS_LOST", 15, "the GPU has fallen off the bus", _RANK, "fail", OFF_THE_BUS),
    ErrorCode("RESET_REQUIRED", 16, "the GPU needs a reset", _RANK, "fail", RESET),
    ErrorCode("OPERATING_SYSTEM", 17, "the operating system blocks the GPU", _RANK, "warn", WINDOWS),
    ErrorCode(
        "LIB_RM_VERSION_MISMATCH",
        18,
        "the driver's libraries and the loaded kernel module differ",
        _NO_CUDA,
        "fail",
        RELOAD,
        RECREATE,
    ),
    ErrorCode("IN_USE", 19, "another program holds what was asked for", _BLIND, "unseen", WAIT),
    ErrorCode("MEMORY", 20, "the driver has no memory left to answer", _SICK, "warn", INVESTIGATE),
    ErrorCode("NO_DATA", 21, "the driver has no value for it", _BLIND, "unseen", WAIT),
    ErrorCode("VGPU_ECC_NOT_SUPPORTED", 22, "a vGPU has no ECC to read", _NO_WORRY, "quiet", INVESTIGATE),
    ErrorCode("INSUFFICIENT_RESOURCES", 23, "the driver lacks resources", _SICK, "warn", INVESTIGATE),
    ErrorCode("FREQ_NOT_SUPPORTED", 24, "a clock has a value the GPU cannot run at", _SICK, "warn", RESET),
    ErrorCode(
        "ARGUMENT_VERSION_MISMATCH",
        25,
        "the driver expects this query in another form",
        _NO_WORRY,
        "quiet",
        UPDATE,
    ),
    ErrorCode("DEPRECATED", 26, "this driver no longer answers this query", _NO_WORRY, "quiet", UPDATE),
    ErrorCode("NOT_READY", 27, "the GPU or its fabric is not ready yet", _BLIND, "unseen", WAIT),
    ErrorCode(
        "GPU_NOT_FOUND",
        28,
        "the driver is loaded but has no usable GPU",
        _RANK,
        "fail",
        NO_DEVICES,
        GIVE_GPUS,
    ),
    ErrorCode("INVALID_STATE", 29, "the GPU is in a state in which it cannot answer", _SICK, "warn", RESET),
    ErrorCode(
        "RESET_TYPE_NOT_SUPPORTED", 30, "the GPU has no reset of this kind", _NO_WORRY, "quiet", INVESTIGATE
    ),
    ErrorCode(
        "UNKNOWN",
        999,
        "the driver fails with an unknown error",
        _SICK,
        "warn",
        INVESTIGATE,
        DEVICES_LOST,
        HOST_OR_CONTAINER,
    ),
    # What our own reader of the library says where it gets no code.
    ErrorCode("NO_ANSWER", None, "the driver hangs on this GPU", _RANK, "fail", HUNG),
    ErrorCode("CRASH", None, "NVIDIA's library crashes on this GPU", _RANK, "fail", OFF_THE_BUS),
    ErrorCode("UNPARSABLE", None, "the answer cannot be what was asked for", _SICK, "warn", INVESTIGATE),
)
_BY_NAME: Mapping[str, ErrorCode] = {row.name: row for row in NVML}
CODES: Mapping[str, int] = {row.name: row.number for row in NVML if row.number is not None}
"""The number of each error of NVML."""
QUIET = frozenset(row.name for row in NVML if row.of_value == "quiet")
"""Errors that say that this GPU or driver has no such value: nothing is hidden from us."""


def nvml_error(name: str) -> ErrorCode:
    """The row of an error; one the table does not know is to be investigated."""
    return _BY_NAME.get(name) or ErrorCode(
        name, None, f"the driver reports {name}", _SICK, "warn", INVESTIGATE
    )
