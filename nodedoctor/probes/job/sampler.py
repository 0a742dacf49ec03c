"""Watches the processes of a training job: one line of JSON per look, until stdin ends.

    python -I -S sampler.py '{"pids": [4242]}'        that process and all below it
    python -I -S sampler.py '{"slurm": "4711"}'       the tasks of a Slurm job on this node
    python -I -S sampler.py '{"ray": true}'           the workers of the raylets on this node
    python -I -S sampler.py '{"all": true}'           every rank on this machine

Further keys: "files" (outputs to follow besides those of the processes: path and where to begin), "heartbeat"
(a file that the job touches), "stacks" (the folder where its ranks register), "seconds" (between looks). A
line {"seconds": 1} on stdin changes the pace from then on, {"walk": true} has the next look search all of
/proc for new processes of the job, {"grain": 0.01} has the outputs' sizes noted so often between two looks.

Reads /proc and regular files only; sends no signal and stops nothing. Reading /proc/PID/environ can block
on a process that hangs in the kernel: that is why this is a child, which may be given up and started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat as modes
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.job.alive import fields, lives
from nodedoctor.probes.job.ends import TOGETHER, Ends
from nodedoctor.probes.job.launchers import SERVES, lightning

sys.path.pop()

WANTED = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE", "MASTER_PORT", "SLURM_JOB_ID", "NODE_RANK",
    "DEEPSPEED_TIMEOUT",
    "NCCL_RAS_ADDR", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "NODEDOCTOR_STACKS",
)  # fmt: skip
"""Variables by which launchers give a process its place, and those by which it can be asked for more."""
IDENTITIES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
)  # fmt: skip
"""Rank, size, local rank and local size, the nearest launcher first: torchrun started by srun sees both."""
HEAP = 512 << 20
"""Bytes of a process's heap that are searched for what it set itself; Ray Train sets RANK inside the
worker."""
CHUNK, OVERLAP = 4 << 20, 64
"""Bytes read at a time, and those of the last part that are looked at again with the next."""
SET_LATER = (b"\0RANK=", b"\0WORLD_SIZE=", b"\0LOCAL_RANK=")
HEAP_LOOKS = 6
"""Times a process without RANK is searched: its trainer may set it later."""
DISCOVERY = 30.0
"""Seconds between two walks over all of /proc, at most; between them only known processes are read."""
GROWTH_LIMIT = 4096
"""Moments at which an output grew that are kept until the next look."""
TAIL = 64 << 10
"""Bytes of an output that are handed on per look: the newest."""
PROCESSES = 1024
"""Ranks looked at, at most."""
PYTHON = re.compile(r"^(?:python|pt_main_thread|ray::)")
SHELL = re.compile(r"(?:ba|da|k|z|fi)?sh|slurm_script|srun")
"""What Slurm starts a task or a script with; it only waits for what it started in turn."""
RAY_WORKER = re.compile(r"^ray::(?!IDLE|DashboardAgent$|RuntimeEnvAgent$)")
PACKAGES = re.compile(r" (/\S+)/lib/python3[^/]*/(?:site|dist)-packages/")
OURS = re.compile(
    r"(?:^|[\0/])nodedoctor(?:\.pyz)?\0|/nodedoctor-\d+/[0-9a-f]{32}\.pyz\0|/nodedoctor/probes/[\w/]+\.py\0"
)
"""Command lines of nodedoctor itself and of its children, which a task of Slurm's may have started with a
rank's environment."""
GROUPS = {
    "memory": ("/sys/fs/cgroup/memory", "memory.oom_control"), "": ("/sys/fs/cgroup", "memory.events"),
}  # fmt: skip
KILLS = re.compile(r"^oom_kill (\d{1,15})$", re.MULTILINE)
"""Where the kernel counts those that it killed for memory, by version of control groups
(Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst)."""
JOB_OF_CGROUP = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)


def main() -> None:
    """Look until stdin ends."""
    watch = Watch(json.loads(sys.argv[1]))
    with contextlib.suppress(OSError):  # a look can wait: never takes the processor from the job's own work
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with contextlib.suppress(BrokenPipeError):
        while True:
            print(json.dumps(watch.look()), flush=True)
            command = told(time.monotonic() + watch.pace, watch)
            if command is None:
                return
            watch.grain = float(command.get("grain", watch.grain))
            watch.pace = float(command.get("seconds", watch.pace))
            if command.get("walk"):
                watch.walked = -DISCOVERY


def told(due: float, watch: Watch) -> dict[str, Any] | None:
    """Wait until a moment, for a rank's end, or for a line on stdin; None when stdin has ended."""
    while watch.wait(due):
        data = os.read(0, 4096)
        if not data:
            return None
        with contextlib.suppress(ValueError):
            return dict(json.loads(data.decode().strip().rpartition("\n")[2]))
    return {}


class Watch:
    """What is known of the job from one look to the next."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.pace = float(wanted.get("seconds", 10))
        self.members: dict[int, dict[str, Any]] = {}
        self.below: dict[int, list[int]] = {}
        self.outputs: dict[tuple[int, int], Output] = {}
        self.looks: dict[int, int] = {}
        self.walked = -DISCOVERY
        self.roots: list[int] = []
        self.ends = Ends()
        self.grain = float(wanted.get("grain", 0))

    def wait(self, due: float) -> bool:
        """Wait until a moment or a rank's end, noting how outputs grow; True when stdin has something."""
        while self.grain and not self.ends.new and time.monotonic() + self.grain < due:
            if self.ends.wait(time.monotonic() + self.grain):
                return True
            self.note_growth()
        return self.ends.wait(min(due, time.monotonic() + TOGETHER) if self.ends.new else due)

    def look(self) -> dict[str, Any]:
        """One sample."""
        now = time.monotonic()
        has_loss = any(status(pid)[0] != member["start"] for pid, member in self.members.items())
        nameless = not any("by" in member for member in self.members.values())
        if now - self.walked >= min(DISCOVERY, 5 * self.pace) or has_loss or nameless:
            self.discover()
            self.walked = now
        self.ends.follow({pid: member["start"] for pid, member in self.members.items()})
        for pid in self.roots if "pids" in self.wanted else ():  # a driver prints the steps of its actors
            self.note_outputs(pid)
        ranks = [self.rank(pid, member) for pid, member in sorted(self.members.items())]
        sample: dict[str, Any] = {
            "time": time.time(),
            "monotonic": now,
            "walked": self.walked,
            "roots": [pid for pid in self.roots if lives(pid)],
            "ranks": ranks,
            "output": self.output(),
            "ended": self.ends.take(),
        }
        if path := self.wanted.get("heartbeat"):
            with contextlib.suppress(OSError):
                sample["heartbeat"] = os.stat(path).st_mtime_ns
        return sample

    def discover(self) -> None:
        """Find the job's processes: which are ranks, and what is below them."""
        parents = {pid: parent for pid in pids() if (parent := parent_of(pid)) is not None}
        below: dict[int, list[int]] = {}
        for pid, parent in parents.items():
            below.setdefault(parent, []).append(pid)
        ours = self.ours(parents, below)
        self.roots = [pid for pid in self.starts(parents, ours) if pid in parents]
        inside = descendants(self.roots, below) - ours
        self.members = {
            pid: member for pid, member in self.chosen(inside, parents).items() if member["start"] is not None
        }
        self.below = {pid: sorted(descendants([pid], below) - {pid}) for pid in self.members}

    def ours(self, parents: dict[int, int], below: dict[int, list[int]]) -> set[int]:
        """What started this child, what else that started apart from the job, and other nodedoctors: no
        ranks, although tasks of Slurm and Ray hand them the environment of one."""
        job = descendants(map(int, self.wanted.get("pids", ())), below)
        own = set(above(os.getpid(), parents)) | (descendants([os.getppid()], below) - job)
        return own | {pid for pid in parents if OURS.search(read(f"/proc/{pid}/cmdline", 4096))}

    def starts(self, parents: dict[int, int], ours: set[int]) -> list[int]:
        """The processes that the job hangs from; a watch that Slurm's prolog started is none, or it would
        wait for itself."""
        roots = [int(pid) for pid in self.wanted.get("pids", ())]
        if 1 in roots:  # containers that share a PID namespace hang from nothing that is seen in it
            roots += sorted(pid for pid, parent in parents.items() if parent == 0 and pid not in {1, *ours})
        if self.wanted.get("ray"):
            roots += [pid for pid in parents if name(pid) == "raylet"]
        if self.wanted.get("all"):
            roots += [pid for pid, parent in parents.items() if parent == 0]
        if job := self.wanted.get("slurm"):
            mine = {pid for pid in parents if pid not in ours and job_of(pid) == job}
            roots += sorted(pid for pid in mine if parents[pid] not in mine)
        return roots

    def chosen(self, inside: set[int], parents: dict[int, int]) -> dict[int, dict[str, Any]]:
        """The ranks among a job's processes: the topmost of those that know their place."""
        members = {pid: self.place(pid) for pid in sorted(inside)[: 8 * PROCESSES]}
        for kind in IDENTITIES:
            ranked = {pid for pid, member in members.items() if member.get("by") == kind[0]}
            if kind[0] == "SLURM_PROCID":  # srun gives it to the shell as well that starts the Python
                ranked = {pid for pid in ranked if not SHELL.fullmatch(name(pid))}
                ranked = {pid for pid in ranked if PYTHON.match(name(pid))} or ranked
            top = [pid for pid in sorted(ranked) if parents.get(pid) not in ranked]
            if top:
                beside = self.hidden(members, ranked, parents)
                return {pid: members[pid] for pid in (top + beside)[:PROCESSES]}
        if ranks := lightning(members, parents, {pid: words(pid) for pid in members}):
            return dict(sorted(ranks.items())[:PROCESSES])
        workers = [pid for pid in sorted(inside) if RAY_WORKER.match(title(pid))]
        has_ray = any(name(pid) == "raylet" for pid in inside)  # its agents are Pythons, and no ranks
        if not workers and not has_ray and "pids" in self.wanted:
            workers = [
                pid for pid in sorted(inside)
                if PYTHON.match(name(pid)) and pid not in self.roots and lives(pid)
                and not SERVES.search(" ".join(words(pid)))
            ]  # fmt: skip
            workers = [pid for pid in workers if parents.get(pid) not in workers] or self.roots
        return {pid: members.get(pid) or self.place(pid) for pid in workers[:PROCESSES]}

    def hidden(self, members: dict[int, Any], ranked: set[int], parents: dict[int, int]) -> list[int]:
        """Pythons beside the ranks whose environment cannot be seen, without the rights or as they wrote a
        title over it: each may be a rank that would else seem to be missing."""
        kin = set().union(*(above(pid, parents) for pid in ranked)) | set(self.roots)
        candidates = [
            pid for pid, member in members.items()
            if member["hidden"] and pid not in kin and PYTHON.match(name(pid)) and lives(pid)
        ]  # fmt: skip
        ranks = ranked | set(candidates)
        return [pid for pid in candidates if ranks.isdisjoint(set(above(pid, parents)) - {pid})]

    def place(self, pid: int) -> dict[str, Any]:
        """Who a process is: kept once known, as a process keeps its place."""
        start = status(pid)[0]
        before = self.members.get(pid)
        if before is not None and before["start"] == start and before.get("by"):
            return before
        text = read(f"/proc/{pid}/environ", 1 << 20)
        env = environment(text) if "=" in text else self.marked(pid, start)
        if "RANK" not in env and RAY_WORKER.match(title(pid)) and self.looks.get(pid, 0) < HEAP_LOOKS:
            self.looks[pid] = self.looks.get(pid, 0) + 1
            env.update(set_later(pid))
        member: dict[str, Any] = {
            "start": start, "title": title(pid)[:200], "environment": env, "hidden": "=" not in text
        }  # fmt: skip
        for rank, size, local, local_size in IDENTITIES:
            if env.get(rank, "").isdecimal():
                member |= {"by": rank, "rank": int(env[rank])}
                places = (("world", size), ("local", local), ("local_world", local_size))
                member |= {key: int(env[word]) for key, word in places if env.get(word, "").isdecimal()}
                break
        return member

    def marked(self, pid: int, start: int | None) -> dict[str, str]:
        """What a process whose environment is hidden said of its place when it registered for its stacks."""
        folder = self.wanted.get("stacks")
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
            if folder and os.lstat(folder).st_uid == os.geteuid():  # what is another user's could be a pipe
                marker = json.loads(read(f"{folder}/{pid}.json"))
                place = marker["place"].items() if marker["start"] == start else ()
                env = {key: str(value) for key, value in place if key in WANTED}
                return env | {"NODEDOCTOR_STACKS": folder} if env else {}
        return {}

    def rank(self, pid: int, member: dict[str, Any]) -> dict[str, Any]:
        """How one rank does now."""
        start, state, ticks = status(pid)
        if start != member["start"]:
            return {"pid": pid, "gone": True, **shown(member)}
        self.note_outputs(pid)
        if member.setdefault("maps_read", 0) < HEAP_LOOKS:
            member["maps_read"] += 1
            if match := PACKAGES.search(read(f"/proc/{pid}/maps", 4 << 20)):
                member |= {"prefix": match[1], "maps_read": HEAP_LOOKS}
            else:  # before it has loaded a package
                prefix, _, program = title(pid).rpartition("/bin/")
                if prefix.startswith("/") and program.startswith("python"):
                    member["prefix"] = prefix
        moved = moved_bytes(pid)
        children = [child for child in self.below.get(pid, ()) if lives(child)]
        return {
            "pid": pid,
            **shown(member),
            "state": state,
            "ticks": ticks,
            "children": children[:64],
            "running": sum(status(child)[1] == "R" for child in children),
            "child_ticks": sum(status(child)[2] for child in children),
            "child_bytes": sum(moved_bytes(child) or 0 for child in children),
            "bytes": moved,
            "wchan": first_line(f"/proc/{pid}/wchan"),
            "syscall": first_line(f"/proc/{pid}/syscall").partition(" ")[0],
            "memory": resident(pid),
            **memory_group(pid),
        }

    def note_outputs(self, pid: int) -> None:
        """Remember the regular files that a rank writes its output to."""
        for number in (1, 2):
            path = f"/proc/{pid}/fd/{number}"
            with contextlib.suppress(OSError):
                file_stat = os.stat(path)
                key = (file_stat.st_dev, file_stat.st_ino)
                if modes.S_ISREG(file_stat.st_mode):
                    place = self.outputs.setdefault(key, Output(os.readlink(path), file_stat.st_size - TAIL))
                    place.writers.add(pid)

    def note_growth(self) -> None:
        """Note which outputs have grown, and when that was seen."""
        now = time.monotonic()
        for place in self.outputs.values():
            with contextlib.suppress(OSError):
                size = os.stat(place.path).st_size
                if (
                    size > (place.grown[-1][0] if place.grown else place.begin)
                    and len(place.grown) < GROWTH_LIMIT
                ):
                    place.grown.append((size, now))

    def output(self) -> list[dict[str, Any]]:
        """What the outputs got since the last look."""
        for path, begin in self.wanted.get("files", ()):
            with contextlib.suppress(OSError):
                file_stat = os.stat(path)
                self.outputs.setdefault((file_stat.st_dev, file_stat.st_ino), Output(path, begin))
        if self.grain:
            self.note_growth()
        return [part for place in self.outputs.values() if (part := place.read_on()) is not None]


class Output:
    """A file with output of the job: how far it was read, who writes it, and how it has grown since."""

    def __init__(self, path: str, begin: int) -> None:
        self.path = path
        self.begin = max(0, begin)
        self.writers: set[int] = set()
        self.grown: list[tuple[int, float]] = []

    def read_on(self) -> dict[str, Any] | None:
        """What was added since the last time; None for nothing."""
        growth, self.grown = self.grown, []
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = self.begin if size >= self.begin else 0
            if size > begin:
                start = max(begin, size - TAIL)
                file.seek(start)
                data = file.read(TAIL)
                text = data.decode("utf-8", "replace")
                self.begin = size
                part = {"path": self.path, "text": text, "skipped": start - begin}
                if self.writers:
                    part["writers"] = sorted(self.writers)[:PROCESSES]
                if growth and text.encode() == data:  # else sizes are not those of the text
                    part["grown"] = [(end - start, moment) for end, moment in growth if end > start]
                return part
        return None


SHOWN = ("start", "rank", "world", "local", "local_world", "by", "title", "prefix")


def shown(member: dict[str, Any]) -> dict[str, Any]:
    """What of a rank's identity is handed on."""
    env = member["environment"]
    identity: dict[str, Any] = {key: member[key] for key in SHOWN if key in member}
    identity["job"] = env.get("MASTER_PORT") or env.get("SLURM_JOB_ID") or ""
    for key, variable in (("ras", "NCCL_RAS_ADDR"), ("pipe", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"),
                          ("stacks", "NODEDOCTOR_STACKS"), ("minutes", "DEEPSPEED_TIMEOUT")):  # fmt: skip
        if variable in env:
            identity[key] = env[variable]
    return identity


def pids() -> list[int]:
    """All processes."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]


def above(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """A process and all that it hangs from: what started us is no rank, in a task of Slurm's or Ray's
    too."""
    while pid in parents:
        yield pid
        pid = parents[pid]


def descendants(roots: Iterable[int], below: dict[int, list[int]]) -> set[int]:
    """The processes below some, and these themselves."""
    family: set[int] = set()
    open_ = list(roots)
    while open_:
        pid = open_.pop()
        if pid not in family:
            family.add(pid)
            open_ += below.get(pid, ())
    return family


def parent_of(pid: int) -> int | None:
    """The parent; None when the process is gone."""
    stats = fields(pid)
    return int(stats[1]) if len(stats) > 19 else None


def status(pid: int) -> tuple[int | None, str, int]:
    """Start time (which makes a pid unique), state, CPU ticks; (None, "", 0) for a process that is gone."""
    stats = fields(pid)
    if len(stats) < 22:
        return None, "", 0
    return int(stats[19]), stats[0], int(stats[11]) + int(stats[12])


def name(pid: int) -> str:
    """The process's short name."""
    return first_line(f"/proc/{pid}/comm")


def words(pid: int) -> list[str]:
    """The command line."""
    return read(f"/proc/{pid}/cmdline", 4096).split("\0")


def title(pid: int) -> str:
    """The first word of the command line, which Ray sets to the actor's name."""
    return words(pid)[0]


def job_of(pid: int) -> str:
    """The Slurm job a process belongs to: by its control group, else by its environment."""
    match = JOB_OF_CGROUP.search(read(f"/proc/{pid}/cgroup"))
    if match:
        return match[1]
    text = read(f"/proc/{pid}/environ", 1 << 20)
    return next((part[13:] for part in text.split("\0") if part.startswith("SLURM_JOB_ID=")), "")


def environment(text: str) -> dict[str, str]:
    """The wanted variables of those that a process was started with."""
    pairs = (part.partition("=") for part in text.split("\0"))
    return {key: value for key, _, value in pairs if key in WANTED}


def set_later(pid: int) -> dict[str, str]:
    """RANK and its neighbours as the process set them itself: setenv(3) keeps "NAME=value" on the heap.

    Only where one value is found: a heap also keeps what was freed. Needs the right to trace the process.
    """
    candidates: dict[str, set[str]] = {}
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            heap = next((row.split()[0] for row in file if row.rstrip().endswith("[heap]")), "")
        begin, _, end = heap.partition("-")
        if not end:
            return {}
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(int(begin, 16))
            remaining, rest = min(int(end, 16) - int(begin, 16), HEAP), b""
            while remaining > 0 and (data := memory.read(min(remaining, CHUNK))):
                remaining -= len(data)
                for key, value in assignments(rest + data):
                    candidates.setdefault(key, set()).add(value)
                rest = data[-OVERLAP:]
    except (OSError, ValueError, OverflowError):
        return {}
    return {key: values.pop() for key, values in candidates.items() if len(values) == 1}


def assignments(data: bytes) -> Iterator[tuple[str, str]]:
    """The wanted "NAME=number" strings in a piece of memory. find(), as an expression takes minutes."""
    for name in SET_LATER:
        at = -1
        while (at := data.find(name[1:], at + 1)) >= 0:
            end = data.find(b"\0", at, at + OVERLAP)
            value = data[at + len(name) - 1 : end]
            if data[at - 1 : at] == b"\0" and end > 0 and value.isdigit() and len(value) < 8:
                yield name[1:-1].decode(), value.decode()


def moved_bytes(pid: int) -> int | None:
    """Bytes read and written by calls so far; None when that may not be seen."""
    text = read(f"/proc/{pid}/io")
    counts = dict(row.split(": ") for row in text.splitlines() if ": " in row)
    return int(counts["rchar"]) + int(counts["wchar"]) if "rchar" in counts and "wchar" in counts else None


def resident(pid: int) -> int | None:
    """Bytes of memory in use."""
    pages = read(f"/proc/{pid}/statm").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None


def memory_group(pid: int) -> dict[str, Any]:
    """The file that counts the kernel's kills for memory in a process's control group, and its count.

    A container may see its own group only, as the root of the mount.
    """
    for row in read(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = [*row.split(":", 2), "", ""][:3]
        below, counter = GROUPS.get(controllers, ("", ""))
        for folder in (f"{below}{path.rstrip('/')}", below) if counter else ():
            if match := KILLS.search(read(f"{folder}/{counter}", 4096)):
                return {"group": f"{folder}/{counter}", "kills": int(match[1])}
    return {}


def first_line(path: str) -> str:
    """The first line of a small file, '' when it cannot be read."""
    return read(path, 400).partition("\n")[0].strip()


def read(path: str, limit: int = 65536) -> str:
    """The beginning of a file as text, '' when it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(limit).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


if __name__ == "__main__":
    main()
