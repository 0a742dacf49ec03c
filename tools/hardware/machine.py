"""What a step must leave as it was: settings of GPUs, files in /dev/shm, processes.

    python machine.py about              kernel, CPUs and GPUs in words
    python machine.py state              settings and files now, as JSON
    python machine.py changes BEFORE     what differs from a file of `state`, a line each
    python machine.py busy               why GPUs must not be loaded now, a line each
    python machine.py sweep MARK         kill processes whose environment has MARK, a line each
    python machine.py shm BEFORE         remove our files that jobs left in /dev/shm, a line each

Asks nvidia-smi and /proc, and resets nothing. Runs on Python 3.8.
"""

import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import time

SECONDS = 10
KILL_WAIT_S = 3.0
USED_MIB = 1500  # our choice: a driver keeps some 500 MiB of an idle GPU for itself, a context takes as much
USED_PERCENT = 10
SETTINGS = (
    *("persistence_mode", "compute_mode", "ecc.mode.current", "ecc.mode.pending", "mig.mode.current"),
    *("power.limit", "clocks.applications.graphics", "clocks.applications.memory"),
)
JOB_FILES = ("nccl-", "torch_", "cuda.shm.", "sem.mp-", "psm_")  # of NCCL, torch, CUDA and multiprocessing


def main():
    """Do what the first word says."""
    word, *rest = sys.argv[1:]
    given = rest[0] if rest else None
    if word in ("changes", "shm"):
        with open(rest[0], encoding="utf-8") as file:
            given = json.load(file)
    if word == "state":
        print(json.dumps(state(), indent=1))
        return
    lines = {"about": about, "changes": changes, "busy": busy, "sweep": sweep, "shm": remove_job_files}[word]
    for line in lines(given):
        print(line)


def smi(columns):
    """The rows of nvidia-smi: none where it does not know a column, None where it cannot be asked."""
    try:
        code, printed = run_smi(columns)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = printed.splitlines() if code == 0 else []
    return [[cell.strip() for cell in line.split(",")] for line in lines]


def run_smi(columns):
    """Exit code and output of nvidia-smi; killed at its limit, and not waited for: it may not die."""
    argv = ["nvidia-smi", "--query-gpu=" + ",".join(columns), "--format=csv,noheader,nounits"]
    pipe = subprocess.PIPE
    asked = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT)
    try:
        printed, _ = asked.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        asked.kill()
        raise
    return asked.returncode, printed.decode("utf-8", "replace").strip()


def about(_):
    """The machine in words."""
    system = os.uname()
    yield f"kernel {system.release} {system.machine}, {os.cpu_count()} CPUs"
    rows = smi(["name", "driver_version"])
    names = [f"{name}, driver {driver}" for name, driver in (row for row in rows or () if len(row) == 2)]
    for name in sorted(set(names)):
        yield f"{names.count(name)} x {name}"
    if not names:
        yield "nvidia-smi cannot be asked" if rows is None else "nvidia-smi lists no GPU"


def state():
    """Settings of each GPU, one question each so that an unknown column costs no other; names in /dev/shm."""
    settings = {}
    for name in SETTINGS:
        rows = smi([name])
        if rows is None:  # each question would take as long again
            break
        settings[name] = [row[0] for row in rows]
    return {"settings": settings, "shm": sorted(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else []}


def changes(before):
    """Settings and names that are not as they were."""
    now = state()
    for name, values in before["settings"].items():
        if now["settings"].get(name) != values:
            yield f"{name}: was {values}, is {now['settings'].get(name, 'not known')}"
    for name in sorted(set(now["shm"]) - set(before["shm"])):
        yield f"/dev/shm/{name}: was not there before"


def busy(_):
    """GPUs that somebody uses."""
    rows = smi(["index", "memory.used", "utilization.gpu"])
    for index, used, load in (row for row in rows or () if len(row) == 3):
        if used.isdigit() and int(used) > USED_MIB:
            yield f"GPU {index}: {used} MiB in use"
        elif load.isdigit() and int(load) > USED_PERCENT:
            yield f"GPU {index}: {load} % busy"


def marked(mark):
    """Processes started with this variable, by pid."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/environ"):
        folder = os.path.dirname(path)
        try:
            with open(path, "rb") as file:
                if mark.encode() not in file.read().split(b"\0"):
                    continue
            with open(folder + "/stat", "rb") as file:
                name, _, state_of = file.read().decode("utf-8", "replace").partition("(")[2].rpartition(")")
        except OSError:
            continue
        if not state_of.split() or state_of.split()[0] not in "ZX":
            found[int(os.path.basename(folder))] = name
    return found


def sweep(mark):
    """Kill what a step left behind, and name it."""
    first = marked(mark)
    ends = time.monotonic() + KILL_WAIT_S
    left = first
    while left and time.monotonic() < ends:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        left = marked(mark)
    for pid, name in sorted(first.items()):
        yield f"{name} (pid {pid}): {'could not be killed' if pid in left else 'left behind, killed'}"


def remove_job_files(before):
    """Files that a killed job could not remove itself: new, ours, and of a name that jobs use."""
    for name in state()["shm"]:
        path = os.path.join("/dev/shm", name)
        if name in before["shm"] or not name.startswith(JOB_FILES):
            continue
        try:
            if os.lstat(path).st_uid == os.geteuid():
                os.unlink(path)
                yield f"removed {path}"
        except OSError as error:
            yield f"{path}: {error.strerror}"


if __name__ == "__main__":
    main()
