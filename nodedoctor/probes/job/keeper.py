"""Writes the files of a job's folder, so that no other process ever waits for its disk.

    python -I -S keeper.py PARENT NAME [COPY]

Makes PARENT/NAME (0700), following no link of another user, and says so in a line of JSON. Then reads frames
from stdin: a line of JSON (name, size, and more: append) and that many bytes. COPY is the number of a
descriptor: what the job prints, which goes to logs/output.log. Each file is bounded; every failure is a line
of JSON, and so is the answer to a frame with a mark: all before it is done. Ends when both inputs have.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
from typing import Any

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.own_links import followed

sys.path.pop()

CHUNK = 1 << 16
"""Bytes at a time."""
COPIED = 1 << 20
"""Bytes of output that wait for us while others have the processor: more than this no user may have
(/proc/sys/fs/pipe-max-size)."""
RING = 32 << 20
"""Bytes of a file that grows; then it becomes NAME.1 and a new one is begun: the newest are always kept."""
LARGEST = 256 << 20
"""Bytes of all other files together."""
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""What Slurm sends to all processes of a job: the verdict on its end is still to be written."""
FOLDERS = ("logs", "stacks", "fr", "nccl")


def main() -> None:
    """Make the folder and write until there is nothing more to come."""
    parent, name = sys.argv[1:3]
    copy = int(sys.argv[3]) if len(sys.argv) > 3 else -1
    os.umask(0o077)
    with contextlib.suppress(OSError):  # what we write can wait: never takes the processor from who prints
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    try:
        parent = followed(parent)
        os.makedirs(parent, exist_ok=True)
        os.mkdir(os.path.join(parent, name))
        for folder in FOLDERS:
            os.mkdir(os.path.join(parent, name, folder))
    except OSError as error:
        print_line({"error": error.strerror or str(error)})
        return
    print_line({"made": True})
    Keeper(os.path.join(parent, name)).run(copy)


def print_line(message: dict[str, Any]) -> None:
    """A line for the reader of stdout; without a reader nothing changes."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


class Keeper:
    """Takes what comes on both inputs, as it comes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.written = 0
        self.frames = bytearray()
        self.rings: dict[str, tuple[int, int]] = {}

    def run(self, copy: int) -> None:
        """Until all inputs have ended."""
        inputs = {0, copy} - {-1}
        if copy >= 0:
            with contextlib.suppress(OSError):
                fcntl.fcntl(copy, fcntl.F_SETPIPE_SZ, COPIED)
        while inputs:
            ready = select.select(list(inputs), [], [])[0]
            if copy in ready and not self.keep_output(copy, COPIED if 0 in ready else CHUNK):
                inputs.discard(copy)
            if 0 in ready:  # last, as a mark in it says that all before it is done
                data = os.read(0, CHUNK)
                self.frames += data
                self.take()
                if not data:
                    inputs.discard(0)

    def keep_output(self, copy: int, most: int) -> bool:
        """Add what the job has printed, `most` bytes of it; False at its end."""
        while most > 0 and select.select([copy], [], [], 0)[0]:
            data = os.read(copy, CHUNK)
            if not data:
                return False
            self.guarded(len(data), self.append, "logs/output.log", data)
            most -= len(data)
        return True

    def take(self) -> None:
        """Write the frames that are whole."""
        while (end := self.frames.find(b"\n")) >= 0:
            head = json.loads(self.frames[:end])
            size = int(head["size"])
            if len(self.frames) < end + 1 + size:
                return
            data = bytes(self.frames[end + 1 : end + 1 + size])
            del self.frames[: end + 1 + size]
            if "mark" in head:
                print_line({"mark": head["mark"]})
                continue
            self.guarded(size, self.append if head.get("more") else self.replace, str(head["name"]), data)

    def guarded(self, size: int, write: Any, name: str, data: bytes) -> None:
        """Write; a loss is reported."""
        try:
            write(name, data)
        except OSError as error:
            print_line({"lost": size, "name": name, "problem": error.strerror or str(error)})

    def append(self, name: str, data: bytes) -> None:
        """Add to a file that starts over when it is full."""
        path = os.path.join(self.folder, name)
        opened, size = self.rings.get(name, (-1, 0))
        if opened >= 0 and size + len(data) > RING:
            os.close(opened)
            os.replace(path, f"{path}.1")
            opened, size = -1, 0
        if opened < 0:
            opened = os.open(path, FLAGS | os.O_APPEND, 0o600)
        self.rings[name] = (opened, size + len(data))
        while data:
            data = data[os.write(opened, data) :]

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all."""
        if "/" in name:
            os.makedirs(os.path.dirname(os.path.join(self.folder, name)), exist_ok=True)
        self.written += len(data)
        if self.written > LARGEST:
            raise OSError(0, f"the folder has {LARGEST >> 20} MiB")
        path = os.path.join(self.folder, name)
        beside = f"{path}.part"
        try:
            with open(os.open(beside, FLAGS | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
            os.replace(beside, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise


if __name__ == "__main__":
    main()
