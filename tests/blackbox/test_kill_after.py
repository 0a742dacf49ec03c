"""`run --kill-after`: what lives and may be well is left alone, and a line says what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import ranks

from nodedoctor.blackbox import arguments

pytestmark = pytest.mark.slow

RUN = (sys.executable, "-m", "nodedoctor", "run", "--hang-after", "4")


def run(
    folder: Path,
    fault: str,
    *options: str,
    seconds: int = 600,
    before: tuple[str, ...] = (),
    hidden: bool = False,
) -> tuple[int, str]:
    """The exit code of a job whose rank 1 does `fault`, and what was said of it.

    The stacks of a hidden one cannot be read: nodedoctor is no root then, and the ranks are undumpable.
    """
    command = [*before, *ranks.job(folder, fault, seconds=seconds, undumpable=range(3) if hidden else ())]
    user = ranks.as_an_ordinary_user(folder) if hidden else ()
    argv = [*user, *RUN, "--dir", str(folder / "jobs"), *options, "--", *command]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


def test_work_that_takes_long_is_neither_said_to_hang_nor_ended(tmp_path: Path) -> None:
    """It sleeps while others wait for it in a collective, as who evaluates on another machine does."""
    code, told = run(tmp_path, "evaluate()", "--kill-after", "3", seconds=20)
    assert (code, "HANG" in told) == (0, False), told
    (kept,) = (tmp_path / "jobs").iterdir()
    assert json.loads((kept / "run.json").read_text())["hangs"] == []


def test_time_alone_ends_no_job(tmp_path: Path) -> None:
    """Without any Python stack nothing else is known; the job comes to its end by itself.

    It waits for long: at a load of 8 the looks until it is given up take 17 s.
    """
    fault = "time.sleep(55)"
    code, told = run(tmp_path, fault, "--kill-after", "3", "--no-arm", seconds=60, hidden=True)
    assert (code, "End the job" in told) == (0, False), told
    assert "PERHAPS A HANG" in told
    (line,) = [line for line in told.splitlines() if "is not ended" in line]
    assert "no Python stack of rank 0, rank 1 and rank 2 could be read" in line
    assert "the kernel calls no rank stopped, frozen, stuck or gone" in line
    assert "no step" not in line


def test_time_alone_ends_a_job_by_force(tmp_path: Path) -> None:
    code, told = run(tmp_path, "time.sleep(600)", "--kill-after", "2,force", "--no-arm", hidden=True)
    assert code != 0 and "ending the job 2 s after the hang was seen" in told, told


def test_no_progress_and_a_stopped_rank_end_a_job_without_stacks(tmp_path: Path) -> None:
    code, told = run(tmp_path, "os.kill(os.getpid(), 19)", "--kill-after", "2", "--no-arm", hidden=True)
    assert code != 0 and "ending the job 2 s after the hang was seen" in told, told
    assert "PERHAPS" not in told


def test_no_progress_and_unchanged_stacks_end_a_job(tmp_path: Path) -> None:
    code, told = run(tmp_path, "load_shard()", "--kill-after", "2")
    assert code != 0 and "ending the job 2 s after the hang was seen" in told, told


def test_an_endless_loop_is_left_alone(tmp_path: Path) -> None:
    """It and long work look alike: that it uses CPU is said as what is missing."""
    command = ranks.job(tmp_path, "spin()")
    argv = [*RUN[:-1], "1", "--kill-after", "2", "--dir", str(tmp_path / "jobs"), "--", *command]
    log = (tmp_path / "log").open("wb")
    with log, subprocess.Popen(argv, stdout=log, stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        lines = []
        for line in job.stderr:
            lines.append(line)
            if "is not ended" in line or "ending the job" in line:
                break
        assert job.poll() is None
        job.terminate()
        job.communicate(timeout=60)
    assert "rank 1 uses CPU" in lines[-1], "".join(lines)


def test_a_rank_that_came_to_its_end_early_is_no_hang(tmp_path: Path) -> None:
    """Ranks 0 and 2 wait in nothing, and rank 1 has ended as it should."""
    done = tmp_path / "done.py"
    done.write_text(
        "import os, time\n"
        "def push():\n    time.sleep(25)\n"
        "for step in range(6):\n"
        "    time.sleep(0.1)\n"
        "    print(f'step {step} loss 1.0', flush=True)\n"
        "if os.environ['RANK'] != '1':\n    push()\n"
    )
    each = f'RANK=$rank WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 LOCAL_RANK=$rank "{ranks.python()}" {done} &'
    argv = [
        *RUN,
        "--dir",
        str(tmp_path / "jobs"),
        "--",
        "sh",
        "-c",
        f"for rank in 0 1 2; do {each} done; wait",
    ]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0
    assert "peer_died" not in told.stderr and "End the job" not in told.stderr, told.stderr


@pytest.mark.parametrize(
    ("text", "seconds", "force"), [("20", 20.0, False), ("15m", 900.0, False), ("2h,force", 7200.0, True)]
)
def test_its_words(text: str, seconds: float, force: bool) -> None:
    told = arguments.run().parse_args(["--kill-after", text, "--", "true"]).kill_after
    assert (told.seconds, told.force) == (seconds, force)


@pytest.mark.parametrize("text", ["", "x", "5,", "5,fast", ",force", "5,force,force"])
def test_words_that_it_is_not(text: str) -> None:
    done = subprocess.run([*RUN, f"--kill-after={text}", "--", "true"], capture_output=True, text=True)
    assert done.returncode == 64 and "--kill-after" in done.stderr
