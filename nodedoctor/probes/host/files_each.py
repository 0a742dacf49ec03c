"""How `files.py --each` reads: every path in a forked process of its own, left behind when it hangs."""

from __future__ import annotations

import json
import os
import selectors
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodedoctor.probes.host.files_reading import Emit, Item, complain, matches, normal, read_item
    from nodedoctor.probes.readers import end
else:  # files.py has put our folder on the path
    from host.files_reading import complain, matches, normal, read_item
    from readers import end


class PathGroup:
    """Paths that share a fate, and the forked process that reads them."""

    def __init__(self, key: str, items: list[Item], root: str, null: int) -> None:
        self.key, self.at, self.done, self.rest = normal(key), normal(key), False, b""
        self.pipe, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            read_and_exit(items, root, null, write_end)
        os.close(write_end)

    def take(self, add: Emit) -> bool:
        """Read what has arrived; False at the end."""
        chunk = os.read(self.pipe, 1 << 16)
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for kind, path, value in map(json.loads, lines):
            if kind in ("at", "done"):
                self.at, self.done = path, kind == "done"
            else:
                add(kind, path, value)
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


def read_each(items: list[Item], root: str, seconds: float, add: Emit) -> None:
    """Read every group in a process of its own, at the same time, and leave behind what does not answer."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        for match in matches(item, root, add) if item.rest else [item]:
            groups.setdefault(match.path, []).append(match)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    deadline = time.monotonic() + seconds
    waiting, pids = selectors.DefaultSelector(), []
    for key, members in groups.items():
        try:
            group = PathGroup(key, members, root, null)
        except OSError as error:  # no more processes or descriptors
            complain(add, normal(key), error, False)
        else:
            pids.append(group.pid)
            waiting.register(group.pipe, selectors.EVENT_READ, group)
    while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
        for selected, _ in waiting.select(left):
            if not selected.data.take(add):
                waiting.unregister(selected.fileobj)
                if not selected.data.done:
                    add("errors", selected.data.at, "CRASH")
    for late in [selected.data for selected in waiting.get_map().values()]:
        for path in {late.key, late.at}:
            add("errors", path, "TIMEOUT")
    end(pids)
