"""What a file really holds: packed files are unpacked, archives opened up, each part with its own name.

Nothing is written to disk. Sizes are counted while reading, a name that comes twice is read once, and what
cannot be opened becomes a note.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from nodedoctor.record import record
from nodedoctor.triage.read.decode import Readable
from nodedoctor.triage.read.sources import FILES_AT_MOST, HEAD, Kind, kind_of

DEEPEST = 3
"""Layers: a gzip inside of a tar inside of a gzip; a deeper one is a bomb."""
LARGEST = 64 << 30
"""Bytes that all parts of one file may unpack to: an end to a file that has none. Ours."""

BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)
"""What the unpackers of the standard library raise for damaged files."""


@record
class Part:
    """One file of an archive, or the file itself: its name, what it is, and how to read it."""

    name: str
    kind: Kind
    read: Callable[[int], bytes]
    head: bytes


class Account:
    """Bytes that may still be unpacked, and what was left out."""

    def __init__(self, notes: list[str]) -> None:
        self.left = LARGEST
        self.notes = notes
        self.unread = 0

    def leave_out(self, name: str, why: str) -> None:
        """Note a part that is not read."""
        self.notes.append(f"{name}: left out, {why}")
        self.unread += 1


def parts(name: str, file: Readable, account: Account, depth: int = 0) -> Iterator[Part]:
    """The files in a file, in order; each is read before the next one is asked for."""
    start = _Start(file, account)
    kind = kind_of(start.head)
    if kind not in _UNPACKERS and kind not in ("zip", "tar"):
        yield Part(name, kind, start.read, start.head)
    elif depth >= DEEPEST:
        account.leave_out(name, "it is packed too often")
    elif kind == "zip":
        yield from _zipped(name, file, start, account, depth)
    elif kind == "tar":
        yield from _tarred(name, start, account, depth)
    else:
        yield from parts(name, _UNPACKERS[kind](start), account, depth + 1)


class _Start:
    """A stream whose first bytes can be looked at before they are read."""

    def __init__(self, file: Readable, account: Account) -> None:
        self._file, self._account = file, account
        self.head = b""
        while len(self.head) < HEAD and (more := file.read(HEAD - len(self.head))):
            self.head += more
        self._rest = self.head

    def read(self, size: int = -1) -> bytes:
        """The next bytes; OSError where it grows beyond all bounds."""
        if size < 0:
            size = 1 << 20
        if self._rest:
            data, self._rest = self._rest[:size], self._rest[size:]
        else:
            data = self._file.read(size)
        self._account.left -= len(data)
        if self._account.left < 0:
            raise OSError(f"it has more than {LARGEST >> 30} GiB; the rest was not read")
        return data

    def readable(self) -> bool:
        """For unpackers that ask."""
        return True

    def seekable(self) -> bool:
        """For unpackers that ask."""
        return False


def _zipped(name: str, file: Readable, start: _Start, account: Account, depth: int) -> Iterator[Part]:
    seekable = getattr(file, "seekable_file", lambda: None)()
    if seekable is None:
        account.leave_out(name, "a zip inside of another archive, or in a pipe")
        return
    with zipfile.ZipFile(cast("BinaryIO", seekable)) as archive:
        names: set[str] = set()
        for info in archive.infolist()[:FILES_AT_MOST]:
            inside = f"{name}!{info.filename}"
            if info.is_dir():
                continue
            if info.filename in names:
                account.leave_out(inside, "the name comes twice")
                continue
            names.add(info.filename)
            try:
                with archive.open(info) as member:
                    yield from parts(inside, member, account, depth + 1)
            except (*BROKEN, RuntimeError, NotImplementedError) as error:
                account.leave_out(inside, str(error) or "it cannot be opened")
                if account.left < 0:
                    return


def _tarred(name: str, start: _Start, account: Account, depth: int) -> Iterator[Part]:
    names: set[str] = set()
    with tarfile.open(fileobj=cast("Any", start), mode="r|") as archive:
        for member in archive:
            inside = f"{name}!{member.name}"
            if not member.isfile():
                continue
            if member.name in names or len(names) >= FILES_AT_MOST:
                account.leave_out(inside, "the name comes twice, or there are too many")
                continue
            names.add(member.name)
            file = archive.extractfile(member)
            if file is not None:
                yield from parts(inside, file, account, depth + 1)


def _zstd(file: Any) -> Any:
    """Python has zstd from 3.14; before that the package zstandard, where it is installed."""
    try:
        return importlib.import_module("compression.zstd").open(file)
    except ImportError:
        return importlib.import_module("zstandard").ZstdDecompressor().stream_reader(file)


_UNPACKERS: dict[Kind, Callable[[Any], Any]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "zstd": _zstd,
}
