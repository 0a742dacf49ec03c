"""What drivers of network adapters counted, as `ethtool -S` shows it; one JSON document on stdout.

    python -I ethtool.py

`interfaces` by name, of each physical one that is up: what was dropped by full buffers, and pause frames.
Drivers have hundreds of counters, of which those of WANTED are printed. The kernel asks the adapter's
firmware, which may not answer: this program is then killed at its time limit.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import re
import socket
import struct
import sys

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.plain_json import with_count

sys.path.pop()

NET = "/sys/class/net"
SIOCETHTOOL = 0x8946  # linux, include/uapi/linux/sockios.h
GET_INFO, GET_NAMES, GET_VALUES = 0x3, 0x1B, 0x1D  # linux, include/uapi/linux/ethtool.h
STATISTICS = 1  # ETH_SS_STATS
INFO_BYTES, COUNT_AT, NAME_BYTES = 196, 180, 32  # struct ethtool_drvinfo, its n_stats, ETH_GSTRING_LEN
MOST = 8192
NAMES = 256
WANTED = re.compile(
    r"rx_(?:discards|packets)_phy|[rt]x_prio[0-7]_(?:discards|pause)|tx_pause_storm_(?:warning|error)_events"
)


def ask(name: str, request: bytearray) -> bytes:
    """Hand the kernel a request about an interface, which it completes in place."""
    memory = array.array("B", request)
    address, _ = memory.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        fcntl.ioctl(asker, SIOCETHTOOL, struct.pack("16sP16x", os.fsencode(name)[:15], address))
    return memory.tobytes()


def statistics(name: str) -> dict[str, int]:
    """The counters of one interface that are wanted; none where its driver keeps none."""
    info = bytearray(INFO_BYTES)
    struct.pack_into("I", info, 0, GET_INFO)
    (count,) = struct.unpack_from("I", ask(name, info), COUNT_AT)
    if not 0 < count <= MOST:
        return {}
    names, values = bytearray(12 + NAME_BYTES * count), bytearray(8 + 8 * count)
    struct.pack_into("III", names, 0, GET_NAMES, STATISTICS, count)
    struct.pack_into("II", values, 0, GET_VALUES, count)
    table = ask(name, names)[12:]
    words = [table[at : at + NAME_BYTES].split(b"\0")[0].decode("ascii", "replace") for at in
             range(0, NAME_BYTES * count, NAME_BYTES)]  # fmt: skip
    counts = struct.unpack_from(f"{count}Q", ask(name, values), 8)
    return {word: number for word, number in zip(words, counts, strict=True) if WANTED.fullmatch(word)}


def main() -> None:
    """Print the document."""
    interfaces: dict[str, dict[str, int]] = {}
    errors: dict[str, str] = {}
    for name in sorted(os.listdir(NET))[:NAMES]:
        if not os.path.exists(f"{NET}/{name}/device"):
            continue
        try:
            with open(f"{NET}/{name}/operstate", encoding="ascii") as file:
                if file.read().strip() == "up":
                    interfaces[name] = statistics(name)
        except (OSError, struct.error) as error:
            errors[name] = str(error)
    print(json.dumps(with_count({"interfaces": interfaces, "errors": errors}), sort_keys=True))


if __name__ == "__main__":
    main()
