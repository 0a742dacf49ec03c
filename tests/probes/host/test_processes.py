"""Who runs here: real processes with secrets in command lines, ranks and their children, a stuck one."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from asking import ask, said, write
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.facts.host.processes import Process, Processes, running_processes
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.probes.host.environment import kept_variables

SECRET = "s3kr1tValue"
READY = "import sys, time; print('ready', flush=True); time.sleep(600)"
LOADER = "import os\nif os.fork(): os.wait()\nelse:\n " + READY
FEW_FILES = (
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512)); f = open('/dev/null'); " + READY
)

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python with a program and wait until it says that it runs; everything is ended after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def go(code: str, *args: str, title: str = "python", **env: str) -> subprocess.Popen[bytes]:
        running = subprocess.Popen(
            [title, "-c", code, *args],
            executable=sys.executable,
            env={"PATH": os.environ["PATH"], **env},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(running)
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        return running

    yield go
    for running in started:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        assert running.stdout is not None
        running.stdout.close()


def look() -> tuple[Processes, str]:
    seen = ask(running_processes, name="processes")
    found = Processes.parse(seen)
    assert isinstance(found, Processes)
    json.dumps(asdict(found))
    return found, seen.text


def by_pid(found: Processes, pid: int) -> Process:
    return next(process for process in found.all if process.pid == pid)


def test_no_secret_of_other_processes_is_printed(start: Start):
    env = {
        "WANDB_API_KEY": SECRET,
        "RAY_AUTH_TOKEN": SECRET,
        "https_proxy": f"http://me:{SECRET}@proxy",
        "RAY_ADDRESS": f"ray://me:{SECRET}@head:1",
        "NCCL_DEBUG": "INFO",
        "RANK": "0",
        "WORLD_SIZE": "8",
    }
    args = (f"--api-key={SECRET}", "--password", SECRET, f"redis://:{SECRET}@head")
    running = start(f"a = '{SECRET}'; {READY}", *args, **env)
    titled = start(READY, *args, title=f"ray::Train.step(key={SECRET})", **env)
    found, text = look()
    assert SECRET not in text
    process = by_pid(found, running.pid)
    assert (process.program, process.script) == ("python", "-c")
    assert process.environment["NCCL_DEBUG"] == "INFO"
    assert process.environment["RAY_ADDRESS"] == "ray://***@head:1"
    assert by_pid(found, titled.pid).program.startswith("python")


def test_a_rank_and_its_data_loader(start: Start):
    env = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "MASTER_ADDR": "node-0", "MASTER_PORT": "29500"}
    running = start(LOADER, SLURM_JOB_ID="4711", **env)
    found, _ = look()
    rank = by_pid(found, running.pid)
    assert (rank.role, rank.rank, rank.local_rank, rank.world_size) == ("rank", 3, 1, 8)
    assert (rank.master, rank.job) == ("node-0:29500", "4711")
    assert rank.descriptors is not None
    assert rank.exe == os.path.realpath(sys.executable)
    assert rank.state == "sleeping"
    assert rank.started is not None
    assert abs(rank.started - time.time()) < 86400
    loaders = [process for process in found.all if process.ppid == running.pid]
    assert [(loader.role, loader.environment["RANK"]) for loader in loaders] == [("", "3")]


def test_limits_and_open_files_are_those_of_the_process(start: Start):
    running = start(FEW_FILES, title="/opt/ray/raylet")
    found, _ = look()
    raylet = by_pid(found, running.pid)
    assert (raylet.role, raylet.program) == ("raylet", "raylet")
    bound = raylet.limits["nofile"]
    assert (bound.soft, bound.hard) == (256, 512)
    assert raylet.descriptors is not None
    assert raylet.descriptors >= 4
    assert found.ray
    assert raylet in found.training


def test_a_worker_of_ray_by_its_title(start: Start):
    running = start(READY, title="ray::PolicyWorker.forward_backward")
    found, _ = look()
    worker = by_pid(found, running.pid)
    assert (worker.role, worker.program) == ("ray-worker", "ray::PolicyWorker.forward_backward")


def fake_process(root: Path, pid: int, name: str, cmdline: str) -> Path:
    """The files of /proc/PID, for a process that need not exist."""
    here = root / "proc" / str(pid)
    numbers = " ".join(["0"] * 15 + ["1", "0", "5000"] + ["0"] * 30)
    write(here / "stat", f"{pid} ({name}) S 1 {numbers}\n")
    write(here / "statm", "100 50 10 1 0 20 0\n")
    write(
        here / "status",
        f"Name:\t{name}\nUid:\t1000\t1000\t1000\t1000\nThreads:\t4\nCapEff:\t0000000000000000\n",
    )
    write(here / "comm", f"{name}\n")
    write(here / "limits", "Max open files            1024                 4096                 files     \n")
    write(here / "cgroup", "0::/system.slice/slurmstepd.scope/job_77/step_0\n")
    write(here / "environ", f"RANK={pid - 100}\0WORLD_SIZE=3\0SECRET_KEY={SECRET}\0")
    write(
        here / "maps",
        "7f0-7f1 r-xp 00 08:01 1 /opt/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2\n",
    )
    (here / "fd").mkdir()
    (here / "fd/0").symlink_to("/dev/null")
    (here / "fd/5").symlink_to("/dev/nvidia3")
    (here / "exe").symlink_to("/opt/bin/python3.12")
    return write(here / "cmdline", cmdline)


@pytest.mark.slow
def test_a_process_that_blocks_its_readers_is_named_and_the_rest_reported(tmp_path: Path):
    """Opening a file under somebody's write lease stands for the lock on a process's memory map."""
    write(tmp_path / "proc/stat", "btime 1700000000\n")
    write(tmp_path / "etc/passwd", "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n")
    stuck = fake_process(tmp_path, 101, "pt_main_thread", "python\0train.py\0")
    fake_process(tmp_path, 100, "python3.12", f"python3.12\0-u\0/job/train.py\0--token\0{SECRET}\0")
    fake_process(tmp_path, 102, "python3.12", "python\0-m\0torch.distributed.run\0train.py\0")
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fd = os.open(stuck, os.O_WRONLY)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        pytest.skip("this file system has no leases")
    try:
        seen = ask(running_processes, root=tmp_path, name="processes")
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, before)
    assert SECRET not in seen.text
    found = Processes.parse(seen)
    assert isinstance(found, Processes)
    assert [process.pid for process in found.all] == [100, 101, 102]
    first, blocked, launcher = found.all
    assert (first.role, first.rank, first.script, first.user, first.job) == (
        "rank",
        0,
        "train.py",
        "me",
        "77",
    )
    assert first.libraries == ("/opt/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2",)
    assert (first.nvidia, first.descriptors, first.threads) == (("/dev/nvidia3",), 2, 4)
    assert (blocked.stuck_at, blocked.limits["nofile"].soft, blocked.nvidia) == (
        "cmdline",
        1024,
        ("/dev/nvidia3",),
    )
    assert found.stuck == (blocked,)
    assert (launcher.role, launcher.script, launcher.stuck_at) == (
        "launcher",
        "-m torch.distributed.run",
        None,
    )
    assert found.unread == 0


COMMANDS = [
    ("python\0train.py\0--lr\0x", "python", "train.py"),
    ("/opt/venv/bin/python3.12\0-u\0-X\0dev\0/job/run_all.py", "python3.12", "run_all.py"),
    (
        "python\0-m\0vllm.entrypoints.openai.api_server\0--api-key\0x",
        "python",
        "-m vllm.entrypoints.openai.api_server",
    ),
    ("python\0-uc\0print('x')", "python", "-c"),
    ("bash\0-lc\0curl", "bash", "-c"),
    ("bash\0-c\0curl -H 'x'", "bash", "-c"),
    ("bash\0/opt/run.sh\0arg", "bash", "run.sh"),
    ("mysql\0-psecret", "mysql", ""),
    ("sshd: me@pts/0", "sshd:", ""),
    ("ray::IDLE", "ray::IDLE", ""),
    ("python\0a=b", "python", ""),
    ("http://me:pw@host/x\0y", "otherwise", ""),
    ("", "otherwise", ""),
    ("\x1b[31mred\0x", "otherwise", ""),
]


def test_of_command_lines_only_names_are_kept(tmp_path: Path):
    write(tmp_path / "proc/stat", "btime 1700000000\n")
    for number, (cmdline, _, _) in enumerate(COMMANDS):
        fake_process(tmp_path, 200 + number, "ray::otherwise", cmdline)
        (tmp_path / f"proc/{200 + number}/exe").unlink()
        (tmp_path / f"proc/{200 + number}/exe").symlink_to("/bin/otherwise")
    found = Processes.parse(ask(running_processes, root=tmp_path, name="processes"))
    assert isinstance(found, Processes)
    expected = [(program, script) for _, program, script in COMMANDS]
    assert [(process.program, process.script) for process in found.all] == expected


def row(pid: int, ppid: int = 0, program: str = "python", **more: Any) -> dict[str, Any]:
    environment = {name: str(value) for name, value in more.pop("env", {}).items()}
    return {"pid": pid, "ppid": ppid, "program": program, "environment": kept_variables(environment), **more}


def parse(*rows: dict[str, Any]) -> Processes:
    found = Processes.parse(said(json.dumps({"processes": rows})))
    assert isinstance(found, Processes)
    return found


ENV = {"RANK": 2, "LOCAL_RANK": 2, "WORLD_SIZE": 8}
SLURM = {"SLURM_PROCID": 5, "SLURM_LOCALID": 1, "SLURM_NTASKS": 16}
LOADERS = [row(1, env=ENV), row(2, 1, env=ENV), row(3, 2, env=ENV)]
RAY = [row(1, program="gcs_server"), row(2, program="raylet"), row(3, program="ray::A.f", env=ENV)]
SERVICES = [
    row(1, program="nvidia-persistenced"),
    row(2, program="nv-fabricmanager"),
    row(3, program="dcgmi"),
]
TORCHRUN = row(1, program="torchrun", exe="/usr/bin/python3", env={"RANK": 2})
ROLES = [
    ("rank", [row(1, env=ENV)], ["rank 2"]),
    ("its data loaders", LOADERS, ["rank 2", "", ""]),
    ("a shell around it", [row(1, program="bash", env=ENV), row(2, 1, env=ENV)], ["", "rank 2"]),
    ("renamed main thread", [row(1, program="pt_main_thread", env=ENV)], ["rank 2"]),
    ("a launcher with its node's rank", [TORCHRUN, row(2, 1, env=ENV)], ["launcher", "rank 2"]),
    ("Slurm's task that uses a GPU", [row(1, env=SLURM, nvidia=["/dev/nvidia0"])], ["rank 5"]),
    ("Slurm's task that does not", [row(1, env=SLURM)], [""]),
    ("Open MPI", [row(1, env={"OMPI_COMM_WORLD_RANK": 7, "OMPI_COMM_WORLD_SIZE": 8})], ["rank 7"]),
    ("not Python", [row(1, program="all_reduce_perf", env=ENV)], [""]),
    ("no number", [row(1, env={"RANK": "zero"})], [""]),
    ("Ray", RAY, ["gcs-server", "raylet", "ray-worker"]),
    ("services", SERVICES, ["persistenced", "fabricmanager", "dcgm"]),
]


@pytest.mark.parametrize(("rows", "expected"), [c[1:] for c in ROLES], ids=[c[0] for c in ROLES])
def test_roles(rows: list[dict[str, Any]], expected: list[str]):
    found = parse(*rows).all
    assert [f"{p.role} {p.rank}" if p.rank is not None else p.role for p in found] == expected


def test_ranks_are_in_order_and_labelled():
    found = parse(
        row(9, env={**ENV, "RANK": 1}, script="train.py"), row(8, env={**ENV, "RANK": 0}, script="-c")
    )
    assert [rank.label for rank in found.ranks] == ["rank 0 (python, pid 8)", "rank 1 (train.py, pid 9)"]


@pytest.mark.parametrize("script", ["", "-c", "train.py", "-m train"])
@pytest.mark.parametrize("program", ["", "raylet", "python"])
def test_a_label_has_no_empty_name(program: str, script: str):
    (process,) = parse(row(40, program=program, script=script, env=ENV)).all
    labels = [replace(process, role=role).label for role in ("", "rank", "raylet", "gcs-server")]
    assert all("pid 40" in label and "(," not in label and "( " not in label for label in labels)
    assert all(label == label.strip() and label.count("raylet") <= 1 + (script != "") for label in labels)


def test_only_what_matters_is_public():
    found = parse(
        row(1, program="bash"), row(2, program="raylet"), row(3, state="zombie"), row(4, state="disk-sleep")
    )
    assert [process["pid"] for process in found.public()["processes"]] == [2, 3, 4]
    assert found.public()["count"] == 4
    assert found.all[3].blocked


LEAVES = (
    st.none() | st.integers() | st.text(max_size=8) | st.floats() | st.lists(st.text(max_size=3), max_size=2)
)
TEXTS = ["program", "script", "limits", "capabilities", "cgroup"]
FIELDS = st.sampled_from(
    ["pid", "ppid", "environment", "nvidia", "rss_bytes", "uid", "started", "errors", *TEXTS]
)
ROWS = st.dictionaries(FIELDS, LEAVES | st.dictionaries(st.text(max_size=4), st.text(max_size=4)))


@given(st.text() | st.lists(ROWS | LEAVES).map(lambda rows: json.dumps({"processes": rows})))
def test_any_text_is_processes_or_unseen(text: str):
    found = Processes.parse(said(text))
    assert isinstance(found, (Processes, Unseen))
    if isinstance(found, Processes):
        json.dumps(found.public(), allow_nan=False)


def test_no_answer_is_unseen():
    assert isinstance(Processes.parse(Observation("processes", Outcome.TIMEOUT)), Unseen)
