"""Files that somebody names to be read: what they are is looked at before anything waits for them.

A pipe without a writer stays silent and /dev/zero never ends; both can be named by mistake. What cannot
be read is an OSError whose `strerror` says why in a few words.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from typing import BinaryIO

LARGEST = 64 << 20
"""Bytes of a file that are read, three hundred times the report of a node with eight GPUs; ours."""
FIRST = 15.0
"""Seconds for a pipe to give its first byte: `<(ssh node nodedoctor --json)` takes a few. Ours."""

_GZIP = b"\x1f\x8b"


def read(path: str | os.PathLike[str], *, largest: int = LARGEST, pipes: bool = False) -> bytes:
    """What a file holds, unpacked where it is gzip; OSError when that is more than `largest` bytes."""
    with opened(path, pipes=pipes) as file:
        size = os.fstat(file.fileno()).st_size
        data = _check_size(file.read(min(size or largest, largest) + 1), largest)
    return _check_size(_unpack_data(data, largest + 1), largest) if data.startswith(_GZIP) else data


def opened(path: str | os.PathLike[str], *, pipes: bool = False) -> BinaryIO:
    """A regular file, open; with `pipes` also a pipe, once there is something in it. OSError otherwise."""
    _refuse_kind(os.stat(path).st_mode, pipes)  # opening a device may do something to it
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        _refuse_kind(mode, pipes)
        if stat.S_ISFIFO(mode):
            _await_data(descriptor)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def kind(mode: int) -> str:
    """What something is that is no file."""
    kinds = ((stat.S_ISFIFO, "pipe"), (stat.S_ISDIR, "folder"), (stat.S_ISSOCK, "socket"))
    return next((name for is_it, name in kinds if is_it(mode)), "device")


def _refuse_kind(mode: int, pipes: bool) -> None:
    if not stat.S_ISREG(mode) and not (pipes and stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, f"a {kind(mode)}, not a file")


def _await_data(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(FIRST * 1000):
        raise OSError(errno.ETIMEDOUT, f"a pipe through which nothing came in {FIRST:.0f} s")


def _unpack_data(data: bytes, most: int) -> bytes:
    import gzip
    import io
    import zlib

    try:
        with gzip.open(io.BytesIO(data)) as packed:
            return packed.read(most)
    except (OSError, EOFError, zlib.error) as error:
        raise OSError(errno.EINVAL, f"damaged gzip: {error}") from None


def _check_size(data: bytes, largest: int) -> bytes:
    if len(data) > largest:
        raise OSError(errno.EFBIG, f"larger than the {largest >> 20} MiB that are read")
    return data
