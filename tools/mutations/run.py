"""`make mutations`: does `make test` notice when something that must not change is changed?

Each row changes one place of a copy of the sources; the fast tests it names must then fail. A change that
survives is printed and ends in exit code 1. The tests named are a shortcut: who moves them names them here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[2]
COPIED = ("nodedoctor", "checks", "tests", "docs", "tools", "pyproject.toml", "README.md", "CONTRIBUTING.md")
NOT_COPIED = shutil.ignore_patterns("__pycache__", ".hypothesis")


class Mutation(NamedTuple):
    """One change, and the tests that must notice it."""

    what: str
    file: str
    old: str
    new: str
    tests: str


MUTATIONS = (
    Mutation(
        "an NVLink at half its rate is no longer slow",
        "checks/gpu/nvlink.py",
        "\nSLOW = 0.9\n",
        "\nSLOW = 0.5\n",
        "tests/checks/gpu tests/facts/gpu",
    ),
    Mutation(
        "milliwatts are divided by 1024",
        "nodedoctor/facts/gpu/nvml/gpu.py",
        "    return int_of(value) / 1000\n",
        "    return int_of(value) / 1024\n",
        "tests/facts/gpu tests/probes/gpu",
    ),
    Mutation(
        "a child that was killed has answered",
        "nodedoctor/children/child_process.py",
        'return Outcome.CRASH, f"killed by',
        'return Outcome.OK, f"killed by',
        "tests/children/test_child_process.py tests/probes/gpu",
    ),
    Mutation(
        "a probe that broke does not count in the exit code",
        "nodedoctor/cli/exit_codes.py",
        "        return Exit.UNKNOWN\n    if fail_on ==",
        "        return Exit.OK\n    if fail_on ==",
        "tests/engine/test_hang.py tests/cli/test_cli.py",
    ),
    Mutation(
        "a node that broke does not count in the exit code of a fleet",
        "nodedoctor/fleet/cli.py",
        "    severities |= {node.severity for node in fleet.nodes}\n",
        "",
        "tests/fleet",
    ),
    Mutation(
        "a driver that gave no answer in time is asked again",
        "nodedoctor/engine/live.py",
        "    Lane.NVIDIA: (Outcome.STUCK, Outcome.TIMEOUT),\n",
        "    Lane.NVIDIA: (Outcome.STUCK,),\n",
        "tests/engine",
    ),
    Mutation(
        "half of a fleet is a majority",
        "nodedoctor/declare/peers.py",
        "return count >= least and 2 * count > total",
        "return count >= least and 2 * count >= total",
        "tests/fleet/test_fleet_judge.py",
    ),
    Mutation(
        "a waiver ends a day early",
        "nodedoctor/facts/host/waivers.py",
        "moment.started.date() <= waiver.until",
        "moment.started.date() < waiver.until",
        "tests/engine/test_run.py tests/cli/test_cli.py",
    ),
    Mutation(
        "a fault of the machine weighs less than what the others see of it",
        "nodedoctor/triage/verdict/causes/weigh.py",
        '"fault": (50,',
        '"fault": (12,',
        "tests/triage/test_triage_winners.py tests/triage/test_triage_weigh.py",
    ),
    Mutation(
        "GPUs of a build nobody knows, all alike, are broken",
        "checks/gpu/nvlink.py",
        "        return warn  # none said to be down, and all alike",
        "        return fail  # none said to be down, and all alike",
        "tests/facts/gpu tests/checks/gpu",
    ),
    Mutation(
        "half the distance makes an outlier of a fleet",
        "nodedoctor/fleet/compare/outliers.py",
        "\nDEVIATIONS = 6.0\n",
        "\nDEVIATIONS = 3.0\n",
        "tests/fleet/test_fleet_judge.py",
    ),
)


def survives(mutation: Mutation, copy: Path) -> bool:
    """Whether the tests named pass although the copy is changed; it is as it was when this returns."""
    path = copy / mutation.file
    whole = path.read_text(encoding="utf-8")
    if whole.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.file}: {mutation.old!r} is there {whole.count(mutation.old)} times")
    path.write_text(whole.replace(mutation.old, mutation.new), encoding="utf-8")
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-m",
        "not real and not slow and not nightly and not lint",
        "-p",
        "no:cacheprovider",
    ]
    env = {**os.environ, "PYTHONPATH": str(copy), "NODEDOCTOR_EXAMPLES": "25"}
    try:
        done = subprocess.run(
            [*argv, *mutation.tests.split()], cwd=copy, env=env, capture_output=True, text=True, check=False
        )
    finally:
        path.write_text(whole, encoding="utf-8")
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"{mutation.what}: the tests did not run\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    print(f"{'SURVIVES' if done.returncode == 0 else 'noticed':<8} {mutation.what}", flush=True)
    for line in failed[:1]:
        print(f"         {line.partition(' - ')[0]}", flush=True)
    return done.returncode == 0


def copy_tree(to: Path) -> None:
    """Copy what tests need, so that the sources themselves are never changed."""
    for name in COPIED:
        source = TOP / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=NOT_COPIED)
        else:
            shutil.copy(source, to / name)


def main() -> int:
    """Try all, those whose text holds a word, or every N-th from the K-th."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--share", default="1/1", metavar="K/N")
    asked = parser.parse_args()
    first, every = map(int, asked.share.split("/"))
    chosen = [one for one in MUTATIONS if not asked.words or any(word in f"{one}" for word in asked.words)]
    chosen = chosen[first - 1 :: every]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nodedoctor-mutations-") as folder:
        copy = Path(folder)
        copy_tree(copy)
        left = sum(survives(one, copy) for one in chosen)
    print(f"{len(chosen) - left} of {len(chosen)} changes are noticed; {time.monotonic() - began:.0f} s")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
