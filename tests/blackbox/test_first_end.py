"""Who leaves a job by itself is known to the black box alone: no log has a line of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from nodedoctor.blackbox.finish import first_end_line as line
from nodedoctor.blackbox.samples.sample import ProcessEnd, RankSample
from nodedoctor.triage.job import examine_job

WELL = "rank 1, pid 101 ended with exit code 0 before"
RANKS = tuple(RankSample(100 + number, 1, number, 3) for number in range(3))


def ended(*rows: tuple[int, float, int | None]) -> list[ProcessEnd]:
    return [ProcessEnd(100 + number, 1, moment, status) for number, moment, status in rows]


@pytest.mark.parametrize(
    ("ends", "failed", "told"),
    [
        (ended((1, 5.0, 0), (0, 5.4, 256), (2, 5.5, 15)), False, WELL),
        (ended((1, 5.0, 0)), True, WELL),
        (ended((1, 5.0, None), (0, 5.4, None)), True, "rank 1, pid 101 ended before"),
        # a watch: they may have ended well
        (ended((1, 5.0, None), (0, 5.4, None)), False, "rank 1, pid 101 was the first to end"),
        (ended((1, 5.0, 0), (0, 5.4, 0), (2, 5.5, 0)), True, ""),  # the launcher failed afterwards
        (ended((1, 5.0, 256), (0, 5.4, 256)), True, ""),  # its own log says why
        (ended((1, 5.0, 0), (0, 5.001, 256)), True, ""),  # together
        ([], True, ""),
    ],
)  # fmt: skip
def test_who_is_said_to_have_left(ends: list[ProcessEnd], failed: bool, told: str) -> None:
    found = line(ends, RANKS, failed=failed)
    assert found.startswith(f"nodedoctor: {told}") if told else not found


@pytest.mark.parametrize(
    ("log", "named"),
    [
        ("step 3 loss 1.0\nTraining completed.\n", []),
        ("step 3 loss 1.0\n", []),
        ("RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:17792.\n", [1]),
    ],
)
def test_who_was_the_first_to_end_is_named_where_others_lost_it(
    log: str, named: list[int], tmp_path: Path
) -> None:
    (tmp_path / "train.log").write_text(log)
    (tmp_path / "ends.log").write_text("nodedoctor: rank 1, pid 101 was the first to end\n")
    verdict = examine_job([str(tmp_path)]).verdict
    assert [who.rank for who in verdict.culprits] == named
    assert (verdict.outcome == "failure") == bool(named)


LAUNCHER = """
import os, subprocess, sys, time
RANK = '''
import os, sys, time
time.sleep({silent})
if os.environ["RANK"] == "1":
    os._exit(0)
time.sleep(0.4)
print("RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:17792.", file=sys.stderr)
sys.exit(1)
'''
ranks = [
    subprocess.Popen([sys.executable, "-c", RANK], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3"})
    for rank in range(3)
]
time.sleep({silent} + 1.5)  # as torchrun, which looks now and then
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.mark.slow
@pytest.mark.parametrize("silent", [2, 7])
def test_a_rank_that_ends_with_0_is_named(silent: int, tmp_path: Path) -> None:
    """Also where the job ends while it is looked at, because it was silent for longer than 4 s."""
    argv = [sys.executable, "-m", "nodedoctor", "run", "--hang-after", "4", "--dir", str(tmp_path), "--"]
    done = subprocess.run(
        [*argv, sys.executable, "-c", LAUNCHER.replace("{silent}", str(silent))],
        capture_output=True,
        text=True,
        timeout=120,
    )
    (folder,) = tmp_path.iterdir()
    found = json.loads((folder / "triage.json").read_text())
    assert done.returncode == 1 and [who["rank"] for who in found["culprits"]] == [1]
    assert found["headline"] == "rank 1 ended with exit code 0 before all others, and these failed"


COLLECTS_AT_ONCE = """
import os, subprocess, sys, time
from threading import Thread
WORKER = '''
import os, sys, time
time.sleep(6)
if {number} == 1:
    os._exit(0)
time.sleep(0.4)
print("RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:17792.", file=sys.stderr)
sys.exit(1)
'''
workers = [subprocess.Popen([sys.executable, "-c", WORKER.replace("{number}", str(n))]) for n in range(3)]
print("second:", workers[1].pid, flush=True)
threads = [Thread(target=worker.wait) for worker in workers]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("RuntimeError: Connection closed by peer", file=sys.stderr)
sys.exit(1)
"""


@pytest.mark.slow
def test_a_watch_names_who_left_where_a_parent_takes_all_statuses(tmp_path: Path) -> None:
    with open(tmp_path / "out.log", "wb") as out:
        job = subprocess.Popen([sys.executable, "-c", COLLECTS_AT_ONCE], stdout=out, stderr=out)
    reaper = Thread(target=job.wait)
    reaper.start()
    argv = [sys.executable, "-m", "nodedoctor", "watch", "--job", str(job.pid), "--hang-after", "4"]
    done = subprocess.run(
        [*argv, "--dir", str(tmp_path / "jobs")], capture_output=True, text=True, timeout=120
    )
    reaper.join()
    second = (tmp_path / "out.log").read_text().partition("\n")[0].split()[1]
    assert f"process {second} ended " in done.stdout and "before all others, and these failed" in done.stdout
    assert done.returncode == 2
