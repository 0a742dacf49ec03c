"""Read the error counters of every RDMA port twice, a moment apart; one JSON document on stdout.

    python -I rdma_growth.py [--root DIR] [--seconds 1]

The document has the `seconds` between the two readings of the first counter, and under `growth` by how much
each counter grew, by `DEVICE/PORT/NAME`; those that did not change or went back (a reset) are 0.
`uptime_seconds` is how long the counters may have run: the kernel's, as drivers seldom load later.
"""

from __future__ import annotations

import argparse
import glob
import json
import sys
import time

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.host.files_reading import text_below
from nodedoctor.probes.plain_json import with_count

sys.path.pop()

NAMES = (
    "counters/symbol_error",
    "counters/link_error_recovery",
    "counters/link_downed",
    "counters/port_rcv_errors",
    "counters/port_xmit_discards",
    "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/roce_slow_restart",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
)


def read(root: str) -> dict[str, int]:
    """Every counter there is; a file that does not hold a number is left out."""
    counters: dict[str, int] = {}
    for name in NAMES:
        for path in glob.glob(f"{root}/sys/class/infiniband/*/ports/*/{name}"):
            parts = path.split("/")
            text = text_below(root, path[len(root) :], 32) or ""
            if text.strip().isdecimal():
                counters[f"{parts[-5]}/{parts[-3]}/{parts[-1]}"] = int(text)
    return counters


def uptime(root: str) -> float | None:
    """Seconds since boot."""
    try:
        return float((text_below(root, "/proc/uptime", 64) or "").split()[0])
    except (ValueError, IndexError):
        return None


def main() -> None:
    """Print the document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", default="/", help="where the file system to look at is mounted")
    parser.add_argument("--seconds", type=float, default=1.0, help="between the two readings")
    options = parser.parse_args()
    root = options.root.rstrip("/")
    began = time.monotonic()
    first = read(root)
    time.sleep(max(0.0, options.seconds - (time.monotonic() - began)))
    seconds = time.monotonic() - began
    second = read(root)
    growth = {name: max(0, second[name] - value) for name, value in first.items() if name in second}
    document = {"seconds": round(seconds, 3), "growth": growth, "uptime_seconds": uptime(root)}
    print(json.dumps(with_count(document), sort_keys=True))


if __name__ == "__main__":
    main()
