"""Time whole processes: wall and CPU seconds of a command and all its children, as medians over runs."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians over the runs, in seconds and MiB."""

    wall: float
    cpu: float
    rss_mib: float
    runs: int


def measure(argv: Sequence[str], runs: int = 7, env: dict[str, str] | None = None) -> Timing:
    """Run a command `runs` times after one warm-up; its output is thrown away."""
    samples = [_once(argv, env) for _ in range(runs + 1)][1:]
    walls, cpus, peaks = zip(*samples, strict=True)
    median = statistics.median
    return Timing(median(walls), median(cpus), median(peaks), runs)


def in_turn(
    commands: Mapping[str, Sequence[str]], runs: int = 9, env: dict[str, str] | None = None
) -> dict[str, Timing]:
    """Run several commands one after the other, `runs` times over after one warm-up of all.

    What else the machine does meanwhile then hits all of them alike, and their ratios mean something.
    """
    rounds = [{name: _once(argv, env) for name, argv in commands.items()} for _ in range(runs + 1)][1:]
    middle = statistics.median
    return {
        name: Timing(*(middle(column) for column in zip(*(one[name] for one in rounds), strict=True)), runs)
        for name in commands
    }


def _once(argv: Sequence[str], env: dict[str, str] | None) -> tuple[float, float, float]:
    began = time.perf_counter()
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    )
    _, _, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = 0  # reaped above; tell Popen so
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
