"""How `files.py --each` reads: in forked readers, of which one that hangs is left behind with its path only.

A fork takes 2 ms and most paths some microseconds, so one reader is given path after path for as long as it
answers. Whenever all have kept silent for a moment, as many again are started for what is left.
"""

from __future__ import annotations

import json
import os
import selectors
import time

from nodedoctor.probes.host.files_reading import Item, complain, matches, normal, read_item
from nodedoctor.probes.readers import end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from nodedoctor.probes.host.files_reading import Emit

    Group = tuple[str, list[Item]]  # paths that share a fate, and a name for them

PATIENCE_S = 0.02
"""Seconds of silence after which there are more readers; ours: a hundred times what a path takes."""


class Reader:
    """A forked process that reads groups; `key` is the one it has not finished, `at` the path it is at."""

    def __init__(self, groups: list[Group], root: str, null: int, others: list[Reader]) -> None:
        self.key, self.at, self.rest = "", "", b""
        tasks, self.task = os.pipe()
        self.pipe, answers = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self.task)
            os.close(self.pipe)
            raise
        else:
            if self.pid == 0:
                serve(groups, root, (null, tasks, answers), [self, *others])
        finally:
            os.close(tasks)
            os.close(answers)

    def read(self, number: int, key: str) -> None:
        """Give it a group; that it has ended meanwhile is heard at the end of its answers."""
        self.key = self.at = normal(key)
        try:
            os.write(self.task, str(number).encode())
        except BrokenPipeError:
            return

    def take(self, add: Emit) -> bool:
        """Read what has arrived; False at the end."""
        chunk = os.read(self.pipe, 1 << 16)
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for kind, path, value in map(json.loads, lines):
            if kind == "at":
                self.at = path
            elif kind == "done":
                self.key = ""
            else:
                add(kind, path, value)
        return bool(chunk)


def serve(groups: list[Group], root: str, ends: tuple[int, int, int], readers: list[Reader]) -> NoReturn:
    """The life of a reader, which holds no pipe of ours but its own: it says where it is before it reads."""
    try:
        null, tasks, answers = ends
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        for reader in readers:
            os.close(reader.task)
            os.close(reader.pipe)
        with open(answers, "w", encoding="ascii") as stream:

            def tell(*record: object) -> None:
                print(json.dumps(record), file=stream, flush=record[0] in ("at", "done"))

            while number := os.read(tasks, 16):
                for item in groups[int(number)][1]:
                    read_item(item, root, tell)
                tell("done", "", None)
    finally:
        os._exit(0)


class ReaderPool:
    """The readers, and the numbers of the groups that are `left` for them."""

    def __init__(self, groups: list[Group], root: str, add: Emit) -> None:
        self.groups, self.root, self.add = groups, root, add
        self.left = list(range(len(groups)))[::-1]
        self.readers: list[Reader] = []
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.waiting = selectors.DefaultSelector()

    def busy(self) -> list[Reader]:
        """Those that have not finished what they were given."""
        return [reader for reader in self.readers if reader.key]

    def give(self, reader: Reader) -> None:
        """Give it the next group."""
        number = self.left.pop()
        reader.read(number, self.groups[number][0])

    def start(self, more: int) -> bool:
        """Start so many more readers, if there is work for them; whether anything is still to be read."""
        for _ in range(min(more, len(self.left))):
            try:
                reader = Reader(self.groups, self.root, self.null, self.readers)
            except OSError as error:  # no more processes or descriptors
                while self.left and not self.busy():
                    complain(self.add, normal(self.groups[self.left.pop()][0]), error, False)
                break
            self.readers.append(reader)
            self.waiting.register(reader.pipe, selectors.EVENT_READ, reader)
            self.give(reader)
        return bool(self.left or self.busy())

    def observe(self, seconds: float) -> int:
        """Take what is said within so many seconds; how many readers more are needed then."""
        ready = self.waiting.select(seconds)
        for selected, _ in ready:
            reader = selected.data
            if not reader.take(self.add):
                self.waiting.unregister(reader.pipe)
                self.add("errors", reader.at, "CRASH")
                reader.key = ""
            elif not reader.key and self.left:
                self.give(reader)
        busy = len(self.busy())
        return 0 if ready and busy else max(busy, 1)

    def end(self) -> None:
        """Say what did not answer in time, and end all readers that can be ended."""
        late = {path for reader in self.busy() for path in (reader.key, reader.at)}
        for path in [*late, *(normal(self.groups[number][0]) for number in self.left)]:
            self.add("errors", path, "TIMEOUT")
        end(reader.pid for reader in self.readers)


def read_each(items: list[Item], root: str, seconds: float, add: Emit) -> None:
    """Read every group, whatever becomes of the others, and leave behind what does not answer."""
    members: dict[str, list[Item]] = {}
    for item in items:
        for match in matches(item, root, add) if item.rest else [item]:
            members.setdefault(match.path, []).append(match)
    crew = ReaderPool(list(members.items()), root, add)
    ends = time.monotonic() + seconds
    more = 1
    while crew.start(more) and (remaining := ends - time.monotonic()) > 0:
        more = crew.observe(min(remaining, PATIENCE_S) if crew.left else remaining)
    crew.end()
