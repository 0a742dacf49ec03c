"""The texts behind paths, folders, archives, mails and standard input: bounded, and never by their names.

Nothing is unpacked to disk and no link out of a folder is followed. What cannot be read becomes a note; only
a path that was named itself and leads ignore_path is an error.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nodedoctor import input_files
from nodedoctor.engine.recording import SCHEMA as RECORDING
from nodedoctor.errors import NodeDoctorError
from nodedoctor.intake.long_texts import SAMPLE, is_kernel_log, read_to_end
from nodedoctor.intake.sections import bug_report_sections
from nodedoctor.record import record, replace
from nodedoctor.triage.lines.decode import decode_stream, encoding_of, is_text
from nodedoctor.triage.lines.envelopes.forms import is_mail
from nodedoctor.triage.read.archives import BROKEN, ArchivePart, UnpackBudget, archive_parts
from nodedoctor.triage.read.sources import BUG_REPORT, document_kind, is_black_box

LARGEST_TEXT = 16 << 20
"""Bytes of one text that are looked through; a job's log may be longer, and triage reads all of it. Ours."""
FILES_AT_MOST = 5000
"""Files of one folder or archive; a sosreport has two thousand. Ours."""
HEAD = 4096
_DUMPS = ("pickle", "json", "ras", "capture")


class Unreadable(NodeDoctorError):
    """A path that cannot be read, in one line."""


SOS = "sos_commands"
"""The folder of a sosreport with what commands printed (sosreport/sos 3.0 to 4.10)."""


@record
class Unit:
    """One text or document. `kind` says what it is, `node` which bundle it is of, "" for a loose paste.

    `path` is where it lies, "" for what is inside of something else; `data` are its bytes where those are
    not text. `quiet` is a part of a bundle whose other lines are no log, `line` where it begins in it; with
    `is_cut` lines of it were left out.
    `group` is the folder at the top of an archive: a bundle where a member lies in `sos_commands`.
    """

    name: str
    kind: str
    node: str = ""
    text: str = ""
    path: str = ""
    data: bytes = b""
    quiet: bool = False
    host: str = ""
    group: str = ""
    line: int = 1
    is_cut: bool = False


At = Callable[[str], None]
"""Called with each path before it is opened."""


def ignore_path(path: str) -> None:
    """Ignore the path."""


def standard_input() -> bytes:
    """All of standard input; Unreadable for more than is read from a pipe."""
    data = sys.stdin.buffer.read(input_files.LARGEST + 1)
    if len(data) > input_files.LARGEST:
        raise Unreadable(f"-: more than the {input_files.LARGEST >> 20} MiB that are read from a pipe")
    return data


def units(paths: Sequence[str], notes: list[str], stdin: bytes = b"", at: At = ignore_path) -> Iterator[Unit]:
    """Every text and document behind the paths, one after the other; Unreadable for a path to ignore_path."""
    for path in paths:
        at(path)
        if path == "-":
            yield from _of_bytes("standard input", stdin, notes)
        elif os.path.isdir(path):
            yield from _folder_units(path, notes, at)
        else:
            yield from _named_file(path, notes)


def _named_file(path: str, notes: list[str]) -> Iterator[Unit]:
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):
            yield from _of_bytes(path, input_files.read(path, pipes=True), notes)
            return
        with input_files.opened(path) as file:
            file.read(1)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    yield from _file(path, path, "", notes)


def _folder_units(path: str, notes: list[str], at: At) -> Iterator[Unit]:
    """The files of a folder; one that `run` or `--record` made is one thing, and a sosreport one node."""
    count = 0
    for root, folders, files in os.walk(path):
        at(root)
        folders.sort()
        if "manifest.json" in files and _is_recording(os.path.join(root, "manifest.json")):
            folders.clear()
            yield Unit(root, "recording", root, path=root)
            continue
        if is_black_box(set(folders), set(files)):
            folders.clear()
            yield Unit(root, "job", path=root)
            continue
        node = _bundle_of(path, root)
        for name in sorted(files):
            count += 1
            if count > FILES_AT_MOST:
                notes.append(f"{path}: only the first {FILES_AT_MOST} files were read")
                return
            inside = os.path.join(root, name)
            at(inside)
            try:
                regular = stat.S_ISREG(os.lstat(inside).st_mode)
            except OSError:
                continue
            if regular:  # links lead out of a bundle, and pipes are waited for
                yield from _file(inside, inside, node, notes)


def _is_recording(path: str) -> bool:
    try:
        with input_files.opened(path) as file:
            return RECORDING.encode() in file.read(HEAD)
    except OSError:
        return False


def _bundle_of(start: str, root: str) -> str:
    """The sosreport that a folder is of: the folder that has sos_commands; "" where there is none."""
    here = Path(root)
    for folder in (here, *here.parents):
        if (folder / SOS).is_dir():
            return str(folder)
        if str(folder) == start.rstrip("/"):
            break
    return ""


def _file(path: str, name: str, node: str, notes: list[str]) -> Iterator[Unit]:
    try:
        with input_files.opened(path) as file:
            head = file.read(HEAD)
            if head.startswith(b"PK") and _is_zipped_recording(path):
                yield Unit(name, "recording", path, path=path)
                return
            file.seek(0)
            for part in archive_parts(name, _Seekable(file), UnpackBudget()):
                yield from _part_units(part, name, node, path, notes)
    except (*BROKEN, OSError) as error:
        notes.append(f"{name}: {getattr(error, 'strerror', None) or error or 'damaged'}")


class _Seekable:
    """A file that tells unpackers where it is."""

    def __init__(self, file: object) -> None:
        self._file = file
        self.read: Callable[[int], bytes] = file.read  # type: ignore[attr-defined]

    def seekable_file(self) -> object:
        """For zips, which are read from their end."""
        return self._file


def _is_zipped_recording(path: str) -> bool:
    import zipfile

    try:
        with (
            input_files.opened(path) as file,
            zipfile.ZipFile(file) as archive,
            archive.open("manifest.json") as manifest,
        ):
            return RECORDING.encode() in manifest.read(HEAD)
    except (OSError, KeyError, RuntimeError, NotImplementedError, EOFError, zipfile.BadZipFile):
        return False


def _of_bytes(name: str, data: bytes, notes: list[str]) -> Iterator[Unit]:
    import io

    try:
        for part in archive_parts(name, io.BytesIO(data), UnpackBudget()):
            yield from _part_units(part, name, "", "", notes)
    except BROKEN as error:
        notes.append(f"{name}: {error or 'damaged'}")


def _part_units(part: ArchivePart, outer: str, node: str, path: str, notes: list[str]) -> Iterator[Unit]:
    """What one file, or one member of an archive, is."""
    inside = part.name != outer
    own_path = "" if inside else path
    group = f"{outer}!{part.name[len(outer) + 1 :].lstrip('./').partition('/')[0]}" if inside else ""
    if kind := document_kind(part.head):
        yield Unit(part.name, kind, node, data=_read_bounded(part.read, input_files.LARGEST), path=own_path)
    elif part.kind in _DUMPS:
        yield Unit(
            part.name,
            "job",
            node,
            data=b"" if own_path else _read_bounded(part.read, LARGEST_TEXT),
            path=own_path,
        )
    elif not is_text(part.head):
        if inside and part.head.strip(b"\0"):
            return
        notes.append(f"{part.name}: neither text nor an archive")
    else:
        for unit in _text_units(part, node, own_path, notes):
            yield replace(unit, group=group) if group and not unit.node else unit


def _text_units(part: ArchivePart, node: str, path: str, notes: list[str]) -> Iterator[Unit]:
    encoding = encoding_of(part.head)
    read = decode_stream(part.read, encoding) if encoding != "utf-8" else part.read
    head = read(1 << 16)
    if BUG_REPORT in head[:HEAD]:
        yield from bug_report_sections(part.name, head, read, Unit)
        return
    data = head + _read_bounded(read, LARGEST_TEXT)
    if len(data) > LARGEST_TEXT and is_kernel_log(head[:SAMPLE].decode("utf-8", "replace")):
        kernel_log = read_to_end(data, read)
        yield Unit(part.name, "text", node, kernel_log.text(), path, quiet=bool(node), is_cut=True)
        return
    text = data.decode("utf-8", "replace")
    if is_mail(text[:HEAD]):
        yield from _mail_units(part.name, data, notes)
        return
    long = len(data) > LARGEST_TEXT
    plain = path if path and part.kind == "text" and encoding == "utf-8" else ""
    yield Unit(part.name, "text", node, text, plain or (path if long else ""), quiet=bool(node))


def _mail_units(name: str, data: bytes, notes: list[str]) -> Iterator[Unit]:
    """The texts and attachments of a mail."""
    import email

    for number, part in enumerate(email.message_from_bytes(data).walk()):
        if part.is_multipart():
            continue
        content = part.get_payload(decode=True)
        filename = part.get_filename() or ""
        if isinstance(content, bytes) and content.strip() and part.get_content_subtype() != "html":
            yield from _of_bytes(f"{name}!{os.path.basename(filename) or f'part {number}'}", content, notes)


def _read_bounded(read: Callable[[int], bytes], most: int) -> bytes:
    """At most so many bytes of a stream."""
    data = bytearray()
    while len(data) <= most and (more := read(min(1 << 20, most + 1 - len(data)))):
        data += more
    return bytes(data)
