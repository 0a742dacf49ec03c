"""Who runs on this node: every process, and what those have that matter to training; one JSON document.

    python -I processes.py [--root DIR] [--seconds SECONDS]

Of command lines only program and script name are taken, of environments what environment.py keeps.
/proc/PID/cmdline, environ and maps wait for a lock that a sick process may never release. They are read by a
forked helper; when it falls silent the process it was at is noted as stuck, the helper is left behind and
another one goes on with the rest. psutil reads what takes no such lock; its name() and username() are
avoided, because they read cmdline and ask name services.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import resource
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.host.environment import kept_variables
from nodedoctor.probes.host.files_reading import inside, text_below
from nodedoctor.probes.packages import add_folders
from nodedoctor.probes.plain_args import options
from nodedoctor.probes.plain_json import with_count
from nodedoctor.probes.readers import end

sys.path.pop()

if TYPE_CHECKING:
    import psutil
else:
    add_folders()
    try:
        import psutil
    except ImportError as error:
        sys.exit(f"psutil cannot be loaded: {error}")

Row = dict[str, Any]

STUCK_AFTER_S = 1.0  # seconds of silence after which a process counts as stuck
MOST_ROWS = 8192
TREE_BYTES = 256 * 1024 * 1024  # our choice: a whole /proc of a node takes a tenth of it
MOST_DESCRIPTORS = 1024  # links read per process; a GPU's are opened early and have low numbers
LONGEST = 128 * 1024  # bytes of one cmdline or environ
MAPS_BYTES = 8 * 1024 * 1024

# Programs that take part in training or serve GPUs, by thread name, program or title. PyTorch calls the main
# thread pt_main_thread once it has started others.
_MATTERS = re.compile(
    r"python|pypy|pt_main_thread|pt_elastic|torchrun|raylet|gcs_server|ray::|ray-|plasma|deepspeed|accelerate"
    r"|vllm|sglang|nvidia-|nv-|dcgm|mpirun|orted|prted|slurmstepd|nccl|_perf$",
    re.IGNORECASE,
)
_LIBRARIES = re.compile(
    rb"(?<!\S)(/[^\n]*/lib(?:nccl|nccl-net|rccl|cuda|nvidia-ml|torch_cuda)[\w.-]*\.so[\w.]*)"
)
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?$")
_SHELLS = ("bash", "dash", "sh", "zsh")


def main() -> None:
    """Print the document."""
    arguments, _ = options(__doc__, root="/", seconds="5")
    proc = inside(arguments["root"], "/proc")
    if arguments["root"] not in ("", "/"):
        bound_memory()
    psutil.PROCFS_PATH = proc
    rows = {row["pid"]: row for row in scan(proc, user_names(arguments["root"]))}
    left_out = max(len(rows) - MOST_ROWS, 0)
    rows = dict(list(rows.items())[:MOST_ROWS])
    unread = read_details(proc, rows, time.monotonic() + float(arguments["seconds"]))
    document = {"processes": list(rows.values()), "unread": unread, "left_out": left_out}
    sys.stdout.write(json.dumps(with_count(document)) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a helper that was left behind may not delay the end


def bound_memory() -> None:
    """Read no more of a tree than fits: psutil reads whole files, and somebody made this /proc."""
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + TREE_BYTES, resource.RLIM_INFINITY))


def scan(proc: str, users: dict[int, str]) -> Iterator[Row]:
    """What can be read of every process without waiting for it; kernel threads only when they are blocked."""
    for process in psutil.process_iter():
        if process.pid == os.getpid() or os.path.islink(f"{proc}/{process.pid}"):
            continue
        try:
            with process.oneshot():
                blocked = process.status() == psutil.STATUS_DISK_SLEEP
                if (process.pid == 2 or process.ppid() == 2) and not blocked:
                    continue
                row = basics(proc, process, users)
        except (psutil.Error, OSError, ValueError, IndexError, MemoryError):  # ended, or no real /proc
            continue
        if blocked:
            row["wchan"] = text(proc, f"{process.pid}/wchan", 100)
        yield row


def basics(proc: str, process: psutil.Process, users: dict[int, str]) -> Row:
    """The row of one process before its details."""
    uid = process.uids().real
    name = text(proc, f"{process.pid}/comm", 64)
    return {
        "pid": process.pid,
        "ppid": process.ppid(),
        "name": name,
        "program": name,
        "uid": uid,
        "user": users.get(uid, str(uid)),
        "state": process.status(),
        "started": round(process.create_time(), 2),
        "rss_bytes": process.memory_info().rss,
        "threads": process.num_threads(),
    }


def user_names(root: str) -> dict[int, str]:
    """The names in /etc/passwd; others stay numbers, because asking a directory service may hang."""
    rows = (line.split(":") for line in text(root, "etc/passwd", LONGEST).splitlines())
    return {int(row[2]): row[0] for row in rows if len(row) > 2 and row[2].isdecimal() and len(row[2]) < 19}


def text(folder: str, path: str, limit: int) -> str:
    """The beginning of a file of a tree as text without blanks around it; empty when it cannot be read."""
    return (text_below(folder, f"/{path}", limit) or "").strip()


def read_details(proc: str, rows: dict[int, Row], deadline: float) -> int:
    """Add what may hang; returns how many processes were not looked at before the deadline."""
    waiting = list(rows)
    while waiting and time.monotonic() < deadline:
        helper, pipe = start_helper(proc, waiting, rows)
        at, finished = follow(pipe, rows, deadline)
        os.close(pipe)
        end([helper])
        if finished:
            return 0
        pid, step = at or (waiting[0], "start")
        rows[pid]["stuck_at"] = step
        waiting = waiting[waiting.index(pid) + 1 :]
    return len(waiting)


def start_helper(proc: str, pids: list[int], rows: dict[int, Row]) -> tuple[int, int]:
    """Fork a reader of the details of some processes; its pid, and the pipe it tells them through."""
    pipe, write_end = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            with open(write_end, "w", buffering=1, encoding="ascii") as out:
                for pid in pids:
                    tell_details(
                        f"{proc}/{pid}", rows[pid]["name"], lambda *step: print(json.dumps(step), file=out)
                    )
                print("null", file=out)
        finally:
            os._exit(0)
    os.close(write_end)
    return helper, pipe


def follow(pipe: int, rows: dict[int, Row], deadline: float) -> tuple[tuple[int, str] | None, bool]:
    """Take over what a helper tells; returns where it was last, and whether it finished."""
    at, rest = None, b""
    while True:
        remaining = min(STUCK_AFTER_S, deadline - time.monotonic())
        if remaining <= 0 or not select.select([pipe], [], [], remaining)[0]:
            return at, False
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            return at, False
        *lines, rest = (rest + chunk).split(b"\n")
        for message in map(json.loads, lines):
            if message is None:
                return at, True
            pid, step, value = message
            at = (pid, step)
            if isinstance(value, dict):
                merge(rows[pid], value)


def merge(row: Row, details: Row) -> None:
    """Add what was found to a row; reasons for what was not are collected."""
    errors = details.pop("errors", None)
    if errors:
        row.setdefault("errors", {}).update(errors)
    row.update(details)


def tell_details(here: str, name: str, tell: Callable[[int, str, Row | None], None]) -> None:
    """Everything about one process, step by step, what waits for its locks last."""
    pid = int(here.rpartition("/")[2])

    def step(what: str, read: Callable[[], Row]) -> Row:
        tell(pid, what, None)
        try:
            details = read()
        except OSError as error:
            details = {"errors": {what: errno.errorcode.get(error.errno or 0, "EIO")}}
        tell(pid, what, details)
        return details

    program = step("exe", lambda: {"exe": clean(os.readlink(f"{here}/exe"))}).get("exe", "")
    files = step("fd", lambda: descriptors(here))
    base = os.path.basename(program.removesuffix(" (deleted)"))
    if not (_MATTERS.search(name) or _MATTERS.search(base) or files.get("nvidia")):
        if base:
            tell(pid, "exe", {"program": base})
        return
    step("limits", lambda: {"limits": read(f"{here}/limits", 8192)})
    step("status", lambda: {"capabilities": capabilities(read(f"{here}/status", 8192))})
    step("cgroup", lambda: {"cgroup": read(f"{here}/cgroup", 8192).strip()})
    step("cmdline", lambda: command(read(f"{here}/cmdline", LONGEST), base or name))
    step("environ", lambda: {"environment": environment(read(f"{here}/environ", LONGEST))})
    step("maps", lambda: {"libraries": libraries(f"{here}/maps")})


def read(path: str, limit: int) -> str:
    """The beginning of a file of a process as text. OSError when it cannot be read, or is a link."""
    with open(path, "rb", opener=no_link) as file:
        return file.read(limit).decode("utf-8", "replace")


def no_link(path: str, flags: int) -> int:
    """Open what is no link: no file of /proc/PID that is read here is one."""
    return os.open(path, flags | os.O_NOFOLLOW)


def capabilities(status: str) -> str:
    """The mask of effective capabilities in /proc/PID/status, in hex."""
    match = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", status, re.MULTILINE)
    return match.group(1) if match else ""


def clean(path: str) -> str:
    """A path as valid text."""
    return os.fsencode(path).decode("utf-8", "replace")


def descriptors(here: str) -> Row:
    """How many files a process has open, and which of NVIDIA's devices."""
    numbers, devices = os.listdir(f"{here}/fd"), set()
    for number in sorted(numbers, key=int)[:MOST_DESCRIPTORS]:
        try:
            target = os.readlink(f"{here}/fd/{number}")
        except OSError:  # closed meanwhile
            continue
        if target.startswith("/dev/nvidia"):
            devices.add(clean(target))
    return {"descriptors": len(numbers), **({"nvidia": sorted(devices)} if devices else {})}


def command(cmdline: str, otherwise: str) -> Row:
    """Program and script name of a command line, and nothing else of it.

    Processes that rename themselves (ray::Worker.train, sshd: somebody) put one text with blanks there.
    """
    words = cmdline.rstrip("\0").split("\0")
    first = words[0].split(" ")[0]
    program = os.path.basename(first) if re.fullmatch(r"[\w./:+()<>,-]{1,200}", first) else ""
    if not program:
        return {"program": otherwise}
    script = script_of(words[1:]) if _PYTHON.match(program) or program in _SHELLS else ""
    return {"program": program[:100], **({"script": script} if script else {})}


def script_of(words: list[str]) -> str:
    """What an interpreter runs: a file's name, `-m module`, or `-c` without the code."""
    skip = False
    for at, word in enumerate(words):
        if skip:
            skip = False
        elif re.fullmatch(r"-[A-Za-z]*m", word) and at + 1 < len(words):
            return f"-m {plain(words[at + 1])}".strip()
        elif word.startswith("-c") or re.fullmatch(r"-[A-Za-z]*c", word):
            return "-c"
        elif word in ("-W", "-X", "-o", "-O"):
            skip = True
        elif not word.startswith("-"):
            return plain(os.path.basename(word))
    return ""


def plain(word: str) -> str:
    """A file or module name; anything else in its place is not repeated."""
    return word if re.fullmatch(r"[\w.+-]{1,100}", word) else ""


def environment(environ: str) -> dict[str, str]:
    """The variables of a process that may be kept."""
    pairs = (entry.partition("=") for entry in environ.split("\0"))
    return kept_variables({name: value for name, equals, value in pairs if equals})


def libraries(path: str) -> list[str]:
    """The NCCL and CUDA libraries a process has mapped."""
    with open(path, "rb", opener=no_link) as file:
        names = _LIBRARIES.findall(file.read(MAPS_BYTES))
    return sorted({name.decode("utf-8", "replace") for name in names})


if __name__ == "__main__":
    main()
