"""Copies between GPUs, and between a GPU and the host: how fast, and whether what arrives is what was sent.

A part of bandwidth.py. Speeds are GB/s (10^9 bytes), timed by events of the device.
"""

from __future__ import annotations

import ctypes
import mmap
import random
from dataclasses import dataclass, field
from typing import Any

from nodedoctor.probes.measured import host_pages
from nodedoctor.probes.measured.cuda_driver import (
    ALREADY_ENABLED,
    NON_BLOCKING,
    Cuda,
    CudaError,
    Handle,
    Pointer,
    Size,
)

MOST = 32  # copies in a measurement
SMALL, SMALL_COPIES = 16, 64  # bytes and repeats for the latency
PATTERN = 65521  # bytes before a pattern repeats: a prime, so that no displaced page looks right


_memcmp = ctypes.CDLL(None).memcmp


@dataclass(frozen=True)
class Device:
    """One GPU with a context, two buffers of equal size, a stream and two events."""

    index: int
    ordinal: int
    bus_id: str
    context: Handle
    send: Pointer
    receive: Pointer
    stream: Handle
    first: Handle
    last: Handle


@dataclass
class Copier:
    """Measures for `aim` seconds each, with buffers of `size` bytes that hold a pattern of `tile` bytes."""

    cuda: Cuda
    size: int
    tile: int
    aim: float
    host: mmap.mmap
    enabled: set[tuple[int, int]] = field(default_factory=set)

    def open(self, index: int, ordinal: int, bus_id: str) -> Device:
        """Make a context and all that is needed on one GPU."""
        cuda = self.cuda
        device = cuda.number("cuDeviceGet", ordinal)
        context = cuda.handle("cuDevicePrimaryCtxRetain", device)
        cuda.call("cuCtxSetCurrent", context)
        send, receive = cuda.allocate(self.size), cuda.allocate(self.size)
        stream = cuda.handle("cuStreamCreate", NON_BLOCKING)
        events = [cuda.handle("cuEventCreate", 0) for _ in range(2)]
        return Device(index, device, bus_id, context, send, receive, stream, *events)

    def pair(self, source: Device, target: Device) -> dict[str, Any]:
        """Everything about copies from one GPU to another, which the target reads."""
        answer: dict[str, Any] = {"access": self._enable_peer(source, target)}
        data = self._prepare_pair(source, target)
        repeats = self._repeat_count(self._time_copies(source, target, 1))
        seconds = self._time_copies(source, target, repeats)
        answer["wrong"] = self._find_mismatch(target, data)
        answer["read_gbytes_s"] = self._gb_per_s(repeats, seconds)
        small = self._time_copies(source, target, SMALL_COPIES, SMALL)
        answer["latency_us"] = round(small / SMALL_COPIES * 1e6, 2)
        return answer

    def both(self, source: Device, target: Device) -> dict[str, Any]:
        """Copies in both directions at once, between GPUs whose single directions have been measured."""
        repeats = self._repeat_count(self._time_copies(source, target, 1))
        return {"both_gbytes_s": self._gb_per_s(2 * repeats, self._time_both_ways(source, target, repeats))}

    def to_and_from(self, device: Device, memory: mmap.mmap) -> dict[str, Any]:
        """Copies to the GPU and back, and whether what comes back is what went."""
        place, data = Handle(host_pages.address(memory)), self._pair_pattern(f"host {device.index}")
        for start in range(0, self.size, len(data)):
            memory[start : start + len(data)] = data
        self.cuda.call("cuCtxSetCurrent", device.context)
        self.cuda.call("cuMemHostRegister", place, Size(self.size), 1)
        try:
            repeats = self._repeat_count(self._time_local(device, "cuMemcpyHtoDAsync", device.send, place, 1))
            up = self._time_local(device, "cuMemcpyHtoDAsync", device.send, place, repeats)
            ctypes.memset(place, 0, self.size)
            down = self._time_local(device, "cuMemcpyDtoHAsync", place, device.send, repeats)
        finally:
            self.cuda.call("cuMemHostUnregister", place)
        speeds = {"h2d_gbytes_s": self._gb_per_s(repeats, up), "d2h_gbytes_s": self._gb_per_s(repeats, down)}
        return {"wrong": _first_difference(memory, data), **speeds}

    def memory(self, device: Device) -> dict[str, Any]:
        """Device memory: what a copy inside the GPU reads plus what it writes."""
        self.cuda.call("cuCtxSetCurrent", device.context)
        name = "cuMemcpyDtoDAsync"
        repeats = self._repeat_count(self._time_local(device, name, device.receive, device.send, 1))
        took = self._time_local(device, name, device.receive, device.send, repeats)
        return {"gbytes_s": self._gb_per_s(2 * repeats, took)}

    def _enable_peer(self, source: Device, target: Device) -> bool:
        """Let the target reach the source's memory; False when the driver does not offer that."""
        if not self.cuda.number("cuDeviceCanAccessPeer", target.ordinal, source.ordinal):
            return False
        if (source.index, target.index) not in self.enabled:
            self.cuda.call("cuCtxSetCurrent", target.context)
            try:
                self.cuda.call("cuCtxEnablePeerAccess", source.context, 0)
            except CudaError as error:
                if error.code != ALREADY_ENABLED:
                    raise
            self.enabled.add((source.index, target.index))
        return True

    def _prepare_pair(self, source: Device, target: Device) -> bytes:
        """Put a pattern no other pair has on the source and clear the target."""
        data = self._pair_pattern(f"{source.index}-{target.index}")
        self.host[: len(data)] = data
        place = Handle(host_pages.address(self.host))
        self.cuda.call("cuCtxSetCurrent", source.context)
        for start in range(0, self.size, len(data)):
            part = Pointer(source.send.value + start)
            self._time_local(source, "cuMemcpyHtoDAsync", part, place, 1, len(data))
        ctypes.memset(place, 0, self.size)
        self.cuda.call("cuCtxSetCurrent", target.context)
        self.cuda.call("cuMemsetD32", target.receive, 0, Size(self.size // 4))
        return data

    def _find_mismatch(self, target: Device, data: bytes) -> dict[str, int] | None:
        """Where what lies on the target differs from what was sent; None when it does not."""
        place = Handle(host_pages.address(self.host))
        self._time_local(target, "cuMemcpyDtoHAsync", place, target.receive, 1)
        return _first_difference(self.host, data)

    def _pair_pattern(self, name: str) -> bytes:
        return pattern(min(self.size, self.tile), name)

    def _time_copies(self, source: Device, target: Device, repeats: int, size: int = 0) -> float:
        self.cuda.call("cuCtxSetCurrent", target.context)
        self.cuda.call("cuEventRecord", target.first, target.stream)
        self._queue_copies(source, target, repeats, size or self.size)
        self.cuda.call("cuEventRecord", target.last, target.stream)
        return self.cuda.seconds(target.first, target.last)

    def _queue_copies(self, source: Device, target: Device, repeats: int, size: int) -> None:
        to, origin = (target.receive, target.context), (source.send, source.context)
        for _ in range(repeats):
            self.cuda.call("cuMemcpyPeerAsync", *to, *origin, Size(size), target.stream)

    def _time_both_ways(self, source: Device, target: Device, repeats: int) -> float:
        """Both directions at once, from the start of the first copy to the end of the last one."""
        cuda = self.cuda
        cuda.call("cuCtxSetCurrent", target.context)
        cuda.call("cuEventRecord", target.first, target.stream)
        cuda.call("cuStreamWaitEvent", source.stream, target.first, 0)
        for _ in range(repeats):
            self._queue_copies(source, target, 1, self.size)
            cuda.call("cuCtxSetCurrent", source.context)
            self._queue_copies(target, source, 1, self.size)
            cuda.call("cuCtxSetCurrent", target.context)
        cuda.call("cuCtxSetCurrent", source.context)
        cuda.call("cuEventRecord", source.last, source.stream)
        cuda.call("cuCtxSetCurrent", target.context)
        cuda.call("cuStreamWaitEvent", target.stream, source.last, 0)
        cuda.call("cuEventRecord", target.last, target.stream)
        return cuda.seconds(target.first, target.last)

    def _time_local(
        self, device: Device, name: str, to: Any, origin: Any, repeats: int, size: int = 0
    ) -> float:
        """Copies within a device's own stream: with the host, or inside the device."""
        self.cuda.call("cuEventRecord", device.first, device.stream)
        for _ in range(repeats):
            self.cuda.call(name, to, origin, Size(size or self.size), device.stream)
        self.cuda.call("cuEventRecord", device.last, device.stream)
        return self.cuda.seconds(device.first, device.last)

    def _repeat_count(self, seconds: float) -> int:
        return max(2, min(MOST, int(self.aim / seconds))) if seconds > 0 else MOST

    def _gb_per_s(self, copies: int, seconds: float) -> float | None:
        return round(copies * self.size / seconds / 1e9, 2) if seconds > 0 else None


def pattern(size: int, name: str) -> bytes:
    """Bytes that only this name gives."""
    piece = random.Random(name).randbytes(min(size, PATTERN))
    return (piece * (size // len(piece) + 1))[:size]


def _first_difference(memory: mmap.mmap, wanted: bytes) -> dict[str, int] | None:
    """The first place where memory does not hold the wanted bytes over and over; None when it does."""
    size = len(wanted)
    for start in range(0, len(memory), size):
        if _memcmp(Handle(host_pages.address(memory) + start), wanted, Size(size)):
            part = memory[start : start + size]
            place = next(i for i, (a, b) in enumerate(zip(part, wanted, strict=True)) if a != b)
            return {"offset": start + place, "found": part[place], "wanted": wanted[place]}
    return None
