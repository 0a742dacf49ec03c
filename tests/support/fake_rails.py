"""Adapters that are not there: a tree of /sys for them, and an ib_write_bw that says what it is told to.

The output has the form that perftest prints (src/perftest_parameters.h); its rates are made up.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

PROGRAM = """#!{python}
import json, socket, sys, time
words = sys.argv[1:]
option = lambda name: words[words.index(name) + 1]
rate = {rates}[option("-d")]
partner = words[-1] if words[-2:-1] == ["--report_gbits"] else ""
if partner:
    deadline = time.time() + 5
    link = socket.create_connection((partner, int(option("-p"))), 5)
    rate = min(rate, json.loads(link.makefile().readline()))
    time.sleep(int(option("-D")))
else:
    with socket.socket() as listener:
        listener.bind(("", int(option("-p"))))
        listener.listen()
        link, _ = listener.accept()
    link.sendall(json.dumps(rate).encode() + b"\\n")
    link.recv(1)
if rate < 0:
    print("Unable to init the socket connection")
    sys.exit(1)
print("-" * 87)
print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
print(f" 1048576    23412            0.00               {{rate:.2f}}             0.04")
print("-" * 87)
"""


def rails(tree: Path, count: int, rate: str = "400 Gb/sec (4X NDR)") -> None:
    """Put active InfiniBand adapters into a tree of /sys; one more of a lower rate is for storage."""
    for number in range(count + 1):
        port = tree / f"sys/class/infiniband/mlx5_{number}/ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n")
        (port / "rate").write_text("100 Gb/sec (4X EDR)\n" if number == count else f"{rate}\n")
        (port / "link_layer").write_text("InfiniBand\n")


def program(rates: Mapping[str, float]) -> str:
    """An ib_write_bw whose adapters have these rates in Gb/s; below zero it fails."""
    return PROGRAM.format(python=sys.executable, rates=json.dumps(rates))
