"""Removes what processes that have ended left in the folder of stacks: `drop_stacks.py FOLDER`.

Two files for each Python of a job, on the node's own disk, written by stack_hook/sitecustomize.py. Only a
folder of our own user is touched, and only files whose process the kernel says has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.job.alive import lives

sys.path.pop()


def main() -> None:
    """Remove them."""
    folder = sys.argv[1]
    with contextlib.suppress(OSError):
        about = os.lstat(folder)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            return
        for entry in os.listdir(folder):
            pid, _, kind = entry.partition(".")
            if kind in ("json", "txt") and pid.isdecimal():
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    drop(folder, int(pid))


def drop(folder: str, pid: int) -> None:
    """Remove the files of one process, unless it lives; who ended early has left but one of them."""
    path = os.path.join(folder, f"{pid}.json")
    start = None
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        start = int(json.loads(file.read(4096))["start"])
    if not lives(pid, start):
        for name in (path, os.path.join(folder, f"{pid}.txt")):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


if __name__ == "__main__":
    main()
