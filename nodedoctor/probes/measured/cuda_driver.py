"""The calls of libcuda.so.1 that copying needs, through ctypes: no CUDA toolkit and no torch is needed.

A part of bandwidth.py. ctypes does not see cuda.h, which renames calls: the plain names are an old 32-bit
interface, so those with a second version are bound by their `_v2` names here.
"""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libcuda.so.1"
VERSION_2 = {
    name: f"{name}_v2"
    for name in (
        "cuDevicePrimaryCtxRelease",
        "cuMemAlloc",
        "cuMemFree",
        "cuMemHostRegister",
        "cuMemsetD32",
        "cuMemcpyDtoDAsync",
        "cuMemcpyDtoHAsync",
        "cuMemcpyHtoDAsync",
        "cuStreamDestroy",
        "cuEventDestroy",
    )
}
ALREADY_ENABLED = 704  # CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING

Handle = ctypes.c_void_p
Pointer = ctypes.c_uint64
Size = ctypes.c_size_t


class CudaError(Exception):
    """A driver call that did not succeed: `name` as in cuda.h, its `code`, and the `call`."""

    def __init__(self, name: str, code: int, call: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.name = name
        self.code = code
        self.call = call

    def told(self) -> dict[str, Any]:
        """For the document."""
        return {"error": self.name, "code": self.code, "call": self.call}


class Cuda:
    """The driver library, started. OSError when there is none, CudaError when it does not start.

    `copied` are the seconds that timed work has taken so far.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)
        self.copied = 0.0
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function by its name in cuda.h; CudaError unless it succeeds."""
        function = getattr(self._library, VERSION_2.get(name, name))
        code = function(*arguments)
        if code:
            raise CudaError(self._error_name(code), code, name)

    def number(self, name: str, *arguments: Any) -> int:
        """What a function writes through its first argument, an int."""
        value = ctypes.c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def handle(self, name: str, *arguments: Any) -> Handle:
        """What a function writes through its first argument, a handle."""
        value = Handle()
        self.call(name, ctypes.byref(value), *arguments)
        return value

    def allocate(self, size: int) -> Pointer:
        """Device memory of the current context."""
        pointer = Pointer()
        self.call("cuMemAlloc", ctypes.byref(pointer), Size(size))
        return pointer

    def bus_id(self, device: int) -> str:
        """Where a device is on the PCI bus, as 0000:4b:00.0."""
        text = ctypes.create_string_buffer(32)
        self.call("cuDeviceGetPCIBusId", text, 32, device)
        return text.value.decode("ascii", "replace").lower()

    def seconds(self, first: Handle, last: Handle) -> float:
        """The time between two recorded events; waits for the second."""
        self.call("cuEventSynchronize", last)
        milliseconds = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(milliseconds), first, last)
        self.copied += milliseconds.value / 1000
        return milliseconds.value / 1000

    def _error_name(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self._library.cuGetErrorName(code, ctypes.byref(text)) or not text.value:
            return f"CUDA_ERROR_{code}"
        return text.value.decode("ascii", "replace")
