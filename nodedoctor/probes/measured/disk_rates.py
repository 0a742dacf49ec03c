"""Measure how fast file systems are written and read, one after the other; one JSON document on stdout.

    python -I disk_rates.py [--seconds 1] [--mib 1024] POINT ...

A file without a name (O_TMPFILE) holds what is written, so that nothing is left behind however we end, and
O_DIRECT keeps memory out of it. Each way lasts `--seconds` or `--mib` at most. Nothing is written where the
file system is read-only or nearly full.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from typing import Any

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.host.files_reading import text_below
from nodedoctor.probes.measured.step_document import StepDocument
from nodedoctor.probes.plain_args import options

sys.path.pop()

MIB = 1024**2
BLOCK = 4 * MIB
AT_A_TIME = 4
"""Blocks under way at a time; ours: one alone leaves an NVMe drive half idle."""
ALL_SECONDS = 18.0
"""For all file systems; those that are left then are named. Ours."""
LEAST_FREE = 0.1
"""Of the file system; ours: what must stay free where others write meanwhile."""
ROOMS = 8
"""Times what we write, that must be free; ours."""


def main() -> None:
    """Run as a program."""
    words, points = options(__doc__, seconds="1", mib="1024")
    document = StepDocument({"schema": "nodedoctor.disk-rates/1", "at_a_time": AT_A_TIME})
    seconds, most = float(words["seconds"]), int(words["mib"]) * MIB
    for point in points:
        if document.seconds > ALL_SECONDS:
            document.step("disk", point=point, left="no time was left for it")
            continue
        document.step("begin", what="disk", point=point)
        document.step("disk", point=point, **measured(point, seconds, most))
    document.close()


def measured(point: str, seconds: float, most: int) -> dict[str, Any]:
    """Rates of one file system, or why it was left out."""
    try:
        device = os.stat(point).st_dev
        about = {"model": model_of(device)}
        if why := unfit(point, most):
            return {**about, "left": why}
        folder = writable_folder(point, device)
        if not folder:
            return {**about, "left": "no folder there can be written by this user"}
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC, 0o600)
        try:
            written, write_rate = moved(file, seconds, most, reads=False)
            _, read_rate = moved(file, seconds, written, reads=True)
        finally:
            os.close(file)
    except OSError as error:
        return {"left": f"{error.strerror or error}: it takes no file that can be measured"}
    return {**about, "bytes": written, "write_gbytes_s": write_rate, "read_gbytes_s": read_rate}


def unfit(point: str, most: int) -> str:
    """Why nothing is to be written to a file system; empty where it may be."""
    room = os.statvfs(point)
    free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    if room.f_flag & os.ST_RDONLY:
        return "it is read-only"
    if free < max(LEAST_FREE * size, ROOMS * most):
        return f"only {free / 1e9:.1f} of {size / 1e9:.0f} GB are free"
    return ""


def writable_folder(point: str, device: int) -> str:
    """Where on the file system a file may be made: at its top, or where everybody's temporary files are."""
    for folder in (point, os.path.join(point, "tmp"), os.path.join(point, "var/tmp")):
        if os.access(folder, os.W_OK | os.X_OK) and os.stat(folder).st_dev == device:
            return folder
    return ""


def model_of(device: int) -> str:
    """What a disk, or the one a partition is of, calls itself; empty for volumes put together of others."""
    block = os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for folder in (block, os.path.dirname(block)):
        if name := (text_below("/", f"{folder}/device/model", 256) or "").strip():
            return name
    return ""


def moved(file: int, seconds: float, most: int, *, reads: bool) -> tuple[int, float]:
    """Write or read from the start on, some blocks at a time; bytes, and GB/s until they are on the disk."""
    blocks = [mmap.mmap(-1, BLOCK) for _ in range(AT_A_TIME)]  # of whole pages, as O_DIRECT wants them
    for block in blocks:
        block.write(os.urandom(BLOCK))  # which nothing on the way can compress
    numbers, moved_bytes, errors = iter(range(most // BLOCK)), list[int](), list[OSError]()
    start = time.perf_counter()

    def move(block: mmap.mmap) -> None:
        try:
            for number in numbers:
                if time.perf_counter() - start > seconds:
                    return
                place = number * BLOCK
                moved_bytes.append(
                    os.preadv(file, [block], place) if reads else os.pwrite(file, block, place)
                )
        except OSError as error:
            errors.append(error)

    movers = [threading.Thread(target=move, args=(block,)) for block in blocks]
    for mover in movers:
        mover.start()
    for mover in movers:
        mover.join()
    if errors:
        raise errors[0]
    if not reads:
        os.fdatasync(file)
    return sum(moved_bytes), round(sum(moved_bytes) / (time.perf_counter() - start) / 1e9, 3)


if __name__ == "__main__":
    main()
