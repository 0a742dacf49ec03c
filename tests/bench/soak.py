"""`make soak`: many runs in a row, a long look, ten thousand reports; nothing may grow or be left behind.

Exits with 1 and says what grew, where something did.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import fleet_bench
from timing import family

NODEDOCTOR = fleet_bench.NODEDOCTOR
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
WELL = (0, 2, 3)  # exit codes of a run that judged this machine
SLOWER = 1.5  # times the fastest run of the first tenth; the fastest of several feels a busy machine least
GROWTH_MIB = 16  # of a process that has been warm for a while; glibc's arenas take some
WARM = 0.25  # the part of a long look that may still grow


def runs(count: int) -> list[str]:
    """Whole headless runs in a row."""
    with tempfile.TemporaryDirectory() as place:
        env = {**os.environ, "TMPDIR": place, "XDG_CACHE_HOME": f"{place}/cache"}
        taken: list[float] = []
        codes: dict[int, int] = {}
        for _ in range(count):
            began = time.perf_counter()
            done = subprocess.run(
                [NODEDOCTOR, "--json", "--tag", "fast"], env=env, stdout=subprocess.DEVNULL, timeout=120
            )
            taken.append(time.perf_counter() - began)
            codes[done.returncode] = codes.get(done.returncode, 0) + 1
        left = [path for path in Path(place).rglob("*") if path.is_file() and "cache" not in path.parts]
    orphans = left_running()
    tenth = min(count, max(5, count // 10))
    first, last = min(taken[:tenth]), min(taken[-tenth:])
    print(
        f"{count} runs: {sum(taken):.0f} s, exit codes {codes}; {first:.2f} s at first, {last:.2f} s at last"
    )
    wrong = [f"exit code {code}, {times} times" for code, times in codes.items() if code not in WELL]
    wrong += [f"left behind: {path}" for path in left]
    wrong += [f"still running: {pid}" for pid in orphans]
    if last > SLOWER * first:
        wrong.append(f"runs became slower: {first:.2f} s at first, {last:.2f} s at last")
    return wrong


def left_running() -> list[int]:
    """Children of ended runs that are still there: they came to us, who adopt orphans."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass  # ended in the meantime
    return list(family(os.getpid()))[1:]


def look(seconds: float) -> list[str]:
    """`nodedoctor watch` on a terminal: memory, descriptors, threads and children of all its processes."""
    master, slave = pty.openpty()
    screen = subprocess.Popen(
        [NODEDOCTOR, "watch"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    threading.Thread(target=drain, args=(master,), daemon=True).start()
    began, seen = time.monotonic(), []
    while time.monotonic() - began < seconds and screen.poll() is None:
        time.sleep(min(1.0, seconds / 20))
        seen.append((time.monotonic() - began, held_by(screen.pid)))
    ended_early = screen.poll()
    os.write(master, b"q")
    try:
        code = screen.wait(timeout=20)
    except subprocess.TimeoutExpired:
        screen.kill()
        return [f"watch did not end when it was asked to, after {seconds:.0f} s"]
    if ended_early is not None:
        return [f"watch ended by itself with {ended_early}"]
    warm = [held for when, held in seen if when > WARM * seconds]
    early, late = warm[: len(warm) // 3], warm[-(len(warm) // 3) :]
    wrong = [f"watch ended with {code}"] if code not in WELL else []
    for place, (name, allowed) in enumerate(
        (("MiB", GROWTH_MIB), ("descriptors", 0), ("threads", 0), ("processes", 0))
    ):
        before, after = min(held[place] for held in early), min(held[place] for held in late)
        print(f"watch for {seconds:.0f} s: {before:.0f} {name} when warm, {after:.0f} at last")
        if after > before + allowed:
            wrong.append(f"watch grew from {before:.0f} to {after:.0f} {name}")
    return wrong


def reports(count: int) -> list[str]:
    """Reports of many nodes judged together: the five sick ones are named."""
    healthy = subprocess.run([NODEDOCTOR, "demo", "healthy", "--json"], capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        sick = fleet_bench.make(Path(folder), healthy, count)
        seconds, busy, peak, document = fleet_bench.run(folder)
    named = fleet_bench.named(document)
    print(f"{count} reports: {seconds:.1f} s wall, {busy:.1f} s CPU, {peak:.0f} MiB, named {sorted(named)}")
    return [] if named == sick else [f"planted {sorted(sick)}, named {sorted(named)}"]


def held_by(pid: int) -> tuple[float, int, int, int]:
    """MiB, descriptors, threads and processes of a process and its children."""
    held = family(pid)
    return (
        sum(fleet_bench.resident(one) for one in held),
        sum(entries(f"/proc/{one}/fd") for one in held),
        sum(entries(f"/proc/{one}/task") for one in held),
        len(held),
    )


def entries(folder: str) -> int:
    """How many entries a folder of a process has; 0 once it is gone."""
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0


def drain(terminal: int) -> None:
    """Read what is painted, so that nothing waits for us."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # the last process that had it open has ended


def main() -> int:
    """Run the three parts and list what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600, help="of watching")
    parser.add_argument("--reports", type=int, default=10_000)
    asked = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    wrong = [*runs(asked.runs), *look(asked.seconds), *reports(asked.reports)]
    for line in wrong:
        print(f"WRONG {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
