"""CUDA's errors by the process that saw them: a broken GPU, a full one, or a program that went wrong."""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import LogPattern, log_pattern, symptom_pattern


@record
class GpuFull:
    """CUDA had no memory left for this process.

    `others` is the memory in GiB that processes other than this one held then, None where it does not say;
    `total` that of the GPU; `holder` the pid of the one among them that held most, as the program saw it, and
    `holders` how many of them it saw.
    """

    wanted: str
    others: float | None = None
    total: float = 0.0
    holder: int | None = None
    holders: int = 0

    @property
    def crowded(self) -> bool:
        """True when others held most of the GPU: what this process used was not the reason."""
        return self.others is not None and self.others > self.total / 2


@record
class OfGpu:
    """The line goes on with a message of a full GPU, and names the GPU: who pasted it broke the message."""


_SIZE = r"([\d.]{1,12}) ([KMGT])iB"
_TOTAL = re.compile(rf"total capacity of {_SIZE}|{_SIZE} total capacity")
_HELD = re.compile(rf"[Pp]rocess (\d{{1,7}}) has {_SIZE} memory in use")
_FREE = re.compile(rf"{_SIZE} (?:is )?free")
_OWN = (
    re.compile(rf"{_SIZE} (?:is|already) allocated"),
    re.compile(rf"{_SIZE} (?:is reserved by PyTorch but unallocated|cached)"),
)
_RESERVED = re.compile(rf"{_SIZE} reserved in total by PyTorch")
"""Of the process that asked: both of the first, or since torch 1.4 the whole."""
_ITSELF = "this process has"


def _first_gib(found: re.Match[str] | None, first: int = 1) -> float | None:
    """The first size in a match, in GiB."""
    if found is None:
        return None
    number, unit = [group for group in found.groups()[first - 1 :] if group is not None][:2]
    return float(number) / {"K": 1 << 20, "M": 1 << 10, "G": 1, "T": 1 / 1024}[unit]


def _gpu_full(found: re.Match[str]) -> GpuFull:
    """What torch's message says of who held the memory: each process since 2.1, before only its own share."""
    wanted, text = found["wanted"] or "", found.string
    total, free = _first_gib(_TOTAL.search(text)), _first_gib(_FREE.search(text))
    if total is None:
        return GpuFull(wanted)
    own = _first_gib(_RESERVED.search(text)) or sum(
        _first_gib(pattern.search(text)) or 0.0 for pattern in _OWN
    )
    held = {int(row[1]): _first_gib(row, 2) or 0.0 for row in _HELD.finditer(text)}
    if held and _ITSELF not in text:  # in a container torch takes its own process for another one
        held.pop(min(held, key=lambda pid: abs(held[pid] - own)))
    if held and sum(held.values()) <= total:  # under WSL each process has 2^64 bytes
        return GpuFull(wanted, sum(held.values()), total, max(held, key=lambda pid: held[pid]), len(held))
    others = total - free - own if free is not None and own else None
    return GpuFull(wanted, others, total)


_FAULT = (
    r"(?:CUDA error|Cuda failure|CUDA failure|cudaError|CUDA_ERROR|AcceleratorError|HIP (?:error|failure)"
    r"|Error \d+)"
)

SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"(?:(?:torch\.(?:cuda\.)?OutOfMemoryError: )?(?:CUDA|HIP|NPU|XPU) out of memory"
        r"(?:\. Tried to allocate (?P<wanted>[\d.]+ [KMGT]iB))?(?:.{0,12}\b[GNX]PU (?P<gpu>\d+))?"
        r"|torch\.(?:cuda\.)?OutOfMemoryError|^OutOfMemoryError +Traceback"
        r"|(?:CUDA [Ee]rror|(?:[Cc][Uu][Dd][Aa]|HIP) failure(?: \d+)?):? '?out of memory|hipErrorOutOfMemory"
        r"|Test CUDA failure \w{1,40}\.\w{1,4}:\d{1,6} 'out of memory"  # nccl-tests
        r"|\b(?:CU|cu|HIP|hip|ROC)[A-Za-z]{2,9}_(?:STATUS_)?ALLOC_FAILED"
        r"|Failed to CUDA (?:calloc|malloc|host alloc)|CUDA_ERROR_OUT_OF_MEMORY"
        r"|RESOURCE_EXHAUSTED: (?:Out of memory|Attempting to (?:reserve|allocate)|.{0,60}Ran out of memory)"
        r"|Ran out of memory in memory space (?:hbm|HBM)"  # XLA, when it compiles for a TPU
        r"|cudaErrorMemoryAllocation"
        r"|[Cc][Uu][Dd][Aa] (?:driver error|(?:call )?failed with error \d+):? ?out of memory)",
        _gpu_full,
    ),
    log_pattern(r"^GPU (?P<gpu>\d{1,3}) has a total capacity of ", lambda _: OfGpu()),
    log_pattern(  # TensorFlow
        r"OOM when allocating tensor(?:.{0,400}?/device:GPU:(?P<gpu>\d{1,3})\b)?",
        lambda _: GpuFull(""),
    ),
    symptom_pattern(
        "gpu_hardware_xid",
        "ecc",
        r"(?:CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable)\b"
        r"|uncorrectable ECC error encountered|uncorrectable NVLink error|HW Exception by GPU node"
        r"|uncorrectable hardware error",
        "the GPU reported a hardware error to the program",
        personal=True,
    ),
    symptom_pattern(
        "gpu_hardware_xid",
        "device-lost",
        rf"^(?!.*nvls)(?:.*{_FAULT}:? ?(?:999)? ?'?unknown error)|GPU is lost"
        rf"|fallen off the bus"
        r"|GPU requires reset|Unable to determine the device handle",
        "the GPU stopped answering the program",
        personal=True,
    ),
    symptom_pattern(
        "user_code_exception",
        "cuda-program-fault",
        r"block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion `"
        r"|CUDA_ERROR_(?:LAUNCH_(?:FAILED|TIMEOUT)|ILLEGAL_\w+|MISALIGNED_ADDRESS|ASSERT|INVALID_PC)\b"
        r"|(?:cuda|hip)Error(?:LaunchFailure|Illegal\w+|MisalignedAddress|Assert|InvalidPc)\b"
        r"|an illegal memory access was encountered|device-side assert triggered|misaligned address"
        r"|an illegal instruction was encountered|the launch timed out and was terminated"
        r"|unspecified launch failure|hardware stack error|Memory access fault by GPU node"
        r"|CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|NOT_INITIALIZED)"
        r"|invalid program counter|\bUnexpected Event status: \d"
        r"|invalid configuration argument|CUDNN_STATUS_(?:EXECUTION_FAILED|BAD_PARAM|INTERNAL_ERROR)",
        "a kernel of the program went wrong on the GPU",
        quoted=True,
        personal=True,
    ),
    symptom_pattern(
        "user_code_exception",
        "no-such-gpu",
        r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE\b|cudaErrorInvalidDevice\b"
        r"|Invalid CUDAPlace\(\d{1,4}\), must inside",
        "a process asked for a GPU that it does not see",
        quoted=True,
        personal=True,
    ),
    symptom_pattern(
        "user_code_exception",
        "ddp-unused-parameters",
        r"Expected to have finished reduction in the prior iteration"
        r"|did not receive grad for rank (?P<rank>\d+)",
        "parameters of the model took no part in the loss, and DDP waited for their gradients",
        personal=True,
    ),
    symptom_pattern(
        "nvlink_fabric",
        "fabric-not-ready",
        r"system not yet initialized|\b[Ee]rror 802\b|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY"
        r"|[Ff]abric ?[Mm]anager(?!.*NV_WARN_NOTHING_TO_DO).*(?:not running"
        r"|fail|error|stopped|inactive|mismatch)",
        "the GPUs wait for the Fabric Manager (CUDA error 802)",
        of_node=True,
    ),
    symptom_pattern(
        # the fabric manager in a guest that has no NVSwitches; nvidia-smi's word for one not registered
        "nvlink_fabric",
        "fabric-of-host",
        r"\bNV_WARN_NOTHING_TO_DO\b",
        "this virtual machine's GPU was never registered with its host's fabric: nothing in the guest repairs"
        " it",
        of_node=True,
    ),
    symptom_pattern(
        "nvlink_fabric",
        "fabric-in-progress",
        r"\bFabric\b\W{1,4}State\W{1,6}In Progress|^\s{0,12}State {8,60}: In Progress",
        "a GPU is not registered with the NVLink fabric (Fabric State: In Progress)",
        of_node=True,
    ),
    symptom_pattern(
        "driver_problem",
        "driver-too-old",
        r"driver (?:on your system is )?too old|driver version is insufficient|cudaErrorInsufficientDriver"
        r"|compiled with an unsupported toolchain"
        r"|CUDA driver is a stub library",
        "the NVIDIA driver is too old for this CUDA, or not loaded",
        personal=True,
        quoted=True,
    ),
    symptom_pattern(
        "driver_problem",
        "driver-missing",
        r"no CUDA-capable device is detected|No CUDA GPUs are available|Found no NVIDIA driver"
        r"|NVIDIA-SMI has failed"
        r"|driver not loaded|might not have a CUDA (?:gpu|GPU)|could not select device driver|initialize NVML"
        r"|devices?(?:\(s\))? (?:is/)?are busy or unavailable|CUDA unknown error"
        r"|Driver/library version mismatch"
        r"|nvidia-container-cli: .*error|NVML Shared Library Not Found|no GPUs found"
        r"|libcuda\.so\S*: cannot open shared object|CUDA_ERROR_NO_DEVICE|RmInitAdapter failed"
        # unsloth, Colossal-AI, vLLM
        r"|cannot find any torch accelerator|No supported gpu backend found|[Ff]ailed to infer device type",
        "the driver is not loaded, does not match its libraries, or shows no GPU",
        personal=True,
        quoted=True,
    ),
    symptom_pattern(
        "version_mismatch",
        "wrong-build",
        r"undefined symbol: |Value 'sm_\w{1,8}' is not defined for option 'gpu-name'"
        r"|CUDA_ERROR_(?:NO_BINARY_FOR_GPU|UNSUPPORTED_PTX_VERSION|INVALID_PTX|INVALID_IMAGE)\b"
        r"|hipErrorNoBinaryForGpu|Unable to find code object for all current devices"
        r"|cudaErrorNoKernelImageForDevice|no kernel image is available|device kernel image is invalid"
        r"|is not compatible with the current PyTorch installation"
        r"|symbol lookup error|invalid device function|unsupported display driver"
        r"|forward compatibility was attempted"
        r"|detected CUDA version .*mismatches the version|lib(?:nccl(?!-)|cud(?!a\.so)|cublas|cufft|cusparse"
        r"|cupti|nv|torch|c10)\S*: "
        r"cannot open shared object file|version `(?:GLIBC|GLIBCXX|CXXABI|NCCL|libcu)\S*' not found"
        r"|orch not compiled with CUDA enabled|cuDNN version incompatibility|NCCL version mismatch",
        "libraries that do not fit each other: NCCL, CUDA, torch or the driver's compatibility layer",
        personal=True,
        quoted=True,
    ),
    symptom_pattern(
        "user_code_exception",
        "cuda-after-fork",
        r"Cannot re-initialize CUDA in forked subprocess",
        "CUDA was used in a process forked after CUDA had started",
        personal=True,
    ),
    symptom_pattern(
        "driver_problem",
        "cuda-not-started",
        r"failure (?:3 )?'?initialization error",  # after a fork, too: CUDA gives no reason
        "CUDA could not be started in a process",
        decisive=False,
        personal=True,
    ),
)
