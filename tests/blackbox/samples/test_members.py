"""Who of a job's processes is a rank: what launchers really start, seen by the sampler's first looks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodedoctor.blackbox.samples.sample import parse
from nodedoctor.blackbox.samples.suspected_hang import Progress
from nodedoctor.children.programs import child

ITSELF = r"""
import os, subprocess, sys, time
if "LOCAL_RANK" not in os.environ:
    for local in {locals}:
        env = dict(LOCAL_RANK=str(local), WORLD_SIZE="{world}", NODE_RANK="{node}", MASTER_PORT="7")
        subprocess.Popen([sys.executable, {script}], env=os.environ | env)
os.write(1, b"up\n")
time.sleep(600)
"""
SPAWNS = r"""
import multiprocessing, os, time
def work():
    os.write(1, b"up\n")
    time.sleep(600)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    lock = context.Semaphore()  # which starts the resource tracker
    for _ in range(3):
        context.Process(target=work).start()
    time.sleep(600)
"""


@contextmanager
def job(argv: list[str], ups: int, **env: str) -> Iterator[int]:
    """The pid of a job that has started so many processes."""
    started = subprocess.Popen(
        argv, stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, **env}
    )
    try:
        assert started.stdout is not None
        for _ in range(ups):
            assert started.stdout.readline() == b"up\n"
        yield started.pid
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def sampled(wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """The members of a job at the first look; of the sampler's own family none is one."""
    argv = ["sh", "-c", '"$@"; :', "sh", *child("job/sampler", json.dumps(wanted))]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    return list(json.loads(done.stdout.split("\n")[0])["ranks"])


def script(folder: Path, text: str, name: str = "train.py", **values: object) -> str:
    path = folder / name
    path.write_text(text.format(script="__file__", **values) if values else text)
    return str(path)


@pytest.mark.parametrize(
    ("count", "node", "ranks"),
    [(1, 0, [0, 1]), (3, 0, [0, 1, 2, 3]), (1, 2, [4, 5])],
    ids=["2", "4", "2 nodes on"],
)
def test_a_main_process_that_starts_its_own_script_again_is_rank_0(
    count: int, node: int, ranks: list[int], tmp_path: Path
) -> None:
    """As Lightning's own launcher does."""
    path = script(
        tmp_path, ITSELF, locals=list(range(1, count + 1)), world=(node + 1) * (count + 1), node=node
    )
    with job([sys.executable, path], count + 1) as pid:
        found = sampled({"pids": [pid]})
    assert sorted(one["rank"] for one in found) == ranks
    assert {one["pid"]: one["rank"] for one in found}[pid] == ranks[0]
    assert len({one["job"] for one in found}) == 1


@pytest.mark.parametrize("locals_", [[0, 1], [1]])
def test_a_driver_that_starts_another_script_is_no_rank(locals_: list[int], tmp_path: Path) -> None:
    other = script(tmp_path, "import os, time; os.write(1, b'up\\n'); time.sleep(600)", "worker.py")
    text = ITSELF.replace("{script}", repr(other))
    path = script(tmp_path, text, "driver.py", locals=locals_, world=2, node=0)
    with job([sys.executable, path], len(locals_) + 1) as pid:
        assert pid not in [one["pid"] for one in sampled({"pids": [pid]})]


def test_what_multiprocessing_starts_for_itself_is_no_rank(tmp_path: Path) -> None:
    with job([sys.executable, script(tmp_path, SPAWNS)], 3) as pid:
        found = sampled({"pids": [pid]})
        lines = [Path(f"/proc/{one['pid']}/cmdline").read_text() for one in found]
    assert len(found) == 3 and all("spawn_main" in line for line in lines)


@pytest.mark.slow
def test_a_launcher_that_was_seen_before_its_workers_is_not_missed(tmp_path: Path) -> None:
    """It is the only process of the job at first, and then a parent of what works."""
    path = script(tmp_path, SPAWNS.replace("context =", "os.write(1, b'up\\n'); time.sleep(3); context ="))
    with job([sys.executable, path], 1) as pid:
        sampler = subprocess.Popen(
            child("job/sampler", json.dumps({"pids": [pid], "seconds": 0.5})),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        progress, seen = Progress(), set()
        assert sampler.stdout is not None and sampler.stdin is not None
        ends = time.monotonic() + 60
        while len(seen) < 4 and time.monotonic() < ends:
            sample = parse(sampler.stdout.readline())
            assert sample is not None
            progress.feed(sample)
            seen |= {rank.pid for rank in sample.ranks}
            assert progress.missing == ()
        sampler.communicate()
    assert pid in seen and len(seen) == 4


@pytest.mark.slow
def test_our_own_helpers_beside_a_task_are_no_ranks(tmp_path: Path) -> None:
    """A task prolog starts a watch with the environment of a rank: neither it nor its children are one."""
    task = {"SLURM_JOB_ID": "471147", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}
    rank = script(tmp_path, "import os, time; os.write(1, b'up\\n'); time.sleep(600)")
    watch = [
        sys.executable,
        "-m",
        "nodedoctor",
        "watch",
        "--slurm",
        "471147",
        "--dir",
        str(tmp_path / "jobs"),
    ]
    with job([sys.executable, rank], 1, **task) as pid:
        watching = subprocess.Popen(
            watch, env={**os.environ, **task}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            ends = time.monotonic() + 60
            while not {"keeper.py", "sampler.py"} <= helpers(watching.pid):
                assert time.monotonic() < ends
                time.sleep(0.1)
            assert [one["pid"] for one in sampled({"slurm": "471147"})] == [pid]
        finally:
            watching.send_signal(signal.SIGINT)
            watching.communicate(timeout=60)


def helpers(parent: int) -> set[str]:
    """The programs of ours that a process has started."""
    pids = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    lines = [Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in pids]
    return {os.path.basename(word) for line in lines for word in line if "/probes/job/" in word}
