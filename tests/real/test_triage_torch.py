"""Real jobs of torch on CPU that fail on purpose: their logs and their dumps name the cause and the rank."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nodedoctor.triage.job import examine

pytestmark = pytest.mark.real

JOB = Path(__file__).with_name("triage_job.py")


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that has torch: NODEDOCTOR_TORCH_PYTHON, ours, or the one on PATH."""
    for name in (os.environ.get("NODEDOCTOR_TORCH_PYTHON"), sys.executable, shutil.which("python3")):
        if (
            name
            and subprocess.run([name, "-c", "import torch.distributed"], capture_output=True).returncode == 0
        ):
            return name
    pytest.skip("no torch: set NODEDOCTOR_TORCH_PYTHON to a Python that has one")


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
    verdict = examine([str(run(python, tmp_path, fault, rank))]).verdict
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
    run(python, tmp_path, fault, rank, DUMPS=str(dumps), TORCH_FR_BUFFER_SIZE="2000")
    verdict = examine([str(dumps)]).verdict
    named = [who.rank for who in verdict.culprits]
    assert verdict.cause == cause
    # Two collectives that meet may abort a rank before it dumps; without it there can be no majority.
    assert named == [rank] or (len(list(dumps.iterdir())) < 4 and named == [])


@pytest.mark.parametrize(("fault", "rank"), [("skip", 1), ("size", 3), ("dtype", 1)])
def test_mismatch_from_the_log_blames_nobody_wrongly(
    python: str, fault: str, rank: int, tmp_path: Path
) -> None:
    document = examine([str(run(python, tmp_path, fault, rank))]).verdict
    assert document.cause in ("collective_mismatch", "undetermined")
    assert {who.rank for who in document.culprits} <= {rank}, json.dumps(document.headline)


@pytest.mark.parametrize(("fault", "rank"), [("skip", 2), ("dtype", 1)])
def test_detail_names_the_odd_rank(python: str, fault: str, rank: int, tmp_path: Path) -> None:
    log = run(python, tmp_path, fault, rank, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    verdict = examine([str(log)]).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("collective_mismatch", [rank])
