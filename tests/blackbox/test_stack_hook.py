"""The sitecustomize that `run` puts in front: which Pythons it registers, and the names that it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import ranks

from nodedoctor.blackbox.job_environment import HOOK
from nodedoctor.children.programs import child

NAMES = (
    "TORCH_FR_BUFFER_SIZE",
    "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
)
SHOW = f"import json, os; print(json.dumps([name for name in {NAMES} if name in os.environ]))"


def shown(folder: Path, version: str, *command: str, **env: str) -> list[str]:
    """Which names a command of ours finds in its environment below `run`, with such a torch."""
    if version:
        (folder / "torch").mkdir()
        (folder / "torch/version.py").write_text(f"from typing import Optional\n__version__ = '{version}'\n")
    argv = [sys.executable, "-m", "nodedoctor", "run", "--dir", str(folder / "jobs"), "--", *command]
    told = {**os.environ, "PYTHONPATH": str(folder), **env}
    done = subprocess.run(argv, capture_output=True, text=True, env=told, timeout=60, check=True)
    return list(json.loads(done.stdout))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("version", "read"),
    [
        ("2.7.1+cu126", ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"]),
        ("2.10.0+cu128", ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"]),
        ("2.11.0", ["TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"]),
        (
            "2.8.0",
            ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"],
        ),  # for its pipe
        ("2.13.0+cpu", ["TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"]),
        ("3.0.0a0+git1234", ["TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"]),
        ("", list(NAMES)),  # no torch: whatever it starts may have one
        ("of unknown version", list(NAMES)),
    ],
)
def test_the_one_name_that_this_torch_reads(version: str, read: list[str], tmp_path: Path) -> None:
    assert shown(tmp_path, version, ranks.python(), "-c", SHOW) == read


def test_what_a_person_has_set_stays(tmp_path: Path) -> None:
    """Two names of different values are a mistake of theirs that env.lint tells."""
    both = {"TORCH_FR_BUFFER_SIZE": "500", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}
    assert set(both) <= set(shown(tmp_path, "2.13.0", ranks.python(), "-c", SHOW, **both))


def test_scripts_and_children_of_multiprocessing_are_registered(tmp_path: Path) -> None:
    """The main process may be a rank itself; a snippet that somebody runs with -c is none."""
    path = tmp_path / "train.py"
    path.write_text(
        "import multiprocessing, os\n"
        "def work():\n    print(os.getpid(), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    print(os.getpid(), flush=True)\n"
        "    one = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    one.start(); one.join()\n"
    )
    stacks = tmp_path / "stacks"
    env = {name: value for name, value in os.environ.items() if not name.endswith("RANK")}
    env |= {"NODEDOCTOR_STACKS": str(stacks), "PYTHONPATH": str(HOOK)}
    done = subprocess.run([ranks.python(), str(path)], capture_output=True, text=True, env=env, timeout=60)
    subprocess.run([ranks.python(), "-c", "pass"], env=env, timeout=60, check=True)
    assert sorted(file.stem for file in stacks.glob("*.json")) == sorted(done.stdout.split())


def test_what_ended_processes_left_is_removed(tmp_path: Path) -> None:
    """Whoever still runs keeps its files, and what is no file of ours stays."""
    stacks = tmp_path / "stacks"
    env = {**os.environ, "NODEDOCTOR_STACKS": str(stacks), "PYTHONPATH": str(HOOK)}
    script = tmp_path / "train.py"
    script.write_text("import os, sys; os.write(1, b'up\\n'); sys.stdin.read()")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    argv = [ranks.python(), str(script)]
    subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=60)
    (stacks / "1.json").write_text("[]")
    (stacks / "1.txt").write_text("")
    (stacks / "4194304.txt").write_text("half a pair")  # one above the largest pid
    with subprocess.Popen(argv, env=env, **pipes) as job:  # type: ignore[call-overload]
        assert job.stdout is not None and job.stdout.readline() == b"up\n"
        subprocess.run(child("job/drop_stacks", str(stacks)), check=True, timeout=60)
        found = {file.name for file in stacks.iterdir()}
        job.communicate(b"")
    assert found == {f"{job.pid}.json", f"{job.pid}.txt", "1.json", "1.txt"}


@pytest.mark.slow
def test_a_watch_of_an_armed_job_removes_it_too(tmp_path: Path) -> None:
    """A job that was armed in its batch script has no `run` that does."""
    stacks = tmp_path / "stacks"
    env = {**os.environ, "NODEDOCTOR_STACKS": str(stacks), "PYTHONPATH": str(HOOK), "RANK": "0"}
    script = tmp_path / "train.py"
    script.write_text("import os, sys; os.write(1, b'up\\n'); sys.stdin.read()")
    with subprocess.Popen(
        [ranks.python(), str(script)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as job:
        assert job.stdout is not None and job.stdout.readline() == b"up\n"
        words = ("-m", "nodedoctor", "watch", "--job", str(job.pid), "--dir", str(tmp_path / "jobs"))
        with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None and "watching rank 0" in watch.stdout.readline()
            job.communicate(b"")
            assert watch.wait(60) == 0
    assert list(stacks.iterdir()) == []
