"""The script for machines with a GPU ends, keeps what it promises, and leaves nothing behind; on fakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from fakes import build_cuda, write_config
from fakes.tree import nvidia_tree

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "tools/hardware/run.sh"
MARK = b"NODEDOCTOR_HARDWARE_RUN="
PROMISED = {
    *("machine.txt", "steps.tsv", "summary.txt", "pack.txt", "whole.json", "whole.txt", "recording.zip"),
    *("replay.json", "sides.json", "sides-doctor.json", "agreement.txt", "agreement.json", "ranks.txt"),
}
STEPS = ["whole", "text", "record", "replay", "sides", "sides-doctor", "copies", "gemm", "collectives"]
STEPS += ["hang", "killed", "oom", "assert", "deep"]

SINGLE_FILE = f"""\
import sys
sys.path.insert(0, {str(REPOSITORY)!r})
from nodedoctor.__main__ import main
sys.exit(main())
"""

SMI = """\
#!/bin/sh
# Two GPUs that somebody uses; a daemon is left behind by the question for all columns.
case $1 in
  *index,driver_version*) sleep 300 >/dev/null 2>&1 & ;;
esac
for gpu in 0 1; do
  echo "$1" | sed -e 's/.*=//' | tr , '\\n' | while read -r column; do
    case $column in
      index) echo $gpu ;;
      name) echo NVIDIA H100 80GB HBM3 ;;
      driver_version) echo 570.86.10 ;;
      memory.total) echo 81559 ;;
      memory.used) echo 40000 ;;
      temperature.gpu) echo 64 ;;
      *) echo '[N/A]' ;;
    esac
  done | paste -sd, -
done
"""


class World:
    """A machine with two fake GPUs: what to start, with which environment, in which folder."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.out = folder / "out"
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        (folder / "nodedoctor.pyz").write_text(SINGLE_FILE)
        tree = nvidia_tree(folder / "tree", gpus=2)
        self.argv = [str(SCRIPT), "--pyz", str(folder / "nodedoctor.pyz"), "--out", str(self.out)]
        self.argv += ["--root", str(tree)]
        self.commands = folder / "commands"
        self.commands.mkdir()
        path = f"{self.commands}:{Path(sys.executable).parent}:/usr/bin:/bin"
        self.env = {"PATH": path, "HOME": str(folder), "TMPDIR": str(self.scratch), **env}

    def start(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        argv = [*self.argv, *words]
        return subprocess.Popen(
            argv, env=self.env, cwd="/", text=True, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        script = self.start(*words)
        stdout, stderr = script.communicate(timeout=420)
        return script.returncode, stdout, stderr

    def folder(self) -> Path:
        [found] = [path for path in self.out.iterdir() if path.is_dir()]
        return found

    def steps(self) -> dict[str, str]:
        rows = [line.split("\t") for line in (self.folder() / "steps.tsv").read_text().splitlines()]
        return {row[0]: row[1] for row in rows}

    def processes(self) -> list[str]:
        """Processes that a step of this run started and that are still there."""
        wanted = MARK + self.folder().name.encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted in path.read_bytes().split(b"\0"):
                    found.append(path.parent.name)
            except OSError:
                continue
        return found


@pytest.fixture
def world(tmp_path, fake_nvml, tmp_path_factory) -> World:
    told = fake_nvml({"gpus": 2})
    libraries = f"{told['LD_LIBRARY_PATH']}:{build_cuda(tmp_path_factory.mktemp('cuda'))}"
    config = write_config(tmp_path / "cuda.conf", {"devices": 2})
    return World(tmp_path, {**told, "LD_LIBRARY_PATH": libraries, "NODEDOCTOR_FAKE_CUDA": str(config)})


def check_archive(world: World) -> None:
    """One archive, below its limit, of what is in the folder; nothing else is left."""
    folder = world.folder()
    archive = folder.with_name(folder.name + ".tar.gz")
    assert archive.stat().st_size < 16 * 1024 * 1024
    with tarfile.open(archive) as tar:
        packed = {name for name in tar.getnames() if "/" in name}
    assert packed == {str(path.relative_to(world.out)) for path in folder.rglob("*")}
    assert list(world.scratch.iterdir()) == []
    assert world.processes() == []


@pytest.mark.slow
def test_without_torch_and_with_gpus_in_use_the_rest_is_done(world: World):
    smi = world.commands / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    code, stdout, stderr = world.run("--python", sys.executable)
    assert (code, stderr) == (0, ""), stdout
    check_archive(world)
    folder, steps = world.folder(), world.steps()
    assert {path.name for path in folder.iterdir()} >= PROMISED
    assert list(steps) == STEPS
    assert all(steps[name].startswith("exit code") for name in STEPS[:6]), steps
    assert all(steps[name].startswith("skipped: no torch in") for name in STEPS[6:-1]), steps
    assert steps["deep"] == "skipped: GPU 1: 40000 MiB in use; --busy loads GPUs in use"
    rows = {(row["what"], row["way"]): row for row in json.loads((folder / "agreement.json").read_text())}
    assert rows["gpu:1 temperature_c", "nvidia-smi"]["result"] == "differ"
    assert rows["gpu:1 temperature_c", "NVML"]["result"] == "agree"
    assert rows["gpu:1 memory_total_mib", "nvidia-smi"]["result"] == "agree"
    assert "sleep" in (folder / "left.txt").read_text()
    assert len(stdout.splitlines()) <= 61
    assert len(stdout) < 12000
    assert "differ gpu:1 temperature_c 34 64 nvidia-smi" in stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_packs_what_is_there(world: World, number: int):
    script = world.start("--python", sys.executable)
    ends = time.monotonic() + 120
    while not any(world.out.glob("*/debug.log")) and time.monotonic() < ends:
        time.sleep(0.1)
    script.send_signal(number)
    stdout, _ = script.communicate(timeout=120)
    assert script.returncode == 128 + number
    check_archive(world)
    assert world.steps()["the rest"] == "skipped: interrupted"
    assert "nodedoctor: no report" in stdout


@pytest.mark.parametrize("words", [["--seconds", "5"], ["--fast"], ["--pyz"]])
def test_a_wrong_option_is_refused(words: list[str]):
    done = subprocess.run(
        [SCRIPT, *words], capture_output=True, text=True, env={"PATH": os.defpath}, timeout=60
    )
    assert done.returncode == 64
    assert done.stdout == ""


@pytest.mark.real
def test_jobs_that_end_badly_on_the_processor(world: World):
    python = os.environ.get("NODEDOCTOR_TORCH_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import torch.distributed"], capture_output=True).returncode:
        pytest.skip("no torch: set NODEDOCTOR_TORCH_PYTHON to a Python that has one")
    code, stdout, stderr = world.run("--python", python, "--cpu", "--seconds", "400")
    assert (code, stderr) == (0, ""), stdout
    check_archive(world)
    assert "job hang: cpu_stuck_or_slow_rank (medium), rank 1: as expected" in stdout
    assert "job killed: peer_died (high), rank 1: as expected" in stdout, world.steps()
    assert world.steps()["oom"] == "skipped: needs a GPU"
    what = {json.loads(line)["what"] for line in (world.folder() / "copies.jsonl").read_text().splitlines()}
    assert what == {"memory", "host to GPU", "GPU to host"}
    assert (world.folder() / "collectives.jsonl").read_text().count("all-reduce") == 1
