"""How `files.py` reads: words with globs, one value per path, errors by name.

Nothing is imported that takes longer than a typical read: no json, no re, no typing.
"""

from __future__ import annotations

import errno
import os
import stat
import time

TYPE_CHECKING = False  # importing typing would take as long as a typical read
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Emit = Callable[[str, str, Any], None]  # takes one value: its section, its path, itself

TEXT_BYTES = 64 * 1024
NAMES = 4096
GLOB = frozenset("*?[")
ABSENT = ("ENOENT", "ENOTDIR")
MAGIC = (0, 64)
"""Sizes that procfs gives links of /proc/PID; others have the length of their target (lstat(2))."""
TYPES = {"-": "file", "d": "dir", "c": "char", "b": "block", "p": "fifo", "s": "socket"}


class Item:
    """What to read: the verb, the path so far, the components still to match, whether a glob was matched."""

    __slots__ = ("globbed", "path", "rest", "verb")

    def __init__(self, verb: str, path: str, rest: tuple[str, ...] = (), globbed: bool = False) -> None:
        self.verb = verb
        self.path = path
        self.rest = rest
        self.globbed = globbed


def parse_word(word: str) -> Item | None:
    """Divide `verb:/path/*/name` before its first glob; None when it is no such word."""
    verb, _, path = word.partition(":")
    if verb not in READERS or not path.startswith("/"):
        return None
    parts = [part for part in path.split("/") if part]
    fixed = next((i for i, part in enumerate(parts) if not GLOB.isdisjoint(part)), len(parts))
    return Item(verb, "/" + "/".join(parts[:fixed]), tuple(parts[fixed:]))


def read_item(item: Item, root: str, emit: Emit) -> None:
    """Read every path that an item matches."""
    kind, reader = READERS[item.verb]
    for match in expand(item, root, emit):
        path = normal(match.path)
        emit("at", path, None)
        try:
            value = reader(inside(root, match.path, follow=item.verb != "link"))
        except OSError as error:
            complain(emit, path, error, match.globbed)
            continue
        if kind == "files":
            if len(value) > TEXT_BYTES:
                emit("errors", path, "EFBIG")
            value = _decode_text(value[:TEXT_BYTES])
        emit(kind, path, value)


def expand(item: Item, root: str, emit: Emit) -> Iterator[Item]:
    """Match the components left. A directory that cannot be listed is reported, not taken for empty."""
    if not item.rest:
        yield item
    elif GLOB.isdisjoint(item.rest[0]):
        path = os.path.join(item.path, item.rest[0])
        yield from expand(Item(item.verb, path, item.rest[1:], item.globbed), root, emit)
    else:
        for match in matches(item, root, emit):
            yield from expand(match, root, emit)


def matches(item: Item, root: str, emit: Emit) -> list[Item]:
    """Match the next component, in order of names; hidden names only when the pattern asks for them."""
    pattern = item.rest[0]
    try:
        names = sorted(os.listdir(inside(root, item.path)))
    except OSError as error:
        complain(emit, normal(item.path), error, item.globbed)
        return []
    shown = names if pattern.startswith(".") else [name for name in names if not name.startswith(".")]
    matching = shown if pattern == "*" else _matching_names(shown, pattern)
    return [Item(item.verb, os.path.join(item.path, name), item.rest[1:], True) for name in matching]


def _matching_names(names: list[str], pattern: str) -> list[str]:
    import fnmatch  # brings re along, which only some words need

    return [name for name in names if fnmatch.fnmatchcase(name, pattern)]


def complain(emit: Emit, path: str, error: OSError, globbed: bool) -> None:
    """Report why a path cannot be read, unless a glob only offered it and it is not there."""
    name = errno.errorcode.get(error.errno or 0, "EIO")
    if not (globbed and name in ABSENT):
        emit("errors", path, name)


def normal(path: str) -> str:
    """A path as the document has it: no `..`, and valid text even when its bytes are not."""
    return _decode_text(os.fsencode(os.path.normpath(path)))


def _decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def inside(root: str, path: str, follow: bool = True, depth: int = 0) -> str:
    """Where a path lies on this machine. Below a root, absolute links are followed inside it."""
    if root in ("", "/"):
        return path
    if depth > 40:
        raise OSError(errno.ELOOP, "too many links")
    here = "/"
    parts = [part for part in path.split("/") if part]
    for i, part in enumerate(parts):
        here = os.path.dirname(here) if part == ".." else os.path.join(here, part)
        real, rest = root.rstrip("/") + here, parts[i + 1 :]
        if (rest or follow) and os.path.islink(real):
            target = os.readlink(real)
            if os.lstat(real).st_size in MAGIC and os.lstat(real).st_size != len(os.fsencode(target)):
                return "/".join([real, *rest])  # links of /proc/PID lead where only the kernel knows
            return inside(root, os.path.join(os.path.dirname(here), target, *rest), follow, depth + 1)
    return root.rstrip("/") + here


def read_bytes(path: str, limit: int) -> bytes:
    """The first bytes of a regular file. Opening a device or a pipe does more than read: refused."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "not a regular file")
    with open(path, "rb") as file:
        return file.read(limit)


def text_below(root: str, path: str, limit: int = TEXT_BYTES) -> str | None:
    """The beginning of a text file of a tree, None where there is none; no link leads out of it."""
    try:
        return _decode_text(read_bytes(inside(root, path), limit))
    except OSError:
        return None


def list_names(path: str) -> list[str]:
    """The names in a directory, sorted, the first 4096."""
    return [_decode_text(os.fsencode(name)) for name in sorted(os.listdir(path))[:NAMES]]


def stat_of(path: str) -> dict[str, Any]:
    """Type, mode (octal), owner, size; of a device its number and what the device cgroup and mode allow."""
    status = os.stat(path)
    kind = TYPES.get(stat.filemode(status.st_mode)[0], "unknown")
    owner = {"uid": status.st_uid, "gid": status.st_gid, "size": status.st_size}
    entry = {"type": kind, "mode": f"{stat.S_IMODE(status.st_mode):04o}", **owner}
    if kind not in ("char", "block"):
        return {**entry, "device": ""}
    access = "".join(word for word, bit in (("r", os.R_OK), ("w", os.W_OK)) if os.access(path, bit))
    return {**entry, "device": f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}", "access": access}


def space_of(path: str) -> dict[str, Any]:
    """Size and what ordinary users find free, in bytes and inodes; read-only or not; seconds to answer."""
    began = time.monotonic()
    space = os.statvfs(path)
    return {
        "size_bytes": space.f_blocks * space.f_frsize,
        "free_bytes": space.f_bavail * space.f_frsize,
        "used_bytes": (space.f_blocks - space.f_bfree) * space.f_frsize,
        "inodes": space.f_files,
        "inodes_free": space.f_favail,
        "read_only": bool(space.f_flag & os.ST_RDONLY),
        "seconds": round(time.monotonic() - began, 3),
    }


READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "read": ("files", lambda path: read_bytes(path, TEXT_BYTES + 1)),
    "link": ("links", lambda path: _decode_text(os.fsencode(os.readlink(path)))),
    "hex": ("hex", lambda path: read_bytes(path, 4096).hex()),
    "hex64": ("hex", lambda path: read_bytes(path, 64).hex()),
    "list": ("lists", list_names),
    "stat": ("stats", stat_of),
    "statvfs": ("statvfs", space_of),
}
