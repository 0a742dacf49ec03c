"""Ten thousand reports of nodes with eight GPUs, judged: seconds, memory, and whether the sick are named."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from timing import family

NODEDOCTOR = str(Path(sys.executable).parent / "nodedoctor")
COUNTS = (1_000, 10_000)
SEED = 7
_TEMPERATURE = re.compile(r'"temperature_c":[0-9]+')
_SYMBOLS = re.compile(r'"symbol_error":[0-9]+')
_RESULT = re.compile(r'^ \{"check":"nvlink\.links".*?\}(,?)$', re.M)


def reports() -> None:
    """Reports of many nodes judged together, with five sick ones among them that have to be named."""
    healthy = subprocess.run([NODEDOCTOR, "demo", "healthy", "--json"], capture_output=True, text=True).stdout
    taken = {}
    for count in COUNTS:
        with tempfile.TemporaryDirectory(prefix="nodedoctor-bench-") as folder:
            sick = make(Path(folder), healthy, count)
            seconds, busy, peak, document = run(folder)
        taken[count] = busy
        print(
            f"{count:>6} reports of {len(healthy) / 1e3:.0f} KB  {seconds:6.2f} s wall"
            f"  {busy:6.2f} s CPU  {1e3 * busy / count:5.2f} ms CPU each  {peak:5.0f} MiB in all processes"
        )
        print(f"       planted {sorted(sick)}\n       named   {sorted(named(document))}")
    few, many = COUNTS
    print(f"       {taken[many] / taken[few]:.1f} times the CPU time for {many // few} times the reports")


def named(document: dict[str, Any]) -> set[str]:
    """The hosts that the document calls different or sick, or that gave no report."""
    odd = {host for oddity in document["oddities"] for host in oddity["odd"].split(",")}
    sick = {node["host"] for node in document["nodes"] if node["problems"] or node["state"] != "answered"}
    return (odd | sick) - {""}


def make(folder: Path, healthy: str, count: int) -> set[str]:
    """Write the reports, each with numbers of its own; returns the hosts of the sick ones."""
    chance = random.Random(SEED)
    for number in range(count):
        text = varied(healthy, f"gpu-{number:05d}", chance)
        (folder / f"{number:05d}.json").write_text(text, encoding="ascii")
    places = sorted(chance.sample(range(count), 5))
    for place, sickness in zip(places, (driver, nccl, rails, links, cut), strict=True):
        path = folder / f"{place:05d}.json"
        path.write_text(sickness(path.read_text(encoding="ascii")), encoding="ascii")
    return {f"gpu-{place:05d}" for place in places[:4]} | {f"{places[4]:05d}"}


def varied(healthy: str, host: str, chance: random.Random) -> str:
    """A healthy report of another node: its name, serials, identities, temperatures and counters."""
    text = healthy.replace("gpu-a3-016", host)
    text = text.replace("16550220", str(chance.randrange(10**7, 10**8)))
    text = text.replace("GPU-0000", f"GPU-{chance.randrange(0x1000, 0x10000):04x}")
    text = text.replace('"boot_id":null', f'"boot_id":"{chance.getrandbits(128):032x}"')
    text = _TEMPERATURE.sub(lambda _: f'"temperature_c":{round(chance.gauss(34, 2))}', text)
    return _SYMBOLS.sub(lambda _: f'"symbol_error":{chance.randrange(2000)}', text)


def driver(text: str) -> str:
    """Another driver."""
    return text.replace("580.95.05", "570.86.10")


def nccl(text: str) -> str:
    """Another NCCL."""
    return text.replace("2.27.5", "2.26.2")


def rails(text: str) -> str:
    """A rail that is down."""
    before, mark, after = text.partition('"name":"mlx5_3"')
    return before + mark + after.replace('"state":"ACTIVE"', '"state":"DOWN"', 1)


def links(text: str) -> str:
    """NVLinks that are down, as the node's own check says."""
    failed = {
        "check": "nvlink.links",
        "title": "All NVLinks are up",
        "status": "fail",
        "findings": [{"status": "fail", "subject": "gpu:3", "summary": "2 of 18 links down: 4, 11"}],
    }
    return _RESULT.sub(lambda match: f" {json.dumps(failed, separators=(',', ':'))}{match[1]}", text)


def cut(text: str) -> str:
    """A report that was cut off while it was written."""
    return text[: len(text) // 2]


def run(folder: str) -> tuple[float, float, float, dict[str, Any]]:
    """Wall and CPU seconds, peak MiB of all processes together, and the document."""
    with tempfile.TemporaryFile("w+") as out:
        began = time.perf_counter()
        process = subprocess.Popen([NODEDOCTOR, "fleet", "--json", "--reports", folder], stdout=out)
        peak = 0.0
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak = max(peak, sum(resident(pid) for pid in family(process.pid)))
            time.sleep(0.1)
        seconds = time.perf_counter() - began
        process.returncode = 0  # reaped above; tell Popen so
        out.seek(0)
        return seconds, ended[2].ru_utime + ended[2].ru_stime, peak, json.load(out)


def resident(pid: int) -> float:
    """MiB a process holds; 0 once it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    reports()
