"""Nodes whose reports lie in files: read by several children at once, none of which can hang us.

A file that does not answer (a dead file system) costs its own deadline: its child is given up, the file is
named, and another child goes on with the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import cast

from nodedoctor.children import child_process
from nodedoctor.declare.registry import Command
from nodedoctor.fleet.document import node_of
from nodedoctor.fleet.model import FleetError, FleetRequest, Node, NodeState
from nodedoctor.json_shapes import loaded
from nodedoctor.model import Status
from nodedoctor.nodeset import of_file, plain

BATCH = 900
"""Files one child is given, fewer than the lines that may wait for us (command.BACKLOG)."""
PORTIONS = 2
"""Children for each processor where files are fewer: no processor waits long for the last one. Ours."""
NAMES = 64 * 1024
"""Bytes of names one child is given; a command line takes two megabytes (execve(2))."""
NOT_THERE = 66
"""Exit code of the child for a path that leads nowhere."""
LOOKS = 8
"""Times within a file's deadline that we look whether its reader still comes forward; ours."""
LISTING = 10.0
"""Seconds a folder may take to be listed; ours."""

_READER = (sys.executable, "-I", "-S", str(Path(__file__).parent / "read_reports.py"))


class Reports:
    """The way to nodes through report files; `paths` are files, and folders of `*.json` and `*.json.gz`."""

    name = "reports"

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._files: list[str] = []
        self._lost: list[Node] = []  # folders that could not be listed
        self._waiting: dict[str, None] = {}
        self._statuses: dict[str, dict[str, Status]] = {}

    async def hosts(self) -> tuple[str, ...]:
        """None: which nodes they are of, only the files know. FleetError when there are no files."""
        listings = await asyncio.gather(*(self._list_files(path) for path in self._paths))
        files = dict.fromkeys(file for listing in listings for file in listing)
        if not files and not self._lost:
            raise FleetError(f"no reports (*.json, *.json.gz) in {' '.join(self._paths)}")
        self._files, self._waiting = list(files), dict.fromkeys(files)
        return ()

    @property
    def expected(self) -> int:
        """How many nodes there will be."""
        return len(self._files) + len(self._lost)

    def waiting(self) -> tuple[str, ...]:
        """The files that have not been read yet."""
        return tuple(self._waiting)

    async def ask(self, request: FleetRequest) -> AsyncIterator[Node]:
        """The node of every file as it is read; `request.deadline` is how long one file may take.

        Several may be of one machine: see fleet/compare/duplicates.py.
        """
        for unlisted in self._lost:
            yield unlisted
        batches = deque(_make_batches(self._files))
        answers: asyncio.Queue[Node | None] = asyncio.Queue()
        workers = [
            asyncio.create_task(self._read_batches(batches, answers, request.deadline))
            for _ in range(min(len(os.sched_getaffinity(0)), len(batches)))
        ]
        try:
            for _ in workers:
                while (node := await answers.get()) is not None:
                    yield node
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _read_batches(
        self, batches: deque[list[str]], answers: asyncio.Queue[Node | None], deadline: float
    ) -> None:
        try:
            while batches:
                batch = deque(batches.popleft())
                while batch:
                    await self._read(batch, answers, deadline)
        finally:
            answers.put_nowait(None)

    async def _read(self, batch: deque[str], answers: asyncio.Queue[Node | None], deadline: float) -> None:
        """Let a child read files and take those it has read off the batch, and the one it stopped at."""
        loop = asyncio.get_running_loop()
        taking = asyncio.create_task(self._take_answers(batch, answers))
        remaining, since = len(batch), loop.time()
        try:
            while not taking.done() and loop.time() - since < deadline:
                await asyncio.wait({taking}, timeout=deadline / LOOKS)
                if len(batch) < remaining:
                    remaining, since = len(batch), loop.time()
        finally:
            taking.cancel()
            await asyncio.wait({taking})
        if not taking.cancelled():
            taking.result()
        elif batch:
            answers.put_nowait(self._unread(batch.popleft(), "silent", f"not read in {deadline:g} s"))

    async def _take_answers(self, batch: deque[str], answers: asyncio.Queue[Node | None]) -> None:
        followed = cast("AsyncGenerator[str, None]", child_process.follow(Command((*_READER, *batch))))
        async with contextlib.aclosing(followed) as lines:
            async for line in lines:
                answers.put_nowait(self._read_node(batch.popleft(), line))
        if batch:
            answers.put_nowait(self._unread(batch.popleft(), "unreadable", "reading it ended our reader"))

    def _read_node(self, file: str, line: str) -> Node:
        entry, _, statuses = line.partition("\t")
        if statuses not in self._statuses:  # nodes that have the same share one table
            self._statuses[statuses] = {c: Status(status) for c, status in loaded(statuses).items()}
        self._waiting.pop(file, None)
        return node_of(loaded(entry), self._statuses[statuses])

    def _unread(self, file: str, state: NodeState, why: str) -> Node:
        self._waiting.pop(file, None)
        return Node(of_file(file), state, note=f"{os.path.basename(file)}: {why}", report=file)

    async def _list_files(self, path: str) -> list[str]:
        observation = await child_process.run("list", Command((*_READER, "--list", path)), LISTING)
        if observation.rc == NOT_THERE:
            raise FleetError(f"{path}: no such file or folder")
        files = [
            os.path.join(folder, name)
            for folder, names in map(
                loaded, () if observation.truncated else observation.text.split("\n")[:-1]
            )
            for name in names
        ]
        if not observation.answered or observation.truncated or observation.rc:
            why = "too many files" if observation.truncated else observation.note or "not listed"
            self._lost.append(Node(plain(path) or "folder", "silent", note=f"{path}: {why}"))
        return files


def _make_batches(files: Sequence[str]) -> Iterator[list[str]]:
    """The files in the order given, in portions; small ones when there are few files for many processors."""
    size = max(1, min(BATCH, -(-len(files) // (PORTIONS * len(os.sched_getaffinity(0))))))
    batch: list[str] = []
    for file in files:
        if batch and (len(batch) >= size or sum(map(len, batch)) + len(file) > NAMES):
            yield batch
            batch = []
        batch.append(file)
    if batch:
        yield batch
