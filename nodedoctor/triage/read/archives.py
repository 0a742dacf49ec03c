"""Unpacks files and archives, each part with its own name.

Nothing is written to disk. Sizes are counted while reading, a name that comes twice is read once, and what
cannot be opened becomes a note.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import logging
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO, cast

from nodedoctor.record import record
from nodedoctor.triage.lines.decode import Read, ReadableStream
from nodedoctor.triage.read.sources import FILES_AT_MOST, HEAD, Kind, LogSource, kind_of

DEEPEST = 3
"""Layers: a gzip inside of a tar inside of a gzip; a deeper one is a bomb."""
LARGEST = 64 << 30
"""Bytes that all parts of one file may unpack to: an end to a file that has none. Ours."""

BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)
"""What the unpackers of the standard library raise for damaged files."""

_log = logging.getLogger(__name__)


@record
class ArchivePart:
    """One file of an archive: its name, its kind, and how to read it.

    `member` is the place of the outermost archive's member that it is in; `files` how many there are at
    least, as far as that is known.
    """

    name: str
    kind: Kind
    read: Callable[[int], bytes]
    head: bytes
    member: int = 0
    files: int = 1


@record
class ArchiveShare:
    """The members that one of `count` processes reads: every `count`-th from `first` on."""

    first: int = 0
    count: int = 1

    def has(self, member: int) -> bool:
        """Whether a member is among them."""
        return member % self.count == self.first


ALL_MEMBERS = ArchiveShare()


class UnpackBudget:
    """The bytes left to unpack, and notes of unread parts by member.

    The reader of a share has a share of the bytes, so that all together unpack no more than one would.
    """

    def __init__(self, share: ArchiveShare = ALL_MEMBERS) -> None:
        self.left = LARGEST // share.count
        self.member = 0
        self.left_out: list[tuple[int, str]] = []

    def leave_out(self, name: str, why: str) -> None:
        """Note a part that is not read."""
        self.left_out.append((self.member, f"{name}: left out, {why}"))


def archive_parts(
    name: str,
    file: ReadableStream,
    account: UnpackBudget,
    share: ArchiveShare | None = ALL_MEMBERS,
    depth: int = 0,
) -> Iterator[ArchivePart]:
    """The files in a file; each is read before the next is asked for.

    Of the outermost archive a `share` of the members is read; None: this is inside of one.
    """
    start = _PeekableStream(file, account)
    kind = kind_of(start.head)
    if kind not in _UNPACKERS and kind not in ("zip", "tar"):
        yield ArchivePart(name, kind, start.read, start.head)
    elif depth >= DEEPEST:
        account.leave_out(name, "it is packed too often")
    elif kind == "zip":
        yield from _zip_parts(name, file, start, account, share, depth)
    elif kind == "tar":
        yield from _tar_parts(name, start, account, share, depth)
    else:
        yield from archive_parts(name, _UNPACKERS[kind](start), account, share, depth + 1)


def _begin_member(member: int, account: UnpackBudget, share: ArchiveShare | None) -> bool:
    """Whether a member is to be read; later notes are about it."""
    if share is None:
        return True
    account.member = member
    return share.has(member)


def _member_parts(member: int, files: int, parts: Iterator[ArchivePart]) -> Iterator[ArchivePart]:
    """The parts of a member, with the number of files known so far."""
    for number, part in enumerate(parts, 1):
        yield replace(part, member=member, files=files * max(number, part.files))


def count_members(source: LogSource) -> int:
    """How many members of an archive can be read separately; 1 for others.

    A zip lists them. Of a tar it is only known that there may be several, and all that lies before a member
    must be unpacked to reach it. That takes bzip2 longer than it takes to read the logs: nothing is won.
    """
    try:
        with open(source.path, "rb") as file:
            if source.kind == "zip":
                with zipfile.ZipFile(file) as archive:
                    return min(FILES_AT_MOST, len(archive.infolist()))
            start: Any = _PeekableStream(file, UnpackBudget())
            for _ in range(DEEPEST):
                kind = kind_of(start.head)
                if kind not in _UNPACKERS or kind == "bzip2":
                    return FILES_AT_MOST if kind == "tar" else 1
                start = _PeekableStream(_UNPACKERS[kind](start), UnpackBudget())
    except Exception as fault:  # whatever is wrong with it, reading it will tell
        _log.debug("%s: %s", source.path, fault)
    return 1


def read_again(head: bytes, rest: Read) -> Read:
    """Read a stream whose first bytes were read already."""
    again = io.BytesIO(head).read
    return lambda size: again(size) or rest(size)


class _PeekableStream:
    """A stream whose first bytes can be looked at before they are read."""

    def __init__(self, file: ReadableStream, account: UnpackBudget) -> None:
        self._account = account
        self.is_broken = False
        """Whether it failed itself, and not what is packed in it."""
        self.head = b""
        while len(self.head) < HEAD and (more := file.read(HEAD - len(self.head))):
            self.head += more
        self._next = read_again(self.head, file.read)

    def read(self, size: int = -1) -> bytes:
        """The next bytes; OSError where it grows beyond all bounds."""
        if size < 0:
            size = 1 << 20
        try:
            data = self._next(size)
        except BROKEN:
            self.is_broken = True
            raise
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


def _zip_parts(
    name: str,
    file: ReadableStream,
    start: _PeekableStream,
    account: UnpackBudget,
    share: ArchiveShare | None,
    depth: int,
) -> Iterator[ArchivePart]:
    seekable = getattr(file, "seekable_file", lambda: None)()
    if seekable is None:
        account.leave_out(name, "a zip inside of another archive, or in a pipe")
        return
    with zipfile.ZipFile(cast("BinaryIO", seekable)) as archive:
        names: set[str] = set()
        files = [info for info in archive.infolist()[:FILES_AT_MOST] if not info.is_dir()]
        for number, info in enumerate(files):
            inside = f"{name}!{info.filename}"
            twice = info.filename in names
            names.add(info.filename)
            if not _begin_member(number, account, share):
                continue
            if twice:
                account.leave_out(inside, "the name comes twice")
                continue
            try:
                with archive.open(info) as member:
                    parts = archive_parts(inside, member, account, None, depth + 1)
                    yield from _member_parts(number, len(files), parts)
            except (*BROKEN, RuntimeError, NotImplementedError, UnicodeDecodeError) as error:
                account.leave_out(inside, str(error) or "it cannot be opened")
                if account.left < 0:
                    return


def _tar_parts(
    name: str, start: _PeekableStream, account: UnpackBudget, share: ArchiveShare | None, depth: int
) -> Iterator[ArchivePart]:
    names: set[str] = set()
    with tarfile.open(fileobj=cast("Any", start), mode="r|") as archive:
        for number, member in enumerate(info for info in archive if info.isfile()):
            inside = f"{name}!{member.name}"
            refused = member.name in names or len(names) >= FILES_AT_MOST
            if not refused:
                names.add(member.name)
            if not _begin_member(number, account, share):
                continue
            if refused:
                account.leave_out(inside, "the name comes twice, or there are too many")
                continue
            try:
                file = archive.extractfile(member)
                if file is not None:
                    parts = archive_parts(inside, file, account, None, depth + 1)
                    yield from _member_parts(number, number + 1, parts)
            except BROKEN as error:
                if start.is_broken or account.left < 0:
                    raise
                account.leave_out(inside, str(error))


def _open_zstd(file: Any) -> Any:
    """Python has zstd from 3.14; before that the package zstandard, where it is installed."""
    try:
        return importlib.import_module("compression.zstd").open(file)
    except ImportError:
        return importlib.import_module("zstandard").ZstdDecompressor().stream_reader(file)


_UNPACKERS: dict[Kind, Callable[[Any], Any]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file, mode="rb"),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "zstd": _open_zstd,
}

PACKS = frozenset(("zip", "tar", *_UNPACKERS))
"""What may be an archive of several files."""
