"""With too few files, tasks or memory the doctor ends, and says which limit it met; nothing unseen passes."""

from __future__ import annotations

import compileall
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nodedoctor
from nodedoctor.children.exhaustion import exhausted_in
from nodedoctor.knowledge.fixes.exhausted import fix_of
from nodedoctor.model import Observation

PIDS = next(
    (p for p in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup") if os.access(f"{p}/cgroup.procs", os.W_OK)), ""
)
PASSES_WITHOUT_PROBES = {"doctor.plugins"}
RUN = (sys.executable, "-m", "nodedoctor", "--json", "--passive", "--deadline", "15")


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Python's own compiler crashes where it finds no memory; what users install is compiled."""
    compileall.compile_dir(str(Path(nodedoctor.__file__).parent), quiet=2)


def run(limit: Callable[[], None]) -> tuple[int, dict[str, Any] | None, str]:
    """A whole run in a child that limits itself first: exit code, document if any, and stderr."""
    done = subprocess.run(RUN, capture_output=True, preexec_fn=limit, timeout=120, stdin=subprocess.DEVNULL)
    text = done.stdout.decode()
    return done.returncode, json.loads(text) if text else None, done.stderr.decode()


def holds(code: int, document: dict[str, Any] | None, errors: str, named: str) -> bool:
    """Whether what every run promises is kept; True where the limit was met and named."""
    if document is None:
        assert code in (2, 3, 70) and errors.startswith("nodedoctor: ") and len(errors.splitlines()) == 1
        return True
    assert code in (0, 2, 3) and errors == ""
    failed = {probe["name"] for probe in document["probes"] if "exhausted: " in (probe.get("note") or "")}
    (own,) = [result for result in document["results"] if result["check"] == "doctor.exhausted"]
    if not failed:
        assert own["status"] == "pass"
        return False
    assert code == 2 and own["status"] == "fail" and named in own["findings"][0]["summary"]
    assert own["findings"][0]["fix"]["steps"]
    (cause,) = [cause for cause in document["causes"] if cause["id"] == "doctor.exhausted"]
    assert cause["owner"] == "administrator" or cause["owner"] == "you"
    assert not {f"probe:{probe}" for probe in failed} & {cause["id"] for cause in document["causes"]}
    return True


@pytest.mark.sampled(2)
@pytest.mark.parametrize("files", [5, 6, 8, 9, 10, 11, 12, 16, 20, 24, 32, 64])
def test_few_open_files(files: int):
    code, document, errors = run(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
    met = holds(code, document, errors, f"{files} open files")
    assert met if files <= 12 else True
    if document is not None and files <= 9:
        passed = {result["check"] for result in document["results"] if result["status"] == "pass"}
        assert passed <= PASSES_WITHOUT_PROBES, passed


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mib", [16, 20, 24, 28, 32, 36, 40, 48, 96])
def test_little_address_space(mib: int):
    most = mib << 20
    code, document, errors = run(lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)))
    if document is None:
        # What modules of Python log when they cannot be loaded may stand before.
        assert code == 70 and "memory" in errors.splitlines()[-1] and "bug" not in errors
    assert code in (0, 2, 3, 70)


@contextmanager
def few_tasks(tasks: int) -> Iterator[Callable[[], None]]:
    """What a child calls to enter a cgroup of that many tasks."""
    group = Path(PIDS) / f"nodedoctor-test-{os.getpid()}-{tasks}"
    group.mkdir()
    try:
        (group / "pids.max").write_text(f"{tasks}\n")
        procs = str(group / "cgroup.procs")

        def enter() -> None:
            fd = os.open(procs, os.O_WRONLY)
            os.write(fd, b"0")
            os.close(fd)

        yield enter
    finally:
        for _ in range(100):
            if not (group / "cgroup.procs").read_text():
                break
            time.sleep(0.02)
        group.rmdir()


@pytest.mark.sampled(1)
@pytest.mark.skipif(not PIDS, reason="no cgroup may be made here")
@pytest.mark.parametrize("tasks", [1, 2, 3, 4, 6, 8, 14])
def test_few_tasks_in_the_cgroup(tasks: int):
    with few_tasks(tasks) as enter:
        code, document, errors = run(enter)
        met = holds(code, document, errors, f"of {tasks} tasks of our cgroup")
        assert met if tasks < 4 else True


def started(limit: Callable[[], None], folder: Path) -> None:
    """Whatever may not be started or opened beside it: the command runs, and its exit code is ours."""
    argv = (sys.executable, "-m", "nodedoctor", "run", "--dir", str(folder), "--")
    command = (sys.executable, "-I", "-S", "-c", "import os; os.write(1, b'trains'); os._exit(3)")
    done = subprocess.run((*argv, *command), capture_output=True, preexec_fn=limit, timeout=120, text=True)
    assert (done.returncode, done.stdout) == (3, "trains"), done.stderr
    assert "Traceback" not in done.stderr and "bug" not in done.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize("files", [6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 20, 24])
def test_a_command_where_few_files_may_be_open(files: int, tmp_path: Path):
    started(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)), tmp_path)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mib", [18, 24, 32, 34, 40, 44, 48, 49, 52, 64, 96, 127, 128, 160, 256])
def test_a_command_where_little_address_space_is_left(mib: int, tmp_path: Path):
    started(lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20)), tmp_path)


def test_a_command_that_cannot_be_started_where_little_address_space_is_left():
    limited = partial(resource.setrlimit, resource.RLIMIT_AS, (48 << 20, 48 << 20))
    for words, code in (((), 64), (("--", "no-such-command"), 127), (("--", "/"), 126), (("--help",), 0)):
        argv = (sys.executable, "-m", "nodedoctor", "run", *words)
        done = subprocess.run(argv, capture_output=True, preexec_fn=limited, timeout=60, text=True)
        assert done.returncode == code and "Traceback" not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not PIDS, reason="no cgroup may be made here")
@pytest.mark.parametrize("tasks", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12])
def test_a_command_where_few_tasks_may_run(tasks: int, tmp_path: Path):
    with few_tasks(tasks) as enter:
        started(enter, tmp_path)


OTHER_USER = """
import os, resource
from nodedoctor.children.exhaustion import note_of
note_of(OSError(11, ""))  # the other user may not be able to read Python's library
if os.getuid() == 0:
    os.setgroups([])
    os.setresuid(54321, 54321, 54321)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    os._exit(0 if os.fork() else 1)
except OSError as error:
    print(note_of(error))
"""


def test_few_processes_of_a_user():
    """RLIMIT_NPROC does not bind root, so the process that meets it becomes another user first."""
    done = subprocess.run([sys.executable, "-c", OTHER_USER], capture_output=True, text=True, timeout=60)
    assert "exhausted: nproc" in done.stdout and "of 1 tasks of this user (ulimit -u)" in done.stdout


@pytest.mark.parametrize(
    "resource_name", ["nofile", "nproc", "pids.max", "memory.max", "as", "never heard of"]
)
def test_each_has_a_fix(resource_name: str):
    fix = fix_of(resource_name)
    assert fix.commands and fix.verify


def test_what_ran_out_is_read_back_from_a_recording():
    seen = Observation("env", note="env: Too many open files; exhausted: nofile 64 open files (ulimit -n)")
    found = exhausted_in(seen)
    assert found is not None and (found.resource, found.words) == ("nofile", "64 open files (ulimit -n)")
    assert exhausted_in(Observation("env", note="exhausted itself")) is None
