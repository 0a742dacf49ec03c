"""Run perftest's ib_write_bw through each port and back, server and client on this host; one JSON document.

    python -I ib_write_bw.py PORT[@GID_INDEX] ...        such as mlx5_0/1 or, for RoCE, mlx5_1/1@3

Ports are measured one after the other, two seconds each. A port whose test does not end is given up after
`LIMIT` seconds; server and client are ended whatever happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

TOOL = "ib_write_bw"
SECONDS, SIZE = 2, 1024**2
LIMIT = 8.0  # seconds for one port
ALL = 75.0  # seconds for all of them
LISTEN = "0A"  # the state in /proc/net/tcp
KEPT = 4000  # characters of what one of them said


def main() -> None:
    """Run as a program."""
    if not sys.argv[1:]:
        sys.exit(__doc__)
    if shutil.which(TOOL) is None:
        print(json.dumps({"error": "not-installed"}))
        return
    end = time.monotonic() + ALL
    document: dict[str, Any] = {"ports": [loopback(word, end) for word in sys.argv[1:]]}
    print(json.dumps({**document, "members": members(document)}))


def members(value: Any) -> int:
    """As in plain_json.py: this program may be handed over as a text, without files beside it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(1 + members(member) for member in inner)


def loopback(word: str, end: float) -> dict[str, str]:
    """What the client printed, and what went wrong: `timeout`, `late` (no time was left), `failed`."""
    name, _, gid = word.partition("@")
    if time.monotonic() > end - LIMIT:
        return {"port": name, "error": "late"}
    port, limit = free_port(), time.monotonic() + LIMIT
    device, _, number = name.partition("/")
    argv = [TOOL, "-d", device, "-i", number, "-p", str(port), "-s", str(SIZE), "-D", str(SECONDS)]
    argv += ["-F", "--report_gbits", *(["-x", gid] if gid else [])]
    try:
        with started(argv) as server:
            if not listens(port, server, limit):
                return {"port": name, "error": "failed", "said": last_words(server)}
            with started([*argv, "127.0.0.1"]) as client:
                return {"port": name, **outcome(client, server, limit)}
    except OSError as error:
        return {"port": name, "error": "failed", "said": f"{TOOL}: {error.strerror or error}"}


def outcome(client: subprocess.Popen[str], server: subprocess.Popen[str], limit: float) -> dict[str, str]:
    """The client's answer; where it failed, also what the server had to say."""
    try:
        output, _ = client.communicate(timeout=max(limit - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        return {"error": "timeout", "said": last_words(client)}
    if client.returncode == 0:
        return {"text": output[-KEPT:]}
    return {"error": "failed", "said": (output[-KEPT // 2 :] + "\n" + last_words(server)).strip()}


@contextlib.contextmanager
def started(argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A child that is killed at the end of the block, and that does not outlive us."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=die_with_parent,
    )
    try:
        yield process
    finally:
        last_words(process)


def die_with_parent() -> None:
    """PR_SET_PDEATHSIG; a C library without prctl leaves it at the kill of our process group."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def last_words(process: subprocess.Popen[str]) -> str:
    """End a child and return what it said; one that cannot be killed is left behind."""
    with contextlib.suppress(OSError):
        process.kill()
    try:
        output, _ = process.communicate(timeout=1)
    except (subprocess.TimeoutExpired, ValueError):  # ValueError: it was read before
        return ""
    return (output or "")[-KEPT // 2 :].strip()


def listens(port: int, server: subprocess.Popen[str], limit: float) -> bool:
    """Wait until the server accepts connections; connecting to see would be taken for the client."""
    while time.monotonic() < limit and server.poll() is None:
        if any(line.split()[1].endswith(f":{port:04X}") for line in listeners()):
            return True
        time.sleep(0.02)
    return False


def listeners() -> Iterator[str]:
    """The lines of sockets that listen."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as lines:
            yield from (line for line in lines if line.split()[3] == LISTEN)


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
