"""Ask NVIDIA's management library about every GPU; one JSON document on stdout.

    python -I nvml.py                  the document
    python -I nvml.py --hold           the document and the end of the output, then keep the driver awake
    python -I nvml.py --watch SECONDS  what changes quickly, one line of JSON per interval

The last two stay until stdin ends. Every value is asked for on its own and answered by itself or by the
name of NVML's error, so that one sick GPU or one old driver hides nothing else. Values are NVML's own: its
numbers, its units. The document is written as answers come, and a call that takes long is named while it
lasts: what a driver that hangs or a library that crashes leaves behind is cut off, but says where it ended.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import sys
import threading
import time

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.gpu import nvml_calls as calls
from nodedoctor.probes.gpu.nvml_library import NvmlLibrary, init, keep
from nodedoctor.probes.packages import add_folders
from nodedoctor.probes.plain_json import members, with_count

sys.path.pop()

TYPE_CHECKING = False  # importing typing or argparse takes as long as asking a GPU
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from nodedoctor.probes.gpu.nvml_library import NvmlAnswer

SCHEMA = "nodedoctor.nvml/1"
WAITING = 0.5  # seconds after which an unanswered call is named


class NvmlDocument:
    """A JSON object written piece by piece, each on a line of its own, by two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._item = ""  # what separates the next item of the open list, nothing when none is open
        self._members = {"schema": 1}  # with those within, by key
        self._write_text(f'{{"schema": {json.dumps(SCHEMA)}')

    def section(self, name: str, value: Any) -> None:
        """Add a key."""
        with self._lock:
            self._write_key(name, value)

    def items(self, name: str, values: Iterable[Any]) -> None:
        """Add a key whose list is written item by item."""
        with self._lock:
            self._write_text(f",\n{json.dumps(name)}: [")
            self._item, self._open, self._members[name] = "\n", name, 1
        for value in values:
            with self._lock:
                self._write_item(value)
        with self._lock:
            self._write_text("]")
            self._item = ""

    def waiting(self, index: int | None, call: str) -> None:
        """Say what has not been answered yet, at whatever point of the document."""
        entry = {"index": index, "waiting": call}
        with self._lock:
            if self._item:
                self._write_item(entry)
            else:
                self._write_key("waiting", entry)

    def close(self) -> None:
        """End the document."""
        with self._lock:
            self._write_text(f',\n"members": {sum(self._members.values())}}}\n')

    def _write_key(self, name: str, value: Any) -> None:
        self._write_text(f",\n{json.dumps(name)}: {json.dumps(value)}")
        self._members[name] = 1 + members(value)

    def _write_item(self, value: Any) -> None:
        self._write_text(self._item + json.dumps(value))
        self._item = ",\n"
        self._members[self._open] += 1 + members(value)

    def _write_text(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def system(library: NvmlLibrary) -> dict[str, Any]:
    """Versions, modes and the number of GPUs."""
    readings: dict[str, Any] = {"values": {}, "errors": {}}
    for key, name in calls.SYSTEM.items():
        keep(readings, key, library.call(None, name))
    count, error = library.call(None, "nvmlGetExcludedDeviceCount")
    if error:
        readings["errors"]["excluded"] = error
    hidden = [library.call(None, "nvmlGetExcludedDeviceInfoByIndex", place)[0] for place in range(count or 0)]
    readings["values"]["excluded"] = [device["pci"]["busId"] for device in hidden if device]
    return readings


def read_gpu(library: NvmlLibrary, index: int, driver: str, handles: dict[int, Any]) -> dict[str, Any]:
    """Everything about one GPU; only the reason when it cannot be opened, else its handle is kept."""
    handle, error = library.call(index, "nvmlDeviceGetHandleByIndex", index)
    if error:
        return {"index": index, "error": error}
    handles[index] = handle
    readings = library.values(index, calls.VALUES, handle)
    branch = driver.partition(".")[0]
    recent = branch.isdecimal() and int(branch) >= calls.FIELDS_590_FROM
    library.fields(index, handle, calls.FIELDS | (calls.FIELDS_590 if recent else {}), readings)
    for key, number in calls.FIELDS_ALONE.items():
        library.fields(index, handle, {key: number}, readings)
    if readings["values"].get("mig_mode", [0])[0]:
        keep(readings, "mig_devices", count_mig(library, index, handle))
    if readings["values"].get("c2c_links"):
        keep(readings, "c2c_status", read_c2c(library, index, handle, readings["values"]["c2c_links"]))
    links = read_links(library, index, handle, readings)
    return {"index": index, **readings, "links": links}


def count_mig(library: NvmlLibrary, index: int, handle: Any) -> NvmlAnswer:
    """How many MIG devices there are; their numbers may have gaps, which are NOT_FOUND."""
    most, error = library.call(index, "nvmlDeviceGetMaxMigDeviceCount", handle)
    name = "nvmlDeviceGetMigDeviceHandleByIndex"
    errors = [library.call(index, name, handle, slot)[1] for slot in range(most or 0)]
    bad = error or next((code for code in errors if code not in (None, "NOT_FOUND", *calls.OLDER)), None)
    return (None, bad) if bad else (errors.count(None), None)


def read_c2c(library: NvmlLibrary, index: int, handle: Any, count: int) -> NvmlAnswer:
    """The state of every link to the Grace CPU, or the first error."""
    readings: dict[str, dict[str, Any]] = {"values": {}, "errors": {}}
    wanted = {str(link): (calls.C2C_STATUS, link) for link in range(min(count, calls.MAX_C2C))}
    library.fields(index, handle, wanted, readings)
    error = next(iter(readings["errors"].values()), None)
    return (None, error) if error else ([readings["values"][link] for link in wanted], None)


def read_links(
    library: NvmlLibrary, index: int, handle: Any, readings: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Every NVLink. Without a count (old drivers) links are tried until there are no more."""
    links = []
    count = readings["values"].get("nvlink_count")
    for link in range(calls.MAX_LINKS if count is None else min(count, calls.MAX_LINKS)):
        if count is None:
            _, error = library.call(index, "nvmlDeviceGetNvLinkState", handle, link)
            if error:
                if error not in ("NOT_SUPPORTED", *calls.OLDER):
                    readings["errors"]["nvlink_count"] = error
                break
        links.append(read_link(library, index, handle, link))
    return links


def read_link(library: NvmlLibrary, index: int, handle: Any, link: int) -> dict[str, Any]:
    """State, other end, speed and error counters of one link; NVLink 5 has counters of its own."""
    readings = library.values(index, calls.LINK_VALUES, handle, link)
    version = readings["values"].get("version", 0)
    fields = calls.LINK_SPEED | (calls.LINK_FIELDS if version >= calls.NVLINK_5 or not version else {})
    library.fields(index, handle, {key: (number, link) for key, number in fields.items()}, readings)
    if version < calls.NVLINK_5:
        for key, counter in calls.LINK_COUNTERS.items():
            keep(readings, key, library.call(index, "nvmlDeviceGetNvLinkErrorCounter", handle, link, counter))
    return {"link": link, **readings}


def read_pair(library: NvmlLibrary, index: int, peer: int, handles: Mapping[int, Any]) -> dict[str, Any]:
    """What P2P one GPU has to another, and how far apart they are on PCIe."""
    pair = (handles[index], handles[peer])
    readings: dict[str, Any] = {"values": {}, "errors": {}}
    for kind, number in calls.P2P.items():
        keep(readings, kind, library.call(index, "nvmlDeviceGetP2PStatus", *pair, number))
    keep(readings, "path", library.call(index, "nvmlDeviceGetTopologyCommonAncestor", *pair))
    return {"index": index, "peer": peer, **readings}


def programs(library: NvmlLibrary, pids: Iterable[int]) -> dict[int, str]:
    """What processes run, without their arguments: those are private."""
    names = {pid: library.call(None, "nvmlSystemGetProcessName", pid)[0] for pid in sorted(set(pids))}
    words = {pid: name.split() for pid, name in names.items() if name}
    return {pid: os.path.basename(parts[0]) for pid, parts in words.items() if parts}


def tell(library: NvmlLibrary, document: NvmlDocument) -> bool:
    """Write the whole document; False when the library did not start."""
    began = time.perf_counter()
    started = init(library)
    document.section("init", started)
    about = system(library)
    document.section("system", about)
    driver, count = about["values"].get("driver_version", ""), about["values"].get("count", 0)
    handles: dict[int, Any] = {}
    pids: list[int] = []

    def gpus() -> Iterable[dict[str, Any]]:
        for index in range(count):
            gpu = read_gpu(library, index, driver, handles)
            lists = [gpu.get("values", {}).get(key, ()) for key in calls.PROCESSES]
            pids.extend(process["pid"] for processes in lists for process in processes)
            yield gpu

    document.items("gpus", gpus())
    pairs = ((number, peer) for number in handles for peer in handles if number != peer)
    document.items("peers", (read_pair(library, number, peer, handles) for number, peer in pairs))
    document.section("programs", programs(library, pids))
    document.section("slow", library.slow)
    document.section("seconds", round(time.perf_counter() - began, 4))
    document.close()
    return "error" not in started


def sample(library: NvmlLibrary, index: int, handle: Any) -> dict[str, Any]:
    """What changes quickly on one GPU."""
    readings = library.values(index, {key: calls.VALUES[key] for key in calls.LIVE}, handle)
    library.fields(index, handle, calls.LIVE_FIELDS, readings)
    if "pcie_tx_bytes" in readings["errors"]:
        for key, question in calls.PCIE_RATES.items():
            keep(readings, key, library.ask(index, question, handle))
    return {"index": index, **readings}


def watch(library: NvmlLibrary, interval: float) -> None:
    """One line per interval until stdin ends; a GPU that cannot be opened is in each with its reason."""
    started = init(library)
    if "error" in started:
        print(json.dumps({"init": started}), flush=True)
        return
    count, _ = library.call(None, "nvmlDeviceGetCount")
    opened = {i: library.call(i, "nvmlDeviceGetHandleByIndex", i) for i in range(count or 0)}
    due = time.monotonic()
    while True:
        gpus = [
            {"index": index, "error": error} if error else sample(library, index, handle)
            for index, (handle, error) in opened.items()
        ]
        line = with_count({"time_seconds": round(due, 3), "gpus": gpus})
        print(json.dumps(line, separators=(",", ":")), flush=True)
        due = max(due + interval, time.monotonic())
        if stdin_ends(due):
            return


def stdin_ends(due: float | None = None) -> bool:
    """Wait until a moment of the monotonic clock, or without limit; True when stdin has ended."""
    while due is None or due > time.monotonic():
        remaining = None if due is None else max(0.0, due - time.monotonic())
        if select.select([0], [], [], remaining)[0] and not os.read(0, 4096):
            return True
    return False


def name_waiting(library: NvmlLibrary, report: Callable[[int | None, str], None]) -> None:
    """Name each call that is not answered for too long; the calls run without Python's global lock."""
    reported = None
    while True:
        time.sleep(WAITING / 4)
        asking = library.asking
        if asking is not None and asking is not reported and time.perf_counter() - asking[2] >= WAITING:
            reported = asking
            report(asking[0], asking[1])


def say_line(index: int | None, call: str) -> None:
    """Name a waiting call among the lines of `watch`."""
    print(json.dumps({"waiting": {"index": index, "waiting": call}}), flush=True)


def hold() -> None:
    """End the output, so that its reader has all of it, and stay until stdin ends."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    stdin_ends()


def parse_arguments(words: list[str]) -> tuple[bool, float]:
    """Whether to stay, and the seconds between samples, 0 for the whole document; ends for anything else."""
    if words in ([], ["--hold"]):
        return bool(words), 0.0
    try:
        option, seconds = words
        if option == "--watch":
            return False, float(seconds)
    except ValueError:  # other words, or no number
        pass
    sys.stderr.write(f"{__doc__}\n")
    sys.exit(2)


def main() -> None:
    """Run as a program."""
    keeping, interval = parse_arguments(sys.argv[1:])
    faulthandler.enable()  # names the call that crashed
    add_folders()
    try:
        import pynvml
    except ImportError as error:
        missing = {"error": "PYNVML_NOT_FOUND", "code": None, "text": str(error)}
        print(json.dumps({"schema": SCHEMA, "init": missing}))
        return
    library = NvmlLibrary(pynvml)
    document = None if interval else NvmlDocument()
    report = say_line if document is None else document.waiting
    threading.Thread(target=name_waiting, args=(library, report), daemon=True).start()
    try:
        if document is None:
            watch(library, interval)
        elif tell(library, document) and keeping:
            hold()
    except BrokenPipeError:
        os._exit(0)  # the reader is gone


if __name__ == "__main__":
    main()
