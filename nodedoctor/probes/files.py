"""Read files that may hang or be denied, and say for each what came of it; one JSON document on stdout.

    python -I files.py [--root DIR] [--each SECONDS] WORD...

A WORD is what to read and a path, whose components may be globs (no `**`):

    read:PATH     text, the first 64 KiB        list:PATH      names in a directory
    link:PATH     where a symbolic link points  stat:PATH      type, mode, owner, size, device number
    hex:PATH      the first 4096 bytes          statvfs:PATH   space and inodes of the file system
    hex64:PATH    the first 64 bytes

Paths in the document are as in the words, without DIR, so that recordings look alike. What cannot be read
stands under `errors` with its error name (EFBIG beside a text: it was cut); what a glob offers and is not
there is no error. A `..` after a glob selects: `*/pci_bus/../config` are the configs of what has a pci_bus.

With --each, every path (with globs: every match of the first one) is read by a process of its own, all at the
same time; what has not answered after SECONDS is `TIMEOUT`, and the rest is reported. SIGKILL does not end a
process in an uninterruptible read, so it is left behind, without any of our pipes.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import selectors
import signal
import stat
import sys
import time

TYPE_CHECKING = False  # importing argparse or typing would take as long as a typical read
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

TEXT_BYTES = 64 * 1024
TOTAL_BYTES = 3 * 1024 * 1024  # below the 4 MiB an observation keeps, with room for error names
ERROR_BYTES = 512 * 1024
NAMES = 4096
GLOB = frozenset("*?[")
ABSENT = ("ENOENT", "ENOTDIR")
TYPES = {"-": "file", "d": "dir", "c": "char", "b": "block", "p": "fifo", "s": "socket"}

if TYPE_CHECKING:
    Emit = Callable[[str, str, Any], None]  # takes one value: its section, its path, itself


class Item:
    """What to read: the verb, the path so far, the components still to match, whether a glob was matched."""

    __slots__ = ("globbed", "path", "rest", "verb")

    def __init__(self, verb: str, path: str, rest: tuple[str, ...] = (), globbed: bool = False) -> None:
        self.verb = verb
        self.path = path
        self.rest = rest
        self.globbed = globbed


class Document:
    """What was found so far, and how large it has become."""

    def __init__(self) -> None:
        kinds = ("files", "links", "hex", "lists", "stats", "statvfs", "errors")
        self.sections: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
        self.size = 0

    def add(self, kind: str, path: str, value: Any) -> None:
        """Keep one value; once the document is large enough, only say what does not fit."""
        if self.size > TOTAL_BYTES:
            kind, value = "errors", "EFBIG"
        if kind in self.sections and self.size <= TOTAL_BYTES + ERROR_BYTES:
            self.size += len(json.dumps([path, value]))
            self.sections[kind][path] = value


def read_item(item: Item, root: str, emit: Emit) -> None:
    """Read every path an item stands for."""
    kind, reader = READERS[item.verb]
    for found in expand(item, root, emit):
        path = normal(found.path)
        emit("at", path, None)
        try:
            value = reader(inside(root, found.path, follow=item.verb != "link"))
        except OSError as error:
            complain(emit, path, error, found.globbed)
            continue
        if kind == "files":
            if len(value) > TEXT_BYTES:
                emit("errors", path, "EFBIG")
            value = _clean(value[:TEXT_BYTES])
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
    hidden = pattern.startswith(".")
    names = [n for n in names if fnmatch.fnmatchcase(n, pattern) and (hidden or not n.startswith("."))]
    return [Item(item.verb, os.path.join(item.path, name), item.rest[1:], True) for name in names]


def complain(emit: Emit, path: str, error: OSError, globbed: bool) -> None:
    """Report why a path cannot be read, unless a glob only offered it and it is not there."""
    name = errno.errorcode.get(error.errno or 0, "EIO")
    if not (globbed and name in ABSENT):
        emit("errors", path, name)


def parse_word(word: str) -> Item | None:
    """Divide `verb:/path/*/name` before its first glob; None when it is no such word."""
    verb, _, path = word.partition(":")
    if verb not in READERS or not path.startswith("/"):
        return None
    parts = [part for part in path.split("/") if part]
    fixed = next((i for i, part in enumerate(parts) if not GLOB.isdisjoint(part)), len(parts))
    return Item(verb, "/" + "/".join(parts[:fixed]), tuple(parts[fixed:]))


def normal(path: str) -> str:
    """A path as it stands in the document: no `..`, and valid text even when its bytes are not."""
    return _clean(os.fsencode(os.path.normpath(path)))


def _clean(raw: bytes) -> str:
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
            if part in ("exe", "root", "cwd") or part.isdigit() or part == "ns":
                return "/".join([real, *rest])  # links of /proc/PID lead where only the kernel knows
            target = os.path.join(os.path.dirname(here), os.readlink(real), *rest)
            return inside(root, target, follow, depth + 1)
    return root.rstrip("/") + here


def read_bytes(path: str, limit: int) -> bytes:
    """The first bytes of a regular file. Opening a device or a pipe does more than read: refused."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "not a regular file")
    with open(path, "rb") as file:
        return file.read(limit)


def list_names(path: str) -> list[str]:
    """The names in a directory, sorted, the first 4096."""
    return [_clean(os.fsencode(name)) for name in sorted(os.listdir(path))[:NAMES]]


def stat_of(path: str) -> dict[str, Any]:
    """Type, mode (octal), owner, size; of a device its number and what the device cgroup and mode allow."""
    found = os.stat(path)
    kind = TYPES.get(stat.filemode(found.st_mode)[0], "unknown")
    owner = {"uid": found.st_uid, "gid": found.st_gid, "size": found.st_size}
    told = {"type": kind, "mode": f"{stat.S_IMODE(found.st_mode):04o}", **owner}
    if kind not in ("char", "block"):
        return {**told, "device": ""}
    access = "".join(word for word, bit in (("r", os.R_OK), ("w", os.W_OK)) if os.access(path, bit))
    return {**told, "device": f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}", "access": access}


def space_of(path: str) -> dict[str, Any]:
    """Size and what ordinary users find free, in bytes and inodes; read-only or not; seconds to answer."""
    began = time.monotonic()
    found = os.statvfs(path)
    return {
        "size_bytes": found.f_blocks * found.f_frsize,
        "free_bytes": found.f_bavail * found.f_frsize,
        "used_bytes": (found.f_blocks - found.f_bfree) * found.f_frsize,
        "inodes": found.f_files,
        "inodes_free": found.f_favail,
        "read_only": bool(found.f_flag & os.ST_RDONLY),
        "seconds": round(time.monotonic() - began, 3),
    }


READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "read": ("files", lambda path: read_bytes(path, TEXT_BYTES + 1)),
    "link": ("links", lambda path: _clean(os.fsencode(os.readlink(path)))),
    "hex": ("hex", lambda path: read_bytes(path, 4096).hex()),
    "hex64": ("hex", lambda path: read_bytes(path, 64).hex()),
    "list": ("lists", list_names),
    "stat": ("stats", stat_of),
    "statvfs": ("statvfs", space_of),
}


class Group:
    """Paths that share a fate, and the forked process that reads them."""

    def __init__(self, key: str, items: list[Item], root: str, null: int) -> None:
        self.key, self.at, self.done, self.rest = normal(key), normal(key), False, b""
        self.pipe, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            read_and_exit(items, root, null, write_end)
        os.close(write_end)

    def take(self, document: Document) -> bool:
        """Read what has arrived; False at the end."""
        chunk = os.read(self.pipe, 1 << 16)
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for kind, path, value in map(json.loads, lines):
            if kind in ("at", "done"):
                self.at, self.done = path, kind == "done"
            else:
                document.add(kind, path, value)
        return bool(chunk)


def read_and_exit(items: list[Item], root: str, null: int, pipe: int) -> None:
    """The life of one forked reader, which holds no pipe of ours but its own."""
    try:
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        with open(pipe, "w", buffering=1, encoding="ascii") as stream:
            for item in items:
                read_item(item, root, lambda *record: print(json.dumps(record), file=stream))
            print(json.dumps(("done", "", None)), file=stream)
    finally:
        os._exit(0)


def read_each(items: list[Item], root: str, seconds: float, document: Document) -> None:
    """Read every group in a process of its own, at the same time, and leave behind what does not answer."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        for match in matches(item, root, document.add) if item.rest else [item]:
            groups.setdefault(match.path, []).append(match)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    deadline = time.monotonic() + seconds
    waiting = selectors.DefaultSelector()
    for key, members in groups.items():
        try:
            group = Group(key, members, root, null)
        except OSError as error:  # no more processes or descriptors
            complain(document.add, normal(key), error, False)
        else:
            waiting.register(group.pipe, selectors.EVENT_READ, group)
    while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
        for selected, _ in waiting.select(left):
            if not selected.data.take(document):
                waiting.unregister(selected.fileobj)
                if not selected.data.done:
                    document.add("errors", selected.data.at, "CRASH")
    for late in [selected.data for selected in waiting.get_map().values()]:
        os.kill(late.pid, signal.SIGKILL)
        for path in {late.key, late.at}:
            document.add("errors", path, "TIMEOUT")


def parse_options(words: list[str]) -> tuple[str, float, list[str]]:
    """The root, the seconds each path may take (0: no limit), and the words; exits when that is no sense."""
    options = {"--root": "/", "--each": "0"}
    while words and words[0].startswith("--"):
        if words[0] not in options or len(words) < 2:
            usage()
        options[words[0]], words = words[1], words[2:]
    return options["--root"], float(options["--each"]), words


def usage() -> NoReturn:
    """Say how to call this program; exit 2."""
    sys.stderr.write(f"{__doc__}\na word is VERB:/PATH, the verb one of {' '.join(READERS)}\n")
    sys.exit(2)


def main() -> None:
    """Read what the words ask for and print the document."""
    root, seconds, words = parse_options(sys.argv[1:])
    items = [item for item in map(parse_word, words) if item]
    if len(items) < len(words):
        usage()
    document = Document()
    if seconds > 0:
        read_each(items, root, seconds, document)
    else:
        for item in items:
            read_item(item, root, document.add)
    sys.stdout.write(json.dumps(document.sections, sort_keys=True) + "\n")
    sys.stdout.flush()
    os._exit(0)  # nothing that was left behind may delay the end


if __name__ == "__main__":
    main()
