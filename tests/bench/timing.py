"""Time whole processes: wall and CPU seconds of a command and all its children, as medians over runs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from memory import family, mib


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians over the runs or the best of them, in seconds and MiB."""

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


def best(*commands: Sequence[str], runs: int = 3) -> list[Timing]:
    """Each command's best of so many runs, taken in turns after one warm-up."""
    env = {**os.environ, "LC_ALL": "C"}
    rounds = [[_once(argv, env) for argv in commands] for _ in range(runs + 1)][1:]
    return [Timing(*map(min, zip(*samples, strict=True)), runs) for samples in zip(*rounds, strict=True)]


def pss_mib(argv: Sequence[str]) -> float:
    """The most memory that a command and all its children held at once, pages they share counted once."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, mib(family(process.pid)))
        time.sleep(0.02)
    return peak


def as_installed(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment in which bytecode is kept: what is installed has it, and a checkout after a warm-up.

    To compile our source at each start would take longer than everything else.
    """
    return {name: value for name, value in env.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _once(argv: Sequence[str], env: dict[str, str] | None) -> tuple[float, float, float]:
    env = as_installed(os.environ if env is None else env)
    began = time.perf_counter()
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    )
    _, _, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = 0  # reaped above; tell Popen so
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
