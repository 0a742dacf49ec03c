"""Reads a pickle that may be hostile: plain data only, bounded in size and memory.

PyTorch's own reader loads dumps with plain pickle, which runs whatever a file asks for. Genuine dumps hold no
global at all, so every global is refused here, and what a lying memo index could allocate is bounded.

Unpickling 2000 records takes 20 ms, and a job has a thousand ranks; the last records decide. Records lie one
behind another and begin with the same reference to their first key, so the middle can be cut out and the rest
loaded as a pickle. What refers to the part cut out fails to load; then, or when the ends do not suffice, the
whole is loaded.
"""

from __future__ import annotations

import contextlib
import gc
import io
import pickle
import re
import resource
from collections.abc import Iterator
from typing import Any, NoReturn

from nodedoctor.errors import NodeDoctorError

LARGEST = 1 << 30
"""Bytes; the largest dump seen is 30 MB."""
MEMORY = 4 << 30
"""Bytes of address space one dump may add while it is loaded."""
FREE = 64 << 20
"""Bytes that any dump may add."""
GROWTH = 64
"""Bytes more for each byte of the file. Measured: records of torch 2.10 with stack frames take 11."""
SALVAGED = 32 << 20
"""Bytes of a broken pickle that are read with the slow reader, a megabyte or two a second."""


class PickleRefused(NodeDoctorError):
    """A dump that cannot be or must not be loaded, in one line."""


class _PlainData:
    """Refuses all but plain data."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Refuse: a dump needs none, and calling one could run anything."""
        raise PickleRefused(f"it asks for {module}.{name}, which no genuine dump does; it was not loaded")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        """Refuse references to objects outside of the file."""
        raise PickleRefused("it refers to objects outside of the file")


class _PlainUnpickler(_PlainData, pickle.Unpickler):
    """The reader of whole dumps."""


class _StackUnpickler(_PlainData, pickle._Unpickler):
    """The slow reader written in Python, whose values can be read when it fails."""


def load_pickle(data: bytes) -> Any:
    """The plain data in a pickle; PickleRefused when it is more, too big or broken."""
    if len(data) > LARGEST:
        raise PickleRefused(f"{len(data)} bytes are too many for a dump")
    with bounded_memory(len(data)):
        try:
            return _PlainUnpickler(io.BytesIO(data)).load()
        except PickleRefused:
            raise
        except (MemoryError, RecursionError):
            raise PickleRefused("it would need more memory than a dump can need") from None
        except Exception as error:  # a broken pickle raises nearly anything
            raise PickleRefused(f"broken: {type(error).__name__}: {error}") from None


def salvage_pickle(data: bytes) -> list[Any]:
    """The values on the reader's stack when a truncated pickle ended."""
    reader: Any = _StackUnpickler(io.BytesIO(data[:SALVAGED]))
    with bounded_memory(len(data)), contextlib.suppress(Exception):
        reader.load()
    stacks = [*getattr(reader, "metastack", []), getattr(reader, "stack", [])]
    return [item for stack in stacks for item in stack]


@contextlib.contextmanager
def bounded_memory(size: int) -> Iterator[None]:
    """Limits our address space, and stops garbage collection while thousands of dicts are built.

    A pickle of 23 bytes can ask for a table of gigabytes; what a genuine dump needs grows with its `size`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    ceiling = _address_space() + min(MEMORY, FREE + GROWTH * size)
    limit = ceiling if soft == resource.RLIM_INFINITY else min(soft, ceiling)
    collecting = gc.isenabled()
    gc.disable()
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        if collecting:
            gc.enable()


def _address_space() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 2 << 30


HEAD = 24
TAIL = 96
"""Records kept at the beginning, which name the groups, and at the end."""
_SEARCHED = 192 << 10

_MEMO_PUT = rb"(?:q.|r.{4})"
_FIRST = re.compile(
    rb"X\x07\0\0\0entries" + _MEMO_PUT + rb"?\]" + _MEMO_PUT + rb"?\(\}" + _MEMO_PUT + rb"?\("
    rb"X.{4}[a-z_]+(?:q(.)|r(.{4}))",
    re.DOTALL,
)


def shorten_pickle(data: bytes) -> bytes | None:
    """A pickle of the first and last records; None when short or laid out differently."""
    first = _FIRST.search(data, 0, _SEARCHED)
    if first is None:
        return None
    key = b"h" + first[1] if first[1] else b"j" + first[2]
    start = re.compile(rb"\}" + _MEMO_PUT + rb"?\(" + re.escape(key), re.DOTALL)
    front = _record_starts(start, data, first.end(), first.end() + _SEARCHED)
    back = _record_starts(start, data, max(first.end(), len(data) - _SEARCHED), len(data))
    if len(front) <= HEAD or len(back) < TAIL or back[-TAIL] <= front[HEAD]:
        return None
    return data[: front[HEAD]] + data[back[-TAIL] :]


def _record_starts(start: re.Pattern[bytes], data: bytes, begin: int, end: int) -> list[int]:
    return [match.start() for match in start.finditer(data, begin, end)]
