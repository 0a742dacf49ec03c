"""Jobs that hang, watched to the verdict; and jobs that only look like it, which nobody may call hung."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ranks
from trial_table import OUTCOME, TRIED, outcome_of_hang

pytestmark = pytest.mark.slow

NODEDOCTOR = (sys.executable, "-m", "nodedoctor")


def run(
    tmp_path: Path,
    fault: str,
    *options: str,
    seconds: int = 600,
    undumpable: Collection[int] = (),
    user: tuple[str, ...] = (),
) -> tuple[str, Path]:
    """What `run` says of a job, and the folder that it leaves."""
    command = ranks.job(tmp_path, fault, seconds=seconds, undumpable=undumpable)
    argv = [
        *user,
        *NODEDOCTOR,
        "run",
        "--dir",
        str(tmp_path / "jobs"),
        "--hang-after",
        "4",
        *options,
        "--",
        *command,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    (folder,) = (tmp_path / "jobs").iterdir()
    jsonschema.validate(json.loads((folder / "run.json").read_text()), schema("run"))
    if (folder / "triage.json").exists():
        jsonschema.validate(json.loads((folder / "triage.json").read_text()), schema("triage"))
    return done.stderr, folder


def schema(name: str) -> Any:
    return json.loads((resources.files("nodedoctor.report") / f"schemas/{name}.schema.json").read_text())


@pytest.mark.race
@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        ("load_shard()", "load_shard"),
        ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", "main"),
        ("os.kill(os.getpid(), 19)", "is stopped"),
        ("reader, writer = os.pipe(); os.read(reader, 1)", "main"),
        ("from_loader(killed)", "from_loader"),
        ("from_loader(read_a_pipe)", "from_loader"),
        ("broadcast(600)", "different collectives"),
    ],
    ids=["asleep", "locked", "stopped", "pipe", "loader-dead", "loader-stuck", "mismatch"],
)
def test_the_rank_that_holds_the_job_up_is_named(
    fault: str, shown: str, tmp_path: Path, record_property: Any
) -> None:
    record_property(TRIED, f"stand-in: {fault[-30:]}")
    said, folder = run(tmp_path, fault, "--kill-after", "2")
    assert "HANG" in said
    found = json.loads((folder / "triage.json").read_text())
    record_property(OUTCOME, outcome_of_hang([who["rank"] for who in found["culprits"]], [1]))
    assert [who["rank"] for who in found["culprits"]] == [1]
    assert shown in found["headline"]
    assert found["fixes"]
    assert {path.name.split("-")[1] for path in (folder / "stacks").glob("rank-*")} == {"0", "1", "2"}
    again = subprocess.run([*NODEDOCTOR, "triage", "--json", str(folder)], capture_output=True, text=True)
    assert [who["rank"] for who in json.loads(again.stdout)["culprits"]] == [1]


@pytest.mark.race
@pytest.mark.parametrize(
    "fault", ["write_checkpoint()", "crunch()", "compile_kernels()", "rl_phases()", "slow_steps()"]
)
def test_long_work_is_no_hang(fault: str, tmp_path: Path, record_property: Any) -> None:
    """Others wait for it far longer than the threshold, and it is at work."""
    record_property(TRIED, f"stand-in: {fault}")
    said, folder = run(tmp_path, fault, seconds=20)
    record_property(OUTCOME, "false alarm" if "HANG" in said else "right")
    assert "HANG" not in said
    assert json.loads((folder / "run.json").read_text())["hangs"] == []


@pytest.mark.race
@pytest.mark.parametrize("seconds", [4.6, 5.2, 5.5, 5.8])
def test_a_step_that_comes_during_the_look_is_no_hang(seconds: float, tmp_path: Path) -> None:
    """Silence is suspicious after 4 s, and the two looks take 2 s more: a step comes in between, although the
    stacks of all main threads are the same."""
    step = f"import threading; threading.Timer({seconds}, say, ['step 50 loss 1.0']).start()"
    said, folder = run(tmp_path, f"{step}; time.sleep(8)", seconds=9)
    assert "HANG" not in said
    assert json.loads((folder / "run.json").read_text())["hangs"] == []


@pytest.mark.race
def test_a_rank_that_died_is_named(tmp_path: Path) -> None:
    said, folder = run(tmp_path, "os.kill(os.getpid(), 9)", "--kill-after", "2")
    found = json.loads((folder / "triage.json").read_text())
    assert (found["cause"], [who["rank"] for who in found["culprits"]]) == ("peer_died", [1])
    assert "HANG" in said


@pytest.mark.race
def test_a_rank_that_the_kernel_killed_for_memory(memory_cgroup: Path, tmp_path: Path) -> None:
    """Its launcher has not noticed: the kernel's log says why it is gone, while the others still wait."""
    if subprocess.run(["dmesg"], capture_output=True).returncode:
        pytest.skip("the kernel log cannot be read")
    said, folder = run(tmp_path, f"fill_memory({str(memory_cgroup)!r})", "--kill-after", "2")
    found = json.loads((folder / "triage.json").read_text())
    assert (found["cause"], [who["rank"] for who in found["culprits"]]) == ("peer_host_oom", [1])
    assert "HANG" in said
    again = subprocess.run([*NODEDOCTOR, "triage", "--json", str(folder)], capture_output=True, text=True)
    assert json.loads(again.stdout)["cause"] == "peer_host_oom"


@pytest.mark.race
def test_where_no_kernel_log_can_be_read_the_counter_of_the_group_tells(
    memory_cgroup: Path, tmp_path: Path
) -> None:
    """As in a container: its own control group counts the kills, and one rank ended by SIGKILL."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("dmesg", "journalctl"):
        (tools / name).write_text("#!/bin/sh\necho Operation not permitted >&2; exit 1\n")
        (tools / name).chmod(0o755)
    code = (
        "import pathlib, subprocess, sys, time\n"
        f"group = pathlib.Path({str(memory_cgroup)!r}, 'cgroup.procs')\n"
        "rank = subprocess.Popen([sys.executable, '-c', sys.argv[1]], env={'RANK': '0', 'WORLD_SIZE': '1'})\n"
        "group.write_text(str(rank.pid)); code = rank.wait()\n"
        "print(f'Child process (rank 0) exited: failed (exitcode: {code}) local_rank: 0 (pid: {rank.pid}) of "
        "binary: python', file=sys.stderr); sys.exit(1)"
    )
    fill = "import os, time; time.sleep(4); hoard = bytearray(os.urandom(1 << 20)); hoard *= 1000"
    argv = [*NODEDOCTOR, "run", "--dir", str(tmp_path / "jobs"), "--hang-after", "4", "--",
            sys.executable, "-c", code, fill]  # fmt: skip
    env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(argv, capture_output=True, timeout=120, env=env)
    (folder,) = (tmp_path / "jobs").iterdir()
    found = json.loads((folder / "triage.json").read_text())
    assert (found["cause"], [who["rank"] for who in found["culprits"]]) == ("peer_host_oom", [0])
    assert "control group" in found["headline"]
    (line,) = (folder / "logs/kernel.log").read_text().splitlines()
    assert line.startswith(f"nodedoctor: control group {memory_cgroup}: oom_kill rose from 0 to 1, memory.")


@pytest.mark.parametrize("hidden", [(1,), (1, 2), (0, 1, 2)])
def test_ranks_that_have_made_themselves_undumpable(hidden: tuple[int, ...], tmp_path: Path) -> None:
    """An ordinary user has their stacks by the signal that they have registered, and with it their ranks."""
    user = ranks.as_an_ordinary_user(tmp_path)
    said, folder = run(tmp_path, "load_shard()", "--kill-after", "1", undumpable=hidden, user=user)
    found = json.loads((folder / "triage.json").read_text())
    assert "HANG" in said
    assert [who["rank"] for who in found["culprits"]] == [1]
    assert "load_shard" in found["headline"]


@pytest.mark.parametrize(("hidden", "named"), [((1,), []), ((2,), [1]), ((1, 2), []), ((0, 1, 2), [])])
def test_a_rank_that_cannot_be_read_is_not_gone(
    hidden: tuple[int, ...], named: list[int], tmp_path: Path
) -> None:
    """Of ranks that are not armed it is seen that the job hangs, and said why no more is: that only one or
    two of them tell their place does not mean that the others have died."""
    user = ranks.as_an_ordinary_user(tmp_path)
    options = ("--kill-after", "1,force", "--no-arm")
    said, folder = run(tmp_path, "load_shard()", *options, undumpable=hidden, user=user)
    found = json.loads((folder / "triage.json").read_text())
    assert "HANG" in said
    assert [who["rank"] for who in found["culprits"]] == named
    assert found["cause"] == ("cpu_stuck_or_slow_rank" if named else "undetermined")
    assert "undumpable" in " ".join(found["coverage"]["notes"])
    assert named or "as root" in found["next"][0]["text"]


def test_the_example_in_the_pages(tmp_path: Path) -> None:
    """Its ranks talk by sockets of their own: nothing in their stacks is a collective that we know."""
    example = Path(__file__).parents[2] / "docs/examples/hang.py"
    argv = [*NODEDOCTOR, "run", "--dir", str(tmp_path), "--hang-after", "4", "--kill-after", "1", "--"]
    done = subprocess.run([*argv, ranks.python(), str(example)], capture_output=True, text=True, timeout=120)
    (folder,) = tmp_path.iterdir()
    found = json.loads((folder / "triage.json").read_text())
    assert [who["rank"] for who in found["culprits"]] == [1], done.stderr
    assert "load_batch" in found["headline"]


def test_watch_a_job_that_runs_already(tmp_path: Path) -> None:
    """Nothing was armed: the kernel's view, and py-spy where it is installed."""
    command = ranks.job(tmp_path, "load_shard()")
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    argv = [*NODEDOCTOR, "watch", "--job", str(job.pid), "--dir", str(tmp_path / "jobs"), "--hang-after", "4"]
    try:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            lines = []
            for line in watch.stdout:
                lines.append(line)
                if "kept in" in line:
                    break
            assert job.poll() is None  # it was looked at, and goes on
            watch.send_signal(signal.SIGINT)
            assert watch.wait(60) == 2
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    assert any("ranks 0-2 of 3" in line for line in lines)
    assert any("HANG" in line for line in lines)


def said_until(words: str, tmp_path: Path, fault: str, hang_after: int, **more: Any) -> str:
    """What `run` says of a job up to some words; then the job is ended."""
    command = ranks.job(tmp_path, fault, **more)
    argv = [
        *NODEDOCTOR,
        "run",
        "--dir",
        str(tmp_path / "jobs"),
        "--hang-after",
        str(hang_after),
        "--",
        *command,
    ]
    log = (tmp_path / "log").open("wb")
    with log, subprocess.Popen(argv, stdout=log, stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        lines = []
        for line in job.stderr:
            lines.append(line)
            if words in line:
                break
        time.sleep(0.5)
        job.send_signal(signal.SIGTERM)
        job.wait(30)
    return "".join(lines)


def test_a_job_that_goes_on_again_is_said_to(tmp_path: Path) -> None:
    assert "HANG" in said_until("goes on again", tmp_path, "time.sleep(12)", 4)


def test_a_job_without_steps_goes_on_again(tmp_path: Path) -> None:
    """Nothing is printed: that all of its ranks work again shows it."""
    fault = "time.sleep(30); crunch()"  # a busy machine takes its time to look
    said = said_until("goes on again", tmp_path, fault, 4, seconds=15, after="crunch()", quiet=True)
    assert "HANG" in said


def test_an_endless_loop_is_no_work(tmp_path: Path) -> None:
    """It uses a whole core: ten times the silence tells it from work, and it is said that it may be work."""
    said = said_until("kept in", tmp_path, "spin()", 1)
    assert "PERHAPS A HANG" in said
    assert "Rank 1" in said and "has been in spin" in said
    (folder,) = (tmp_path / "jobs").iterdir()
    found = json.loads((folder / "triage.json").read_text())
    assert ([who["rank"] for who in found["culprits"]], found["confidence"]) == ([1], "low")
