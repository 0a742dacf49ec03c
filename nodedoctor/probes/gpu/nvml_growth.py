"""Read error counters of all GPUs twice, one line of JSON per sample: only their growth says what is now.

    python -I nvml_growth.py [SECONDS]

Asked are PCIe replays, corrected memory errors, the reasons for the clocks at that moment, the errors of
every NVLink, and of a GPU at full load how many processes use it. A driver that does not start gives one line
that says so. The second sample opens every GPU again, which costs nothing.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import time

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.gpu import nvml_calls as calls
from nodedoctor.probes.gpu.nvml_library import NvmlLibrary, init, keep
from nodedoctor.probes.packages import add_folders
from nodedoctor.probes.plain_json import with_count

sys.path.pop()

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VALUES = {
    key: calls.VALUES[key]
    for key in ("pcie_replays", "ecc_volatile_correctable", "clock_event_reasons", "utilization")
}
FULL_PERCENT = 95  # of the time some kernel ran on the GPU


def read_gpu(library: NvmlLibrary, index: int) -> dict[str, Any]:
    """The counters of one GPU; only the reason when it cannot be opened."""
    handle, error = library.call(index, "nvmlDeviceGetHandleByIndex", index)
    if error:
        return {"index": index, "error": error}
    readings: dict[str, Any] = library.values(index, VALUES, handle)
    library.fields(index, handle, {"nvlink_count": calls.FIELDS["nvlink_count"]}, readings)
    if readings["values"].get("utilization", {}).get("gpu", 0) >= FULL_PERCENT:
        users = library.values(index, {key: calls.VALUES[key] for key in calls.PROCESSES}, handle)
        if not set(users["errors"].values()) - calls.OLDER - {"NOT_SUPPORTED"}:
            readings["values"]["users"] = sum(map(len, users["values"].values()))
    count = readings["values"].pop("nvlink_count", 0)
    links = [read_link(library, index, handle, link) for link in range(min(count, calls.MAX_LINKS))]
    return {"index": index, **readings, "links": links}


def read_link(library: NvmlLibrary, index: int, handle: Any, link: int) -> dict[str, Any]:
    """The error counters of one NVLink; NVLink 5 has counters of its own."""
    readings: dict[str, Any] = {"values": {}, "errors": {}}
    version, _ = library.call(index, "nvmlDeviceGetNvLinkVersion", handle, link)
    if version is not None and version >= calls.NVLINK_5:
        fields = {key: (number, link) for key, number in calls.LINK_FIELDS.items() if "ber" not in key}
        library.fields(index, handle, fields, readings)
    else:
        for key, counter in calls.LINK_COUNTERS.items():
            keep(readings, key, library.call(index, "nvmlDeviceGetNvLinkErrorCounter", handle, link, counter))
    return {"link": link, **readings}


def sample(library: NvmlLibrary) -> dict[str, Any]:
    """All GPUs at one moment of the monotonic clock."""
    moment = time.monotonic()
    count, _ = library.call(None, "nvmlDeviceGetCount")
    return {"time_seconds": round(moment, 3), "gpus": [read_gpu(library, i) for i in range(count or 0)]}


def main() -> None:
    """Run as a program."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    faulthandler.enable()  # names the call that crashed
    add_folders()
    try:
        import pynvml
    except ImportError as error:
        print(json.dumps({"init": {"error": "PYNVML_NOT_FOUND", "code": None, "text": str(error)}}))
        return
    library = NvmlLibrary(pynvml)
    started = init(library)
    if "error" in started:
        print(json.dumps({"init": started}))
        return
    print(json.dumps(with_count(sample(library)), separators=(",", ":")), flush=True)
    time.sleep(seconds)
    print(json.dumps(with_count(sample(library)), separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
