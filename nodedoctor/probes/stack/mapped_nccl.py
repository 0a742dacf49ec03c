"""Which NCCL the libnccl files are that running processes have mapped; one JSON document on stdout.

    python -I mapped_nccl.py PID:PATH...

The version is read from the file as that process sees it, /proc/PID/root/PATH, so that files of containers
are found; nothing is loaded.
"""

from __future__ import annotations

import json
import os
import sys

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.plain_json import with_count
from nodedoctor.probes.stack.target_elf import nccl_version, read_elf

sys.path.pop()


def describe(pid: str, path: str) -> dict[str, str]:
    """One file: its version and the CUDA it was built for, "" when it is gone or does not say."""
    elf = read_elf(f"/proc/{pid}/root{path}") or read_elf(path)
    version, cuda = nccl_version(elf) if elf else ("", "")
    return {"pid": pid, "path": path, "version": version, "cuda": cuda}


def main() -> None:
    """Print the document; the same file of one root is read once."""
    files: dict[tuple[str, int, int], dict[str, str]] = {}
    answer = []
    for word in sys.argv[1:]:
        pid, _, path = word.partition(":")
        try:
            stat = os.stat(f"/proc/{pid}/root{path}")
            key = (path, stat.st_dev, stat.st_ino)
        except OSError:
            key = (word, 0, 0)
        files[key] = files.get(key) or describe(pid, path)
        answer.append({**files[key], "pid": pid})
    print(json.dumps(with_count({"mapped": answer})))


if __name__ == "__main__":
    main()
