"""What happens around a job on a bad day: disks, clocks, floods, daemons. The job never notices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import ranks

pytestmark = pytest.mark.slow

HANG = Path(__file__).parents[2] / "docs" / "examples" / "hang.py"
RUN = (sys.executable, "-m", "nodedoctor", "run")
JUMP = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <stdlib.h>
/* The wall clock is put back by a day, and forth by two, every other second. */
int clock_gettime(clockid_t id, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int told = real(id, out);
    if (!told && id == CLOCK_REALTIME) out->tv_sec += out->tv_sec % 2 ? 2 * 86400 : -86400;
    return told;
}
"""


def kept(folder: Path) -> Path:
    """The one folder that was made."""
    (found,) = folder.iterdir()
    return found


def keepers(folder: Path) -> list[int]:
    """The processes that write to a job's folder."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            line = Path(f"/proc/{entry}/cmdline").read_bytes() if entry.isdecimal() else b""
        except OSError:
            continue
        if b"job/keeper.py" in line and str(folder).encode() in line:
            found.append(int(entry))
    return found


def test_a_disk_that_hangs_costs_the_job_nothing(tmp_path: Path) -> None:
    """Who writes to it is stopped for as long as the job prints far more than any pipe holds."""
    flood = "[print('x' * 999) for _ in range(20000)]; print('all said')"
    script = f"print('up', flush=True); input(); {flood}"
    argv = [*RUN, "--dir", str(tmp_path), "--", sys.executable, "-c", script]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, **pipes) as job:  # type: ignore[call-overload]
        assert job.stdout and job.stdout.readline() == "up\n"
        while not (found := keepers(tmp_path)):
            time.sleep(0.05)
        os.kill(found[0], signal.SIGSTOP)
        try:
            out, err = job.communicate("go\n", timeout=60)
        finally:
            with suppress(ProcessLookupError):  # it was ended for its silence
                os.kill(found[0], signal.SIGCONT)
    assert job.returncode == 0
    assert len(out) == 20000 * 1000 + len("all said\n") and out.endswith("all said\n")
    assert "ended well" in err


def test_a_folder_that_vanishes(tmp_path: Path) -> None:
    """The loss is counted and said, and the job goes on."""
    script = f"rm -rf {tmp_path}/jobs; for i in 1 2 3; do echo step $i; sleep 0.7; done"
    done = subprocess.run(
        [*RUN, "--dir", str(tmp_path / "jobs"), "--hang-after", "2", "--", "sh", "-c", script],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "step 1\nstep 2\nstep 3\n")
    assert "came to nothing: No such file or directory" in done.stderr


def test_a_full_disk(tmp_path: Path) -> None:
    """A file system of 64 KiB, with a job that prints a megabyte."""
    script = "import sys; [print('y' * 99) for _ in range(10000)]"
    words = " ".join((*RUN, "--dir", f"{tmp_path}/small", "--", sys.executable, "-c", f'"{script}"'))
    mounted = f"mkdir {tmp_path}/small && mount -t tmpfs -o size=64k none {tmp_path}/small && {words}"
    space = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))]
    done = subprocess.run([*space, "sh", "-c", mounted], capture_output=True, text=True, timeout=60)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespace of our own: {done.stderr.strip()}")
    assert (done.returncode, len(done.stdout)) == (0, 1_000_000)
    assert "came to nothing: No space left on device" in done.stderr


def test_a_job_that_daemonises(tmp_path: Path) -> None:
    """Who is left behind holds the output open: the exit code comes all the same, and it lives on."""
    script = "setsid sh -c 'echo $$ > pid; exec sleep 60' & while [ ! -s pid ]; do sleep 0.1; done; exit 4"
    argv = [*RUN, "--dir", str(tmp_path / "jobs"), "--", "sh", "-c", script]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(argv, cwd=tmp_path, **pipes) as job:  # type: ignore[call-overload]
        assert job.wait(30) == 4
        left = int((tmp_path / "pid").read_text())
        os.kill(left, signal.SIGKILL)  # it is there to be killed


def test_two_jobs_at_once_in_one_folder(tmp_path: Path) -> None:
    argv = [*RUN, "--dir", str(tmp_path), "--", "sh", "-c", 'echo "I am $0"; sleep 1; exit $0']
    jobs = [subprocess.Popen([*argv, code], stdout=subprocess.PIPE, text=True) for code in "35"]
    assert [job.communicate(timeout=60)[0] for job in jobs] == ["I am 3\n", "I am 5\n"]
    assert [job.returncode for job in jobs] == [3, 5]
    codes = {json.loads((folder / "run.json").read_text())["exit_code"] for folder in tmp_path.iterdir()}
    assert codes == {3, 5}


def test_a_flood_of_output_is_kept_within_bounds(tmp_path: Path) -> None:
    """A hundred megabytes arrive whole; of them the folder keeps the newest, or says what it lost."""
    size = 100 << 20
    script = f"head -c {size} /dev/zero; echo the end"
    argv = [*RUN, "--dir", str(tmp_path), "--", "sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
        assert job.stdout is not None
        count, last = 0, b""
        while data := job.stdout.read(1 << 20):
            count, last = count + len(data), data
    assert (job.returncode, count) == (0, size + len(b"the end\n"))
    assert last.endswith(b"the end\n")
    logs = sum(path.stat().st_size for path in (kept(tmp_path) / "logs").iterdir())
    assert 0 < logs <= 2 * (32 << 20) + (1 << 16)


def test_nothing_is_left_when_nodedoctor_is_killed(tmp_path: Path) -> None:
    """Its helpers end with the job that goes on without it."""
    argv = [*RUN, "--dir", str(tmp_path), "--", "sh", "-c", "echo ready; sleep 2; echo done"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        assert keepers(tmp_path)
        job.kill()
        assert job.stdout.read() == "done\n"
    ends = time.monotonic() + 30
    while keepers(tmp_path):
        assert time.monotonic() < ends
        time.sleep(0.1)


def test_a_job_that_nobody_waits_for_is_over_when_it_has_ended(tmp_path: Path) -> None:
    """It stays a zombie, as below process 1 of a container that waits for nobody."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(2)"]) as job:
        argv = [*RUN[:-1], "watch", "--job", str(job.pid), "--dir", str(tmp_path)]
        watch = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert (watch.returncode, watch.stdout.count("the job has ended")) == (0, 1), watch.stderr


def test_a_watch_with_too_few_descriptors_ends_with_the_job(tmp_path: Path) -> None:
    """No sampler can be started, which is said, and who would then tell that the job has ended?"""
    with subprocess.Popen(["sleep", "600"]) as job:
        ending = threading.Timer(4, lambda: (job.kill(), job.wait()))
        ending.start()
        argv = [*RUN[:-1], "watch", "--job", str(job.pid), "--dir", str(tmp_path)]
        few = ["sh", "-c", 'ulimit -n 12; exec "$@"', "sh", *argv]
        watch = subprocess.run(few, capture_output=True, text=True, timeout=60)
        ending.join()
    assert "Too many open files" in watch.stderr
    assert (watch.returncode, watch.stdout.count("the job has ended")) == (0, 1), watch.stderr


@pytest.mark.parametrize("fault", ["load_shard()", "slow_steps()"])
def test_a_clock_that_jumps(fault: str, tmp_path: Path) -> None:
    """It makes no hang, and hides none."""
    (tmp_path / "jump.c").write_text(JUMP)
    library = tmp_path / "jump.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "jump.c", "-ldl"], check=True)
    hangs = fault == "load_shard()"
    command = ranks.job(tmp_path, fault, seconds=600 if hangs else 12)
    argv = [*RUN, "--dir", str(tmp_path / "jobs"), "--hang-after", "6", "--kill-after", "1", "--", *command]
    env = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=env)
    assert ("HANG" in done.stderr) == hangs, done.stderr
    if hangs:
        found = json.loads((kept(tmp_path / "jobs") / "triage.json").read_text())
        assert [who["rank"] for who in found["culprits"]] == [1]


def test_a_container_beside_the_job_that_shares_its_process_ids(tmp_path: Path) -> None:
    """Process 1 is the pod's, and what the containers began with hangs from nothing that is seen there."""
    words = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        *(() if os.geteuid() == 0 else ("-r",)),
    ]
    with subprocess.Popen([*words, "sh", "-c", "echo up; exec sleep 300"], stdout=subprocess.PIPE) as pod:
        try:
            if not pod.stdout or pod.stdout.readline() != b"up\n":
                pytest.skip("no hosts out of namespaces here: unshare failed")
            (first,) = Path(f"/proc/{pod.pid}/task/{pod.pid}/children").read_text().split()
            inside = ["nsenter", "--target", first, "--pid", "--mount", sys.executable]
            watch = [*inside, "-m", "nodedoctor", "watch", "--job", "1", "--hang-after", "5"]
            with (tmp_path / "job.log").open("w") as log:
                subprocess.Popen([*inside, str(HANG)], stdin=subprocess.DEVNULL, stdout=log)
                subprocess.Popen(
                    [*watch, "--dir", str(tmp_path / "jobs")], stdin=subprocess.DEVNULL, stdout=log
                )
            verdict, ends = "", time.monotonic() + 90
            while not verdict and time.monotonic() < ends:
                time.sleep(0.5)
                verdict = "".join(path.read_text() for path in tmp_path.glob("jobs/*/verdict.txt"))
        finally:
            pod.kill()
    assert "Rank 1 on" in verdict


def test_a_watch_that_is_there_before_the_cluster(tmp_path: Path) -> None:
    """It waits for the first raylet, and says so, instead of saying that the job has ended."""
    raylet = tmp_path / "raylet"
    raylet.symlink_to(os.path.realpath("/bin/sleep"))
    argv = [*RUN[:-1], "watch", "--ray", "--dir", str(tmp_path / "jobs")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        first = watch.stdout.readline()
        time.sleep(2)
        assert watch.poll() is None
        with subprocess.Popen([raylet, "4"], start_new_session=True) as cluster:
            cluster.wait()
        rest, _ = watch.communicate(timeout=60)
    assert "nothing of the job runs" in first and "waiting 1800 s at most" in first
    assert (watch.returncode, "the job has ended" in rest) == (0, True)


def test_a_watch_whose_job_never_comes(tmp_path: Path) -> None:
    argv = [*RUN[:-1], "watch", "--ray", "--start-grace", "3", "--dir", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "nothing of the job came: no verdict" in done.stdout) == (3, True)
    assert "the job has ended" not in done.stdout
