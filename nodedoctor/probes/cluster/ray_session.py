"""What the session folder of a Ray node says: its resources, and the lines of its logs that tell of trouble.

    python -I ray_session.py [--root DIR] [--folder /tmp/ray]

One JSON document on stdout. Nothing is asked of Ray; of logs only the last part is read.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.host.files_reading import inside
from nodedoctor.probes.plain_json import with_count

sys.path.pop()

STATE_BYTES = 64 * 1024
TAIL_BYTES = 512 * 1024
MOST_LINES, LONGEST_LINE = 20, 400

# Ray 2.6 to 2.60, src/ray: gcs_worker_manager.cc, gcs_node_manager.cc, gcs_health_check_manager.cc,
# memory_monitor and worker_killing_policy of raylet/node_manager.cc, common/file_system_monitor.cc
TROUBLE = {
    "gcs_server.out": {
        "worker-death": re.compile(r"Reporting worker exit.*exit_type = (?:SYSTEM_ERROR|NODE_OUT_OF_MEMORY)"),
        "node-death": re.compile(r"node.*(?:marked as dead|is dead|health check failed)", re.IGNORECASE),
    },
    "raylet.out": {
        "out-of-memory": re.compile(r"(?:Killing worker|killed).*(?:memory|OOM)", re.IGNORECASE),
        "disk-full": re.compile(r"is over \d+(?:\.\d+)?% full"),
        "no-descriptors": re.compile(r"Too many open files"),
    },
}
_TIME = re.compile(r"\[?(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})")


def main() -> None:
    """Print the document."""
    words = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
    root, folder = words.get("--root", "/"), words.get("--folder") or "/tmp/ray"
    base = os.path.join("/", folder)
    logs = os.path.join(base, "session_latest", "logs")
    document: dict[str, object] = {"folder": folder, "session": "", "errors": {}, "logs": {}}
    try:
        latest = inside(root, os.path.join(base, "session_latest"), follow=False)
        document["session"] = os.path.basename(os.readlink(latest))
        state = read(root, os.path.join(logs, "debug_state.txt"), STATE_BYTES, tail=False)
        document["state"] = state.partition("ClusterLeaseManager")[0].partition("ClusterTaskManager")[0][
            :4096
        ]
        document["address"] = read(root, os.path.join(base, "ray_current_cluster"), 200, tail=False).strip()
        document["logs"] = {
            name: trouble(root, os.path.join(logs, name), kinds) for name, kinds in TROUBLE.items()
        }
    except OSError as error:
        document["errors"] = {folder: errno.errorcode.get(error.errno or 0, "EIO")}
    print(json.dumps(with_count(document)))


def read(root: str, path: str, size: int, tail: bool) -> str:
    """One end of a file as text; empty when it is not there. OSError for every other reason."""
    try:
        real = inside(root, path)
        if not stat.S_ISREG(os.stat(real).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with open(real, "rb") as file:
            if tail:
                file.seek(max(os.fstat(file.fileno()).st_size - size, 0))
            return file.read(size).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def trouble(root: str, path: str, kinds: dict[str, re.Pattern[str]]) -> dict[str, object]:
    """The last lines of each kind, how many there are, and the time of the log's last line."""
    matches: dict[str, list[str]] = {kind: [] for kind in kinds}
    last = ""
    for line in read(root, path, TAIL_BYTES, tail=True).splitlines():
        time = _TIME.match(line)
        last = time.group(1) if time else last
        for kind, pattern in kinds.items():
            if time and pattern.search(line[:2000]):
                matches[kind].append(line[:LONGEST_LINE])
    counts = {kind: len(lines) for kind, lines in matches.items()}
    return {
        "last": last,
        "counts": counts,
        "lines": {kind: lines[-MOST_LINES:] for kind, lines in matches.items()},
    }


if __name__ == "__main__":
    main()
