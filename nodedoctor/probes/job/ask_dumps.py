"""Asks ranks for a dump of torch's flight recorder by the pipe that each of them reads.

    python -I -S ask_dumps.py PIPE [PIPE ...]

torch (ProcessGroupNCCL.cpp, DumpPipe) makes TORCH_NCCL_DEBUG_INFO_PIPE_FILE<rank>.pipe and dumps once it can
read a byte there; the dump goes where TORCH_FR_DUMP_TEMP_FILE says. Only pipes that somebody reads are
written to, and nothing here ever waits. Prints {"asked": [PIPE, ...]}.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys

FLAGS = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def main() -> None:
    """Ask all of them."""
    paths = []
    for path in sys.argv[1:]:
        with contextlib.suppress(OSError):
            opened = os.open(path, FLAGS) if stat.S_ISFIFO(os.lstat(path).st_mode) else -1
            if opened >= 0:
                with open(opened, "wb", buffering=0) as pipe:
                    pipe.write(b"1")
                paths.append(path)
    print(json.dumps({"asked": paths}))


if __name__ == "__main__":
    main()
