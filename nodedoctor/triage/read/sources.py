"""What paths are: logs, compressed logs, flight-recorder dumps; folders and patterns are walked.

A file is judged by its first bytes, never by its name. What cannot be read becomes a note, not an exception.
Our own documents are left out: they quote logs, and are none.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import stat
import zlib
from collections.abc import Iterator
from typing import Literal

from nodedoctor import input_files
from nodedoctor.errors import NodeDoctorError
from nodedoctor.record import record
from nodedoctor.triage.lines.decode import is_text

_OWN = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"nodedoctor\.(triage|report|fleet|pairs|compare|accept|rates)/'
)
"""How each of them begins, in one line or in many."""

READ_BY = {
    "triage": "a saved verdict, not a log; `nodedoctor triage FILE` with nothing else shows it again",
    "report": "the report of a node, not a log; --node FILE judges it together with logs",
    "fleet": "the reports of many nodes, not a log; --node FILE takes the report of one",
    "pairs": "what was measured between nodes, not a log",
    "compare": "what differs between two reports, not a log",
    "accept": "the measured rates of a node, not a log",
    "rates": "the measured rates of many nodes, not a log",
}
"""What each is, and what reads it."""


def document_kind(head: bytes) -> str:
    """Which of our documents a file is by its first bytes; '' for anything else."""
    match = _OWN.match(head)
    return match[1].decode() if match else ""


Kind = Literal[
    "text", "gzip", "bzip2", "xz", "zstd", "zip", "tar", "pickle", "json", "ras", "capture", "stdin", "pipe"
]

FILES_AT_MOST = 20_000
"""Files taken from folders: a folder of a whole cluster's logs, and an end to a wrong path like `/`."""

_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\3\4", "zip"),
)
BUG_REPORT = b"Start of NVIDIA bug report log file"
"""How nvidia-bug-report.sh begins its report (drivers 390 to 610)."""
HEAD = 4096
"""Bytes by which a file is judged."""
_RECORDER = (b'"entries"', b'"pg_config"', b'"pg_status"', b'"nccl_comm_state"', b'"comm_lib_version"')


@record
class LogSource:
    """A source: its path, its kind, its size in bytes (0 for streams)."""

    path: str
    kind: Kind
    size: int = 0


@record
class FoundSources:
    """The sources behind the paths, and notes of what is not read and why."""

    sources: tuple[LogSource, ...]
    notes: tuple[str, ...] = ()


class NoSuchPath(NodeDoctorError):
    """A path that was given does not exist or cannot be read, in one line."""


def find_sources(paths: list[str]) -> FoundSources:
    """The sources behind paths, folders and patterns; NoSuchPath for one that leads nowhere."""
    sources: dict[str, LogSource] = {}
    notes: list[str] = []
    for argument in paths:
        if argument == "-":
            sources["-"] = LogSource("-", "stdin")
            continue
        for path, explicit in _reading_order(argument):
            if len(sources) >= FILES_AT_MOST:
                notes.append(f"only the first {FILES_AT_MOST} files were read")
                break
            source = _source_of(path, explicit, notes)
            if source is not None:
                sources.setdefault(os.path.realpath(path), source)
    return FoundSources(tuple(sources.values()), tuple(notes))


def _reading_order(argument: str) -> Iterator[tuple[str, bool]]:
    """Files in reading order, and whether each was named itself."""
    if os.path.isdir(argument):
        yield from ((path, False) for path in _walk_folder(argument))
    elif os.path.lexists(argument):
        yield argument, True
    else:
        matches = sorted(glob.glob(argument, recursive=True))
        if not matches:
            raise NoSuchPath(f"{argument}: no such file or folder")
        for match in matches:
            if os.path.isdir(match):
                yield from ((path, False) for path in _walk_folder(match))
            else:
                yield match, True


def _walk_folder(folder: str) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders.sort()
        if is_black_box(set(folders), set(files)):  # neither its own verdict nor our hook is evidence
            folders[:] = [name for name in folders if name in ("fr", "logs", "nccl")]
            files = ["capture.json"] if "capture.json" in files else []
        for name in sorted(files):
            yield os.path.join(root, name)


def is_black_box(folders: set[str], files: set[str]) -> bool:
    """Whether `run` or `watch` made this folder; without run.json where it was killed at once."""
    has_run_folders = {"fr", "logs", "nccl", "stacks"} <= folders and bool(
        files & {"env.txt", "samples.jsonl"}
    )
    return has_run_folders or ("run.json" in files and ("samples.jsonl" in files or "hook" in folders))


def _source_of(path: str, explicit: bool, notes: list[str]) -> LogSource | None:
    """The source at a path; None for one left out, as a folder's pipe."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            if explicit and stat.S_ISFIFO(status.st_mode):
                return LogSource(path, "pipe")
            if explicit:
                raise NoSuchPath(f"{path}: a {input_files.kind(status.st_mode)}, not a file")
            return None
        with open(path, "rb") as file:
            head = file.read(HEAD)
            file.seek(max(0, status.st_size - HEAD))
            tail = file.read(HEAD)
    except OSError as error:
        if explicit:
            raise NoSuchPath(f"{path}: {error.strerror}") from None
        notes.append(f"{path}: {error.strerror}")
        return None
    if explicit and BUG_REPORT in _unpacked_head(head):
        raise NoSuchPath(
            f"{path}: a bug report of NVIDIA's, not a log; `nodedoctor read {shlex.quote(path)}` judges it"
        )
    if name := document_kind(head):
        if explicit:
            raise NoSuchPath(f"{path}: {READ_BY[name]}")
        notes.append(f"{path}: left out, {READ_BY[name].partition(',')[0]}")
        return None
    kind = kind_of(head)
    if kind == "text" and not explicit and not (is_text(head) or is_text(tail)):
        notes.append(f"{path}: left out, it is neither text nor a dump")
        return None
    return LogSource(path, kind, status.st_size)


def _unpacked_head(head: bytes) -> bytes:
    """How a file begins, also one that gzip packed."""
    if not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, HEAD)
    except zlib.error:
        return b""


def kind_of(head: bytes) -> Kind:
    """What a file is by its first bytes."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[257:262] == b"ustar":
        return "tar"
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return "pickle"
    if head.startswith(b'{"schema": "nodedoctor.capture/'):
        return "capture"
    if head.lstrip()[:1] in (b"{", b"[") and any(key in head for key in _RECORDER):
        return "json"
    if head.lstrip()[:1] == b"{" and b'"nccl_version"' in head and b'"communicators' in head:
        return "ras"
    return "text"
