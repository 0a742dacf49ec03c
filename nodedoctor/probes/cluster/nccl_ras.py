"""Asks NCCL's RAS service of a running job for its status: `nccl_ras.py HOST PORT SECONDS` prints the answer.

RAS listens in every NCCL process since 2.24 (port 28028 unless NCCL_RAS_ADDR says otherwise).
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
"""

from __future__ import annotations

import json
import socket
import sys
import time

LARGEST = 16 << 20


def main() -> None:
    """Print {"text": answer} or {"error": why not}."""
    host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    try:
        print(json.dumps({"text": ask(host, port, seconds)}))
    except OSError as error:
        print(json.dumps({"error": error.strerror or str(error)}))


def ask(host: str, port: int, seconds: float) -> str:
    """The verbose status, until the service closes the connection or the time is over."""
    deadline = time.monotonic() + seconds
    data = bytearray()
    with socket.create_connection((host, port), timeout=seconds) as connection:
        connection.sendall(b"verbose status\n")
        while len(data) < LARGEST:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            connection.settimeout(remaining)
            try:
                part = connection.recv(65536)
            except TimeoutError:
                break
            if not part:
                break
            data += part
    return data.decode("utf-8", "replace")


if __name__ == "__main__":
    main()
