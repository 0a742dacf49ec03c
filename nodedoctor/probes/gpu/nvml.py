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
        self._write(f'{{"schema": {json.dumps(SCHEMA)}')

    def section(self, name: str, value: Any) -> None:
        """Add a key."""
        with self._lock:
            self._write_key(name, value)

    def items(self, name: str, values: Iterable[Any]) -> None:
        """Add a key whose list is written item by item."""
        with self._lock:
            self._write(f",\n{json.dumps(name)}: [")
            self._item, self._open, self._members[name] = "\n", name, 1
        for value in values:
            with self._lock:
                self._write_item(value)
        with self._lock:
            self._write("]")
            self._item = ""

    def waiting(self, index: int | None, call: str) -> None:
        """Say what has not been answered yet, wherever the document stands."""
        said = {"index": index, "waiting": call}
        with self._lock:
            if self._item:
                self._write_item(said)
            else:
                self._write_key("waiting", said)

    def close(self) -> None:
        """End the document."""
        with self._lock:
            self._write(f',\n"members": {sum(self._members.values())}}}\n')

    def _write_key(self, name: str, value: Any) -> None:
        self._write(f",\n{json.dumps(name)}: {json.dumps(value)}")
        self._members[name] = 1 + members(value)

    def _write_item(self, value: Any) -> None:
        self._write(self._item + json.dumps(value))
        self._item = ",\n"
        self._members[self._open] += 1 + members(value)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def system(library: NvmlLibrary) -> dict[str, Any]:
    """Versions, modes and the number of GPUs."""
    said: dict[str, Any] = {"values": {}, "errors": {}}
    for key, name in calls.SYSTEM.items():
        keep(said, key, library.call(None, name))
    count, error = library.call(None, "nvmlGetExcludedDeviceCount")
    if error:
        said["errors"]["excluded"] = error
    hidden = [library.call(None, "nvmlGetExcludedDeviceInfoByIndex", place)[0] for place in range(count or 0)]
    said["values"]["excluded"] = [device["pci"]["busId"] for device in hidden if device]
    return said


def read_gpu(library: NvmlLibrary, index: int, driver: str, handles: dict[int, Any]) -> dict[str, Any]:
    """Everything about one GPU; only the reason when it cannot be opened, else its handle is kept."""
    handle, error = library.call(index, "nvmlDeviceGetHandleByIndex", index)
    if error:
        return {"index": index, "error": error}
    handles[index] = handle
    said = library.values(index, calls.VALUES, handle)
    branch = driver.partition(".")[0]
    recent = branch.isdecimal() and int(branch) >= calls.FIELDS_590_FROM
    library.fields(index, handle, calls.FIELDS | (calls.FIELDS_590 if recent else {}), said)
    for key, number in calls.FIELDS_ALONE.items():
        library.fields(index, handle, {key: number}, said)
    if said["values"].get("mig_mode", [0])[0]:
        keep(said, "mig_devices", count_mig(library, index, handle))
    if said["values"].get("c2c_links"):
        keep(said, "c2c_status", read_c2c(library, index, handle, said["values"]["c2c_links"]))
    links = read_links(library, index, handle, said)
    return {"index": index, **said, "links": links}


def count_mig(library: NvmlLibrary, index: int, handle: Any) -> NvmlAnswer:
    """How many MIG devices there are; their numbers may have gaps, which are NOT_FOUND."""
    most, error = library.call(index, "nvmlDeviceGetMaxMigDeviceCount", handle)
    name = "nvmlDeviceGetMigDeviceHandleByIndex"
    errors = [library.call(index, name, handle, slot)[1] for slot in range(most or 0)]
    bad = error or next((one for one in errors if one not in (None, "NOT_FOUND", *calls.OLDER)), None)
    return (None, bad) if bad else (errors.count(None), None)


def read_c2c(library: NvmlLibrary, index: int, handle: Any, count: int) -> NvmlAnswer:
    """The state of every link to the Grace CPU, or the first error."""
    told: dict[str, dict[str, Any]] = {"values": {}, "errors": {}}
    wanted = {str(link): (calls.C2C_STATUS, link) for link in range(min(count, calls.MAX_C2C))}
    library.fields(index, handle, wanted, told)
    error = next(iter(told["errors"].values()), None)
    return (None, error) if error else ([told["values"][link] for link in wanted], None)


def read_links(
    library: NvmlLibrary, index: int, handle: Any, said: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Every NVLink. Without a count (old drivers) links are tried until there are no more."""
    links = []
    count = said["values"].get("nvlink_count")
    for link in range(calls.MAX_LINKS if count is None else min(count, calls.MAX_LINKS)):
        if count is None:
            _, error = library.call(index, "nvmlDeviceGetNvLinkState", handle, link)
            if error:
                if error not in ("NOT_SUPPORTED", *calls.OLDER):
                    said["errors"]["nvlink_count"] = error
                break
        links.append(read_link(library, index, handle, link))
    return links


def read_link(library: NvmlLibrary, index: int, handle: Any, link: int) -> dict[str, Any]:
    """State, other end, speed and error counters of one link; NVLink 5 has counters of its own."""
    said = library.values(index, calls.LINK_VALUES, handle, link)
    version = said["values"].get("version", 0)
    fields = calls.LINK_SPEED | (calls.LINK_FIELDS if version >= calls.NVLINK_5 or not version else {})
    library.fields(index, handle, {key: (number, link) for key, number in fields.items()}, said)
    if version < calls.NVLINK_5:
        for key, counter in calls.LINK_COUNTERS.items():
            keep(said, key, library.call(index, "nvmlDeviceGetNvLinkErrorCounter", handle, link, counter))
    return {"link": link, **said}


def read_pair(library: NvmlLibrary, one: int, other: int, handles: Mapping[int, Any]) -> dict[str, Any]:
    """What P2P one GPU has to another, and how far apart they are on PCIe."""
    pair = (handles[one], handles[other])
    said: dict[str, Any] = {"values": {}, "errors": {}}
    for kind, number in calls.P2P.items():
        keep(said, kind, library.call(one, "nvmlDeviceGetP2PStatus", *pair, number))
    keep(said, "path", library.call(one, "nvmlDeviceGetTopologyCommonAncestor", *pair))
    return {"index": one, "peer": other, **said}


def programs(library: NvmlLibrary, pids: Iterable[int]) -> dict[int, str]:
    """What processes run, without their arguments: those are nobody's business."""
    found = {pid: library.call(None, "nvmlSystemGetProcessName", pid)[0] for pid in sorted(set(pids))}
    words = {pid: name.split() for pid, name in found.items() if name}
    return {pid: os.path.basename(parts[0]) for pid, parts in words.items() if parts}


def tell(library: NvmlLibrary, document: NvmlDocument) -> bool:
    """Write the whole document; False when the library did not start."""
    begun = time.perf_counter()
    started = init(library)
    document.section("init", started)
    about = system(library)
    document.section("system", about)
    driver, count = about["values"].get("driver_version", ""), about["values"].get("count", 0)
    handles: dict[int, Any] = {}
    pids: list[int] = []

    def gpus() -> Iterable[dict[str, Any]]:
        for index in range(count):
            said = read_gpu(library, index, driver, handles)
            lists = [said.get("values", {}).get(key, ()) for key in calls.PROCESSES]
            pids.extend(process["pid"] for listed in lists for process in listed)
            yield said

    document.items("gpus", gpus())
    pairs = ((one, other) for one in handles for other in handles if one != other)
    document.items("peers", (read_pair(library, one, other, handles) for one, other in pairs))
    document.section("programs", programs(library, pids))
    document.section("slow", library.slow)
    document.section("seconds", round(time.perf_counter() - begun, 4))
    document.close()
    return "error" not in started


def sample(library: NvmlLibrary, index: int, handle: Any) -> dict[str, Any]:
    """What changes quickly on one GPU."""
    said = library.values(index, {key: calls.VALUES[key] for key in calls.LIVE}, handle)
    library.fields(index, handle, calls.LIVE_FIELDS, said)
    if "pcie_tx_bytes" in said["errors"]:
        for key, question in calls.PCIE_RATES.items():
            keep(said, key, library.ask(index, question, handle))
    return {"index": index, **said}


def watch(library: NvmlLibrary, interval: float) -> None:
    """One line per interval until stdin ends; a GPU that cannot be opened stands in each with its reason."""
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
    """Wait until a moment of the monotonic clock, or for ever; True when stdin has ended."""
    while due is None or due > time.monotonic():
        left = None if due is None else max(0.0, due - time.monotonic())
        if select.select([0], [], [], left)[0] and not os.read(0, 4096):
            return True
    return False


def name_waiting(library: NvmlLibrary, say: Callable[[int | None, str], None]) -> None:
    """Name each call that is not answered for too long; the calls run without Python's global lock."""
    named = None
    while True:
        time.sleep(WAITING / 4)
        asking = library.asking
        if asking is not None and asking is not named and time.perf_counter() - asking[2] >= WAITING:
            named = asking
            say(asking[0], asking[1])


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
    say = say_line if document is None else document.waiting
    threading.Thread(target=name_waiting, args=(library, say), daemon=True).start()
    try:
        if document is None:
            watch(library, interval)
        elif tell(library, document) and keeping:
            hold()
    except BrokenPipeError:
        os._exit(0)  # nobody reads any more


if __name__ == "__main__":
    main()
