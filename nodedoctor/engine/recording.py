"""Recorded nodes: what the probes printed, as it was, in a zip or a directory anyone can read or write.

A recording comes from another machine, so nothing in it is trusted: names cannot leave its folder, sizes are
bounded before and while reading, and whatever is wrong is said in one line.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, get_args

from nodedoctor import __version__, input_files
from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import loaded, texts
from nodedoctor.model import Observation, Outcome, Provenance
from nodedoctor.record import field, record

if TYPE_CHECKING:
    import zipfile

SCHEMA = "nodedoctor.snapshot/1"
LARGEST = 16 * 1024 * 1024  # bytes of one file; what we record is capped at a quarter of it
LARGEST_ALL = 256 * 1024 * 1024  # bytes of all files together
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class SnapshotError(NodeDoctorError):
    """Why a recording cannot be read, in one line."""


@record
class Snapshot:
    """A node as it was: its observations, when it was seen, and what was asked for.

    `origin` is how a recording that is not real was made, `hardware` what the node is made of, in words. Of a
    recording that does not say where it comes from, the provenance is None.
    """

    observations: Mapping[str, Observation]
    node: Mapping[str, Any] = field(default_factory=dict)
    when: datetime | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    tool: str = ""
    provenance: Provenance | None = None
    origin: str = ""
    hardware: tuple[str, ...] = ()

    @property
    def about(self) -> dict[str, Any]:
        """Where it comes from, as a manifest says it."""
        fields = {"provenance": self.provenance, "origin": self.origin, "hardware": list(self.hardware)}
        return {key: value for key, value in fields.items() if value}


def pack(
    observations: Iterable[Observation],
    node: Mapping[str, Any],
    when: datetime,
    options: Mapping[str, Any],
    about: Mapping[str, Any] | None = None,
) -> bytes:
    """The bytes of a recording's zip; `about` says where it comes from."""
    recorded = list(observations)
    manifest = {
        "schema": SCHEMA,
        "tool": __version__,
        **{key: node.get(key) for key in ("hostname", "boot_id")},
        "when": when.isoformat(timespec="seconds"),
        **(about or {}),
        "options": dict(options),
        "probes": [_observation_entry(observation) for observation in recorded],
    }
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(manifest, indent=1))
        for observation in recorded:
            archive.writestr(f"probes/{observation.probe}.txt", observation.text)
    return buffer.getvalue()


def load(path: Path) -> Snapshot:
    """Read a recording, zip or directory; SnapshotError when it is not one or cannot be trusted."""
    try:
        if path.is_dir():
            return _unpack(_charge_reads(lambda name: _read_file(path / name)))
        return _read_archive(path)
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from None
    except FileNotFoundError as error:
        raise SnapshotError(f"{path}: {error.strerror}") from None
    except (OSError, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SnapshotError(f"{path}: not a recorded node: {reason or type(error).__name__}") from None


def _read_archive(path: Path) -> Snapshot:
    import zipfile  # with lzma and what else it may need 5 ms, which a folder does without

    try:
        with input_files.opened(path) as file, zipfile.ZipFile(_refuse_large(file)) as archive:
            _refuse_hostile(archive)
            return _unpack(_charge_reads(lambda name: _read_member(archive, name)))
    except zipfile.BadZipFile as error:
        reason = str(error).replace("File is not a zip file", "neither a folder nor a zip archive")
        raise ValueError(reason) from None


def _charge_reads(read: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """The same reader, with an account: what is read comes to no more than a recording may hold."""
    remaining = LARGEST_ALL

    def charged(name: str) -> str | None:
        nonlocal remaining
        text = read(name)
        remaining -= len(text or "")
        if remaining < 0:
            raise SnapshotError(f"refused: it holds more than {LARGEST_ALL >> 20} MiB")
        return text

    return charged


def _observation_entry(observation: Observation) -> dict[str, Any]:
    return {
        "name": observation.probe,
        "argv": list(observation.argv),
        "outcome": observation.outcome.value,
        "rc": observation.rc,
        "seconds": observation.seconds,
        "truncated": observation.truncated,
        "note": observation.note,
    }


def _unpack(read: Callable[[str], str | None]) -> Snapshot:
    text = read("manifest.json")
    if text is None:
        raise SnapshotError("not a recorded node: it has no manifest.json")
    try:
        manifest = loaded(text)
    except ValueError:
        raise SnapshotError("manifest.json is not JSON") from None
    if not isinstance(manifest, dict) or not str(manifest.get("schema", "")).startswith(SCHEMA):
        raise SnapshotError(f"manifest.json does not say {SCHEMA!r}")
    entries = manifest.get("probes")
    if not isinstance(entries, list):
        raise SnapshotError("manifest.json has no list of probes")
    _refuse_twice("manifest.json names", (entry["name"] for entry in entries if _unique_names(entry)))
    observations = [_read_observation(entry, read) for entry in entries]
    options = manifest.get("options")
    return Snapshot(
        observations={observation.probe: observation for observation in observations},
        node={key: manifest[key] for key in ("hostname", "boot_id") if isinstance(manifest.get(key), str)},
        when=_read_time(manifest.get("when")),
        options=options if isinstance(options, dict) else {},
        tool=str(manifest.get("tool", "")),
        provenance=_read_provenance(manifest.get("provenance")),
        origin=str(manifest.get("origin", "")),
        hardware=texts(manifest, "hardware"),
    )


def _read_provenance(value: Any) -> Provenance | None:
    return next((provenance for provenance in get_args(Provenance) if provenance == value), None)


def _unique_names(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def _refuse_twice(phrase: str, names: Iterable[str]) -> None:
    """A name must be unique: of two of the same name it is unclear which was meant, and 400 are a bomb."""
    earlier: set[str] = set()
    for name in names:
        if name in earlier:
            raise SnapshotError(f"refused: {phrase} {name[:80]!r} twice")
        earlier.add(name)


def _read_observation(entry: Any, read: Callable[[str], str | None]) -> Observation:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SnapshotError(f"manifest.json names a probe {name!r}")
    try:
        outcome = Outcome(entry.get("outcome", "ok"))
    except ValueError:
        raise SnapshotError(f"probe {name} has an unknown outcome {entry['outcome']!r}") from None
    text = read(f"probes/{name}.txt")
    if text is None and outcome is Outcome.OK:
        raise SnapshotError(f"manifest.json names {name}, but probes/{name}.txt is not there")
    rc, seconds, argv = entry.get("rc", 0), entry.get("seconds", 0.0), entry.get("argv", ())
    return Observation(
        probe=name,
        outcome=outcome,
        text=text or "",
        rc=rc if isinstance(rc, int) else None,
        seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
        note=str(entry.get("note", "")),
        argv=tuple(str(word) for word in argv) if isinstance(argv, list) else (),
        truncated=bool(entry.get("truncated", False)),
    )


def _read_time(text: Any) -> datetime | None:
    try:
        when = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=timezone.utc)


def _read_file(path: Path) -> str | None:
    """A regular file's text; None when it is not there. A fifo or device is refused, not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SnapshotError(f"{path.name} is not a regular file")
        return _bounded_text(file.read(LARGEST + 1), path.name)


def _read_member(archive: zipfile.ZipFile, name: str) -> str | None:
    try:
        info = archive.getinfo(name)
    except KeyError:
        return None
    with archive.open(info) as member:
        # The size in the directory may lie, so the reading itself is bounded.
        return _bounded_text(member.read(LARGEST + 1), name)


def _bounded_text(data: bytes, name: str) -> str:
    if len(data) > LARGEST:
        raise SnapshotError(f"{name} is larger than {LARGEST >> 20} MiB")
    return data.decode("utf-8", "replace")


def _refuse_large(file: BinaryIO) -> BinaryIO:
    """The file, unless it is so large that its list of contents alone could fill the memory."""
    if os.fstat(file.fileno()).st_size > LARGEST_ALL:
        raise SnapshotError(f"not a recorded node: larger than {LARGEST_ALL >> 20} MiB")
    return file


def _refuse_hostile(archive: zipfile.ZipFile) -> None:
    total = 0
    _refuse_twice("it holds", (info.filename for info in archive.infolist()))
    for info in archive.infolist():
        parts = info.filename.replace("\\", "/").split("/")
        if info.filename.startswith(("/", "\\")) or ".." in parts:
            raise SnapshotError(f"refused: it holds a path outside its folder ({info.filename!r})")
        total += info.file_size
        if info.file_size > LARGEST or total > LARGEST_ALL:
            raise SnapshotError(f"refused: {info.filename!r} would unpack to {total >> 20} MiB or more")
