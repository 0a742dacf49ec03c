"""Real jobs of torch on CPU that fail on purpose: their logs and their dumps name the cause and the rank."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from nodedoctor.triage.job import examine_job

pytestmark = pytest.mark.real

JOB = Path(__file__).with_name("triage_job.py")


def run(python: str, folder: Path, fault: str, rank: int, **variables: str) -> Path:
    """Run the job to its end; returns its log. Its own timeout ends it, ours only if it hangs."""
    argv = [
        python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "4",
        str(JOB),
        fault,
        str(rank),
    ]
    log = folder / "train.log"
    with log.open("wb") as out:
        subprocess.run(
            argv, stdout=out, stderr=subprocess.STDOUT, timeout=180, env={**os.environ, **variables}
        )
    return log


@pytest.mark.parametrize(
    ("fault", "rank", "causes"),
    [
        ("none", 9, {"none"}),
        ("sleep", 2, {"cpu_stuck_or_slow_rank"}),
        ("gil", 1, {"cpu_stuck_or_slow_rank"}),
        ("stop", 3, {"cpu_stuck_or_slow_rank"}),
        ("kill", 1, {"peer_died"}),
        ("segv", 2, {"peer_died"}),
        ("exception", 3, {"user_code_exception"}),
        ("saving", 0, {"timeout_too_short_legit_work"}),
    ],
)
def test_log(python: str, fault: str, rank: int, causes: set[str], tmp_path: Path) -> None:
    verdict = examine_job([str(run(python, tmp_path, fault, rank))]).verdict
    assert verdict.cause in causes
    assert [who.rank for who in verdict.culprits] == ([] if fault == "none" else [rank])


@pytest.mark.parametrize(
    ("fault", "rank", "cause"),
    [("sleep", 2, "cpu_stuck_or_slow_rank"), ("skip", 1, "collective_mismatch")],
)
def test_dumps(python: str, fault: str, rank: int, cause: str, tmp_path: Path) -> None:
    """Wrong sizes and types end the job before anybody can dump: such dumps are written by hand elsewhere."""
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    run(python, tmp_path, fault, rank, DUMPS=str(dumps), TORCH_FR_BUFFER_SIZE="2000", TIMEOUT="24")
    verdict = examine_job([str(dumps)]).verdict
    named = [who.rank for who in verdict.culprits]
    assert verdict.cause == cause
    # Two collectives that meet may abort a rank before it dumps; without it there can be no majority.
    assert named == [rank] or (len(list(dumps.iterdir())) < 4 and named == [])


def kernel_log() -> list[str]:
    """The kernel's lines so far; skips where they may not be read."""
    done = subprocess.run(["dmesg"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the kernel log cannot be read: {done.stderr.strip()}")
    return done.stdout.splitlines()


def test_host_memory_runs_out(python: str, memory_cgroup: Path, tmp_path: Path) -> None:
    """Nothing but the kernel's line tells this from any other SIGKILL."""
    before = set(kernel_log())
    log = run(python, tmp_path, "oom", 2, MEMORY_CGROUP=str(memory_cgroup))
    alone = examine_job([str(log)]).verdict
    assert (alone.cause, [who.rank for who in alone.culprits]) == ("peer_died", [2])
    kernel = tmp_path / "dmesg.txt"
    kernel.write_text("\n".join(line for line in kernel_log() if line not in before) + "\n")
    both = examine_job([str(log), str(kernel)]).verdict
    assert (both.cause, [who.rank for who in both.culprits]) == ("peer_host_oom", [2])


def test_a_lost_node(python: str, tmp_path: Path) -> None:
    """Two launchers with two ranks each; the second one goes, and its ranks with it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    logs = [tmp_path / f"node{node}.log" for node in range(2)]
    jobs = []
    for node, log in enumerate(logs):
        argv = [
            python, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node),
            "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(port),
            str(JOB), "node", "1",
        ]  # fmt: skip
        with log.open("wb") as out:
            jobs.append(subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT))
    for job in jobs:
        job.wait(timeout=180)
    both = examine_job([str(log) for log in logs]).verdict
    alone = examine_job([str(logs[0])]).verdict
    assert (both.cause, alone.cause, alone.culprits) == ("peer_died", "peer_died", ())
    said = logs[0].read_text()
    if all(f"[rank{rank}]: RuntimeError" in said for rank in (0, 1)):
        assert [who.rank for who in both.culprits] == [2, 3]
        assert {who.rank for who in alone.parties} == {2, 3}
    else:  # the launcher ended one of the two before it could speak: it may be the first to have gone
        assert {who.rank for who in both.culprits} <= {2, 3}


@pytest.mark.parametrize(("fault", "rank"), [("skip", 1), ("size", 3), ("dtype", 1)])
def test_mismatch_from_the_log_blames_nobody_wrongly(
    python: str, fault: str, rank: int, tmp_path: Path
) -> None:
    document = examine_job([str(run(python, tmp_path, fault, rank))]).verdict
    assert document.cause in ("collective_mismatch", "undetermined")
    assert {who.rank for who in document.culprits} <= {rank}, json.dumps(document.headline)


@pytest.mark.parametrize(("fault", "rank"), [("skip", 2), ("dtype", 1)])
def test_detail_names_the_odd_rank(python: str, fault: str, rank: int, tmp_path: Path) -> None:
    log = run(python, tmp_path, fault, rank, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    verdict = examine_job([str(log)]).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("collective_mismatch", [rank])
