"""CUDA's errors: a broken GPU, a full one, or a program's own fault."""

from __future__ import annotations

import re

from nodedoctor.record import record, replace
from nodedoctor.triage.patterns.rows import read_rows


@record
class GpuFull:
    """CUDA had no memory left for this process.

    `others` is the memory in GiB that processes other than this one held then, None where it does not say;
    `total` that of the GPU, `free` what was left of it; `holder` the pid of the one among them that held
    most, as the program saw it, and `holders` how many of them it saw. `fragmented`: more than was asked for
    was reserved and free in pieces.
    """

    wanted: str = ""
    others: float | None = None
    total: float = 0.0
    holder: int | None = None
    holders: int = 0
    free: float | None = None
    fragmented: bool = False
    as_warning: str = ""
    """The words with which its program tells at the level of a warning that an operation failed of it."""

    @property
    def crowded(self) -> bool:
        """True when other processes held most of the GPU's memory."""
        return self.others is not None and self.others > self.total / 2


DEVICE_ERRORS = frozenset(("ecc", "device-lost", "cuda-program-fault", "cuda-launch-failed"))
"""Names of symptoms that a program reports when its GPU fails under it; its context is of no use any more
(CUDA Runtime API, cudaErrorIllegalAddress and cudaErrorECCUncorrectable)."""
_SIZE = r"([\d.]{1,12}) ([KMGT])iB"
_TOTAL = re.compile(rf"total capacity of {_SIZE}|{_SIZE} total capacity")
_PROCESS_MEMORY = re.compile(rf"[Pp]rocess (\d{{1,7}}) has {_SIZE} memory in use")
_FREE = re.compile(rf"{_SIZE} (?:is )?free")
_REQUEST = re.compile(rf"Tried to allocate {_SIZE}")
_PIECES = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_OWN_PARTS = (
    re.compile(rf"{_SIZE} (?:is|already) allocated"),
    re.compile(rf"{_SIZE} (?:is reserved by PyTorch but unallocated|cached)"),
)
_RESERVED = re.compile(rf"{_SIZE} reserved in total by PyTorch")
"""Of the process that asked: both of the first, or since torch 1.4 the whole."""
_OWN_PROCESS = "this process has"


def _first_gib(match: re.Match[str] | None, first: int = 1) -> float | None:
    """The first size in a match, in GiB."""
    if match is None:
        return None
    number, unit = [group for group in match.groups()[first - 1 :] if group is not None][:2]
    return float(number) / {"K": 1 << 20, "M": 1 << 10, "G": 1, "T": 1 / 1024}[unit]


def _gpu_full(match: re.Match[str]) -> GpuFull:
    """The full GPU in torch's message, with who held its memory.

    Since torch 2.1 it lists each process, before only its own share.
    """
    wanted, text = match["wanted"] or "", match.string
    total, free, request, pieces = (
        _first_gib(pattern.search(text)) for pattern in (_TOTAL, _FREE, _REQUEST, _PIECES)
    )
    full = GpuFull(wanted, fragmented=request is not None and pieces is not None and pieces >= request)
    if total is None:
        return full
    own = _first_gib(_RESERVED.search(text)) or sum(
        _first_gib(pattern.search(text)) or 0.0 for pattern in _OWN_PARTS
    )
    gib_by_pid = {int(row[1]): _first_gib(row, 2) or 0.0 for row in _PROCESS_MEMORY.finditer(text)}
    if gib_by_pid and _OWN_PROCESS not in text:  # in a container torch takes its own process for another one
        gib_by_pid.pop(min(gib_by_pid, key=lambda pid: abs(gib_by_pid[pid] - own)))
    if gib_by_pid and sum(gib_by_pid.values()) <= total:  # under WSL each process has 2^64 bytes
        others, holder = sum(gib_by_pid.values()), max(gib_by_pid, key=lambda pid: gib_by_pid[pid])
        return replace(full, others=others, total=total, holder=holder, holders=len(gib_by_pid), free=free)
    return replace(
        full, others=total - free - own if free is not None and own else None, total=total, free=free
    )


SIGNS = read_rows(
    r"""
# torch, CUDA and its libraries (driver_types.h: error 2), nccl-tests, XLA, which compiles for a TPU, too
_gpu_full
    (?:(?:torch\.(?:cuda\.)?OutOfMemoryError: )?(?:CUDA|HIP|NPU
    |XPU) out of memory(?:\. Tried to allocate (?P<wanted>[\d.]+ [KMGT]iB))?
    (?:.{0,12}\b[GNX]PU (?P<gpu>\d+))?|torch\.(?:cuda\.)?OutOfMemoryError|^OutOfMemoryError +Traceback
    |(?:CUDA [Ee]rror|(?:[Cc][Uu][Dd][Aa]|HIP) failure(?: \d+)?):? '?out of memory|hipErrorOutOfMemory
    |\bCuda failure 2\b|Test CUDA failure \w{1,40}\.\w{1,4}:\d{1,6} 'out of memory
    |\b(?:CU|cu|HIP|hip|ROC)[A-Za-z]{2,9}_(?:STATUS_)?ALLOC_FAILED
    |Failed to CUDA (?:calloc|malloc|host alloc)|CUDA_ERROR_OUT_OF_MEMORY
    |RESOURCE_EXHAUSTED: (?:Out of memory|.{0,60}(?:Attempting to (?:reserve|allocate)|Ran out of memory))
    |Ran out of memory in memory space (?:hbm|HBM)|cudaErrorMemoryAllocation
    |[Cc][Uu][Dd][Aa] (?:driver error|(?:call )?failed with error \d+):? ?out of memory)
# torch, c10/cuda/CUDACachingAllocator.cpp
OF_GPU
    ^GPU (?P<gpu>\d{1,3}) has a total capacity of[ ]
# TensorFlow, whose operations fail at the level of a warning (core/framework/op_requires.h)
GpuFull
    (?P<as_warning>OP_REQUIRES failed at \S{1,200} : .{0,40})?
    OOM when allocating tensor(?:.{0,400}?/device:GPU:(?P<gpu>\d{1,3})\b)?
[gpu_hardware_xid]
# names and texts of CUDA's errors (cuda.h, driver_types.h) and of HIP's
ecc  personal
  the GPU reported a hardware error to the program
    (?:CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable)\b|uncorrectable ECC error encountered
    |uncorrectable NVLink error|HW Exception by GPU node|uncorrectable hardware error
device-lost  personal
  the GPU stopped answering the program
    ^(?!.*nvls)(?:.*(?:CUDA error|Cuda failure|CUDA failure|cudaError|CUDA_ERROR|AcceleratorError
    |HIP (?:error|failure)|Error \d+):? ?(?:999)? ?'?unknown error)|GPU is lost|fallen off the bus
    |GPU requires reset|Unable to determine the device handle(?: for GPU ?(?P<gpu>\d{1,3}):)?
[user_code_exception]
cuda-program-fault  quoted  personal
  a CUDA kernel of the program failed
    block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion `
    |CUDA_ERROR_(?:LAUNCH_TIMEOUT|ILLEGAL_\w+|MISALIGNED_ADDRESS|ASSERT|INVALID_PC)\b
    |(?:cuda|hip)Error(?:Illegal\w+|MisalignedAddress|Assert|InvalidPc)\b
    |an illegal memory access was encountered|device-side assert triggered|misaligned address
    |an illegal instruction was encountered|the launch timed out and was terminated
    |hardware stack error|Memory access fault by GPU node
    |CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|NOT_INITIALIZED)|invalid program counter
    |\bUnexpected Event status: \d|invalid configuration argument
    |CUDNN_STATUS_(?:EXECUTION_FAILED|BAD_PARAM|INTERNAL_ERROR)
# code 719: a bad access of the program, as well as a GPU that fails
cuda-launch-failed  quoted  personal  sure=medium
  the GPU ended a kernel, of the program or for a fault of its own
    CUDA_ERROR_LAUNCH_FAILED\b|(?:cuda|hip)ErrorLaunchFailure\b|unspecified launch failure
no-such-gpu  quoted  personal
  a process asked for a GPU that it does not see
    invalid device ordinal|CUDA_ERROR_INVALID_DEVICE\b|cudaErrorInvalidDevice\b
    |Invalid CUDAPlace\(\d{1,4}\), must inside
ddp-unused-parameters  personal
  parameters of the model took no part in the loss, and DDP waited for their gradients
    Expected to have finished reduction in the prior iteration|did not receive grad for rank (?P<rank>\d+)
[nvlink_fabric]
fabric-not-ready  of_node
  the GPUs are not registered with the NVLink fabric yet (CUDA error 802)
    system not yet initialized|\b[Ee]rror 802\b|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY
    |[Ff]abric ?[Mm]anager(?!.*NV_WARN_NOTHING_TO_DO).*(?:not running|fail|error|stopped|inactive|mismatch)
# the fabric manager in a guest that has no NVSwitches; nvidia-smi's word for one not registered
fabric-of-host  of_node
  this virtual machine's GPU was never registered with its host's fabric: nothing in the guest repairs it
    \bNV_WARN_NOTHING_TO_DO\b
fabric-in-progress  of_node
  a GPU is not registered with the NVLink fabric (Fabric State: In Progress)
    \bFabric\b\W{1,4}State\W{1,6}In Progress|^\s{0,12}State {8,60}: In Progress
[driver_problem]
driver-too-old  personal  quoted
  the NVIDIA driver is too old for this CUDA, or not loaded
    driver (?:on your system is )?too old|driver version is insufficient|cudaErrorInsufficientDriver
    |compiled with an unsupported toolchain|CUDA driver is a stub library
    |nvidia-container-cli: requirement error: unsatisfied condition: (?:cuda|driver) ?>
# moby/moby, daemon/devices.go: no runtime of the container is registered for GPUs
container-toolkit  personal  quoted
  no container can be given a GPU: NVIDIA's container toolkit is not installed, or docker is not set up for it
    could not select device driver
# cudaErrorDevicesUnavailable (driver_types.h): of compute modes, and MIG without an instance
gpu-refused  personal  quoted
  a GPU refuses the program: another one holds it, its compute mode allows no more, or MIG has no instance
    devices?(?:\(s\))? (?:is/)?are busy or unavailable
# torch, c10/cuda/CUDAFunctions.cpp
cuda-unknown  personal  quoted
  CUDA does not start and gives no reason: often nvidia_uvm is not loaded, or /dev/nvidia-uvm is missing
    CUDA unknown error
# NVML (nvml.h, NVML_ERROR_LIB_RM_VERSION_MISMATCH), the kernel's module of the driver
driver-mismatch  personal  quoted
  the driver's libraries are of another version than its kernel module: it was updated, and not loaded again
    Driver/library version mismatch|NVRM: API mismatch: the client
# unsloth, Colossal-AI, vLLM
driver-missing  personal  quoted
  the driver is not loaded, does not match its libraries, or shows no GPU
    no CUDA-capable device is detected|No CUDA GPUs are available|Found no NVIDIA driver
    |NVIDIA-SMI has failed|driver not loaded
    |might not have a CUDA (?:gpu|GPU)(?!.{0,40}\bError (?:101|80[234]): )
    |initialize NVML(?!: Driver/library version)|nvidia-container-cli:
    [ ](?!requirement error: unsatisfied condition: (?:cuda|driver) ?>).*error
    |NVML Shared Library Not Found|no GPUs found|libcuda\.so\S*: cannot open shared object
    |CUDA_ERROR_NO_DEVICE|RmInitAdapter failed|cannot find any torch accelerator
    |No supported gpu backend found|[Ff]ailed to infer device type
[version_mismatch]
wrong-build  personal  quoted
  libraries that do not fit each other: NCCL, CUDA, torch or the driver's compatibility layer
    undefined symbol: |Value 'sm_\w{1,8}' is not defined for option 'gpu-name'
    |CUDA_ERROR_(?:NO_BINARY_FOR_GPU|UNSUPPORTED_PTX_VERSION|INVALID_PTX|INVALID_IMAGE)\b
    |hipErrorNoBinaryForGpu|Unable to find code object for all current devices
    |cudaErrorNoKernelImageForDevice|no kernel image is available|device kernel image is invalid
    |is not compatible with the current PyTorch installation|symbol lookup error|invalid device function
    |unsupported display driver|forward compatibility was attempted
    |detected CUDA version .*mismatches the version
    |lib(?:nccl(?!-)|cud(?!a\.so)|cublas|cufft|cusparse|cupti|nv|torch
    |c10)\S*: cannot open shared object file|version `(?:GLIBC|GLIBCXX|CXXABI|NCCL|libcu)\S*' not found
    |orch not compiled with CUDA enabled|cuDNN version incompatibility|NCCL version mismatch
    |Loaded runtime CuDNN library: \S+ but source was compiled with
# torch/distributed/distributed_c10d.py, torch/csrc/distributed/c10d/TCPStore.cpp
torch-without-part  quoted  personal
  this build of torch has no part that the program asks for
    Distributed package doesn't have \w{2,8} built in
    |use_libuv was requested but PyTorch was buil[dt] without libuv support
# Open MPI (ompi/runtime/ompi_rte.c, its help texts), started by srun and not by mpirun
mpi-without-launcher
  this build of MPI cannot be started by this launcher, of which each process takes itself for a whole job
    \bOMPI was not built with SLURM's PMI support\b
[user_code_exception]
cuda-after-fork  personal
  CUDA was used in a process forked after CUDA had started
    Cannot re-initialize CUDA in forked subprocess
# after a fork, too: CUDA gives no reason
[driver_problem]
cuda-not-started  hint  personal
  CUDA could not be started in a process
    failure (?:3 )?'?initialization error
""",
    _gpu_full, GpuFull,
)  # fmt: skip
