"""What the host does, one line of JSON per interval until stdin ends.

    python -I host_watch.py SECONDS [--root DIR]               CPU, memory, pressure, disks, network
    python -I host_watch.py SECONDS [--root DIR] --infiniband  InfiniBand and RoCE ports

The ports have a process of their own: their counters are read through firmware, which may not answer.
What cannot be read is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import os
import select
import time
from collections.abc import Callable
from typing import Any

SECTOR = 512  # bytes, whatever the disk's own sectors are (Documentation/admin-guide/iostats.rst)
WORD = 4  # bytes: port_rcv_data and port_xmit_data count 32-bit words (IBTA; sysfs-class-infiniband)
MIB = 2**20
NOT_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
NOT_NETWORK = ("lo", "veth", "docker", "br-", "cni", "flannel", "cali", "ib")


def read(path: str) -> str:
    """The text of a file, nothing when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def numbers(text: str) -> list[int]:
    """The whole numbers in a line."""
    return [int(word) for word in text.split() if word.isdecimal()]


def cpu(root: str) -> dict[str, int]:
    """Jiffies since boot: all, idle, waiting for disks."""
    line = read(f"{root}/proc/stat").partition("\n")[0]
    spent = numbers(line.partition(" ")[2])[:8]
    return {"all": sum(spent), "idle": spent[3], "iowait": spent[4]} if len(spent) > 4 else {}


def disks(root: str) -> dict[str, int]:
    """Bytes read from and written to whole disks since boot."""
    total = {"disk_read": 0, "disk_write": 0}
    for name in os.listdir(f"{root}/sys/block") if os.path.isdir(f"{root}/sys/block") else ():
        fields = numbers(read(f"{root}/sys/block/{name}/stat"))
        if len(fields) > 6 and not name.startswith(NOT_DISKS):
            total["disk_read"] += fields[2] * SECTOR
            total["disk_write"] += fields[6] * SECTOR
    return total


def network(root: str) -> dict[str, int]:
    """Bytes received and sent by what looks like a real interface, since boot."""
    total = {"net_rx": 0, "net_tx": 0}
    # With another root, our own network namespace is not the host's: ask process 1.
    for line in read(f"{root}/proc/{'self' if root == '' else '1'}/net/dev").splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = numbers(rest)
        if len(fields) > 8 and not name.strip().startswith(NOT_NETWORK):
            total["net_rx"] += fields[0]
            total["net_tx"] += fields[8]
    return total


def now(root: str) -> dict[str, Any]:
    """What is not a counter: memory, pressure, load, processes that wait for disks."""
    load: dict[str, Any] = {}
    memory = {line.partition(":")[0]: numbers(line) for line in read(f"{root}/proc/meminfo").splitlines()}
    for key, name in (("MemTotal", "memory_total"), ("MemAvailable", "memory_available")):
        if memory.get(key):
            load[f"{name}_gib"] = round(memory[key][0] / MIB, 2)
    if memory.get("SwapTotal") and memory.get("SwapFree"):
        load["swap_used_gib"] = round((memory["SwapTotal"][0] - memory["SwapFree"][0]) / MIB, 2)
    for kind in ("cpu", "memory", "io"):
        # some avg10=1.53 avg60=...: percent of the last ten seconds in which some task was held up
        some = read(f"{root}/proc/pressure/{kind}").partition("avg10=")[2]
        with contextlib.suppress(ValueError):
            load[f"pressure_{kind}_percent"] = float(some.partition(" ")[0])
    with contextlib.suppress(ValueError, IndexError):
        load["load_1m"] = float(read(f"{root}/proc/loadavg").split()[0])
    blocked = read(f"{root}/proc/stat").partition("procs_blocked ")[2].split()
    if blocked and blocked[0].isdecimal():
        load["blocked"] = int(blocked[0])
    return load


def host(root: str) -> Callable[[float], dict[str, Any]]:
    """A function that says how the host did since it was last called."""
    before: dict[str, int] = {}

    def sample(passed: float) -> dict[str, Any]:
        counters = {**cpu(root), **disks(root), **network(root)}
        growth = {name: max(count - before.get(name, count), 0) for name, count in counters.items()}
        before.update(counters)
        load = now(root)
        if growth.get("all"):
            load["cpu_percent"] = round(100 * (1 - (growth["idle"] + growth["iowait"]) / growth["all"]), 1)
            load["iowait_percent"] = round(100 * growth["iowait"] / growth["all"], 1)
        if passed:
            names = ("disk_read", "disk_write", "net_rx", "net_tx")
            load.update({f"{name}_mib_s": round(growth[name] / MIB / passed, 2) for name in names})
        return load

    return sample


def infiniband(root: str) -> Callable[[float], dict[str, Any]]:
    """A function that says what passed each port since it was last called."""
    before: dict[str, int] = {}

    def sample(passed: float) -> dict[str, Any]:
        ports = []
        for folder in sorted(glob.glob(f"{root}/sys/class/infiniband/*/ports/*")):
            parts = folder.split(os.sep)
            port: dict[str, Any] = {"port": f"{parts[-3]}/{parts[-1]}"}
            port["state"] = read(f"{folder}/state").strip().partition(": ")[2]
            for key, name in (("rx", "port_rcv_data"), ("tx", "port_xmit_data")):
                count = numbers(read(f"{folder}/counters/{name}"))
                if count:
                    growth = count[0] - before.get(f"{folder}{key}", count[0])
                    before[f"{folder}{key}"] = count[0]
                    if passed and growth >= 0:
                        port[f"{key}_gbytes_s"] = round(growth * WORD / 1e9 / passed, 3)
            ports.append(port)
        return {"ports": ports}

    return sample


def main() -> None:
    """Run as a program."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--root", default="/")
    parser.add_argument("--infiniband", action="store_true")
    options = parser.parse_args()
    root = options.root.rstrip("/")
    sample = infiniband(root) if options.infiniband else host(root)
    last: float | None = None
    with contextlib.suppress(BrokenPipeError):
        while True:
            began = time.monotonic()
            print(json.dumps(sample(began - last if last is not None else 0.0)), flush=True)
            last = began
            if stdin_ends(began + options.seconds):
                return


def stdin_ends(due: float) -> bool:
    """Wait until a moment of the monotonic clock; True when stdin has ended."""
    while (remaining := due - time.monotonic()) > 0:
        if select.select([0], [], [], remaining)[0] and not os.read(0, 4096):
            return True
    return False


if __name__ == "__main__":
    main()
