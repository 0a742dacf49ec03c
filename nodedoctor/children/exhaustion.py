"""Which limit kept us from starting a process or opening a file, read in this process at that moment.

It cannot be left to a child: there is none to be had. What is read are limits of ours and files of /proc and
of our own cgroup, which the kernel answers from memory.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterable, Iterator, Mapping

from nodedoctor.model import Observation
from nodedoctor.record import record

CODES = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""fork(2), clone(2), pipe(2) and open(2): too many processes, no memory, too many files of ours or of all."""

STARVED = "doctor.exhausted"
"""The finding that explains what could not be asked because a resource ran out."""
_MARK = "exhausted: "
_NOTE = re.compile(re.escape(_MARK) + r"(?P<resource>[\w.-]+) (?P<words>[^;\n]*)")
_LAST_WORDS = (
    ("can't start new thread", errno.EAGAIN),
    ("MemoryError", errno.ENOMEM),
    *((f"[Errno {code}]", code) for code in sorted(CODES)),
)
NEARLY = 0.95
"""Of a limit on processes or memory; ours: what is refused at the limit may be free again when we look."""


@record
class Exhausted:
    """A resource that ran out: `resource` is nofile, nproc, pids.max, ... or unknown; `words` say more."""

    resource: str
    words: str

    @property
    def known(self) -> bool:
        """Whether the limit was found."""
        return self.resource != "unknown"

    def __str__(self) -> str:
        """As a note of an observation, from which `exhausted_in` reads it back."""
        return f"{_MARK}{self.resource} {self.words}"


@record
class Starts:
    """What could not be started as a resource ran out; given to checks, which are then judged last of all."""

    failed: Mapping[str, Exhausted]

    @classmethod
    def of(cls, observations: Iterable[Observation]) -> Starts:
        """Take from all that was asked what ran out, by probe."""
        exhausted = ((observation.probe, exhausted_in(observation)) for observation in observations)
        return cls({probe: what for probe, what in exhausted if what is not None})


def note_of(error: OSError) -> str:
    """What to write down about a failure to start something; the text of the error, for others alone."""
    text = error.strerror or str(error)
    return f"{text}; {why(error.errno)}" if error.errno in CODES else text


def exhausted_in(observation: Observation) -> Exhausted | None:
    """What an observation says had run out when it was to be made."""
    match = _NOTE.search(observation.note)
    return Exhausted(match["resource"], match["words"]) if match else None


def exhausted_resource(errors: str) -> Exhausted | None:
    """What had run out for one of our own programs, by the last words of its Python; None for another end."""
    code = next((code for words, code in _LAST_WORDS if words in errors), None)
    return None if code is None else why(code)


def why(code: int | None) -> Exhausted:
    """The limit that was met; unknown when none that we know of is near its end."""
    limit = next(_exhausted_limits(code), None)
    return limit or Exhausted(
        "unknown", f"{errno.errorcode.get(code or 0, code)}, and no limit seen is at its end"
    )


def _exhausted_limits(code: int | None) -> Iterator[Exhausted]:
    if code == errno.EMFILE:
        yield Exhausted("nofile", f"{_soft_limit(resource.RLIMIT_NOFILE)} open files (ulimit -n)")
    elif code == errno.ENFILE:
        used, _, most = [*_read_text("/proc/sys/fs/file-nr").split(), "?", "?", "?"][:3]
        yield Exhausted("file-max", f"{used} of {most} files of the whole machine (fs.file-max)")
    elif code == errno.EAGAIN:
        yield from _process_limits()
        yield from _memory_limits()
    else:
        yield from _memory_limits()
        yield from _process_limits()


def _process_limits() -> Iterator[Exhausted]:
    for folder in _cgroup_folders("pids"):
        used, most = _read_int(f"{folder}/pids.current"), _read_int(f"{folder}/pids.max")
        met = _number_in(f"{folder}/pids.events", r"max (\d+)")  # how often a fork was refused here
        if used is not None and most is not None and (met or used >= most * NEARLY):
            yield Exhausted("pids.max", f"{used} of {most} tasks of our cgroup (pids.max)")
    most = _soft_limit(resource.RLIMIT_NPROC)
    used = _tasks_of_ours()
    if most is not None and used >= most * NEARLY and os.geteuid() != 0:
        yield Exhausted("nproc", f"{used} of {most} tasks of this user (ulimit -u)")
    total = _number_in("/proc/loadavg", r"/(\d+)")
    for name in ("pid_max", "threads-max"):
        limit = _read_int(f"/proc/sys/kernel/{name}")
        if total is not None and limit is not None and total >= limit * NEARLY:
            yield Exhausted(name, f"{total} of {limit} tasks of the whole machine (kernel.{name})")


def _memory_limits() -> Iterator[Exhausted]:
    for folder in _cgroup_folders("memory"):
        for used_in, most_in in (("current", "max"), ("usage_in_bytes", "limit_in_bytes")):
            used, most = _read_int(f"{folder}/memory.{used_in}"), _read_int(f"{folder}/memory.{most_in}")
            if used is not None and most is not None and used >= most * NEARLY:
                yield Exhausted(
                    "memory.max", f"{_mib_text(used)} of {_mib_text(most)} of our cgroup (memory.max)"
                )
    most = _soft_limit(resource.RLIMIT_AS)
    used = _number_in("/proc/self/status", r"VmSize:\s*(\d+) kB")
    if most is not None and used is not None:
        yield Exhausted("as", f"{_mib_text(used * 1024)} of {_mib_text(most)} of address space (ulimit -v)")
    free = _number_in("/proc/meminfo", r"MemAvailable:\s*(\d+) kB")
    total = _number_in("/proc/meminfo", r"MemTotal:\s*(\d+) kB")
    if free is not None and total is not None and free <= total * (1 - NEARLY):
        yield Exhausted("memory", f"{_mib_text(free * 1024)} of {_mib_text(total * 1024)} of memory are left")


def _cgroup_folders(controller: str) -> Iterator[str]:
    """Our own cgroup and those above it, as far as they can be seen; of version 1 the controller's."""
    for line in _read_text("/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            root = "/sys/fs/cgroup"
        elif controller in names.split(","):
            root = f"/sys/fs/cgroup/{controller}"
        else:
            continue
        while path.startswith("/"):
            yield f"{root}{path}".rstrip("/")
            path = path.rpartition("/")[0]


def _tasks_of_ours() -> int:
    """Threads of all processes of this user, as RLIMIT_NPROC counts them (setrlimit(2))."""
    count, me = 0, os.getuid()
    try:
        with os.scandir("/proc") as entries:
            pids = [entry.name for entry in entries if entry.name.isdecimal()]
    except OSError:
        return 0
    for pid in pids:
        status = _read_text(f"/proc/{pid}/status")
        owner = re.search(r"^Uid:\s*(\d+)", status, re.MULTILINE)
        threads = re.search(r"^Threads:\s*(\d+)", status, re.MULTILINE)
        if owner and int(owner[1]) == me:
            count += int(threads[1]) if threads else 1
    return count


def _soft_limit(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    return None if soft == resource.RLIM_INFINITY else soft


def _read_text(path: str) -> str:
    """A small file of the kernel's; empty where it cannot be read, perhaps as no descriptor is free."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


def _read_int(path: str) -> int | None:
    return _number_in(path, r"^(\d{1,19})$")


def _number_in(path: str, pattern: str) -> int | None:
    match = re.search(pattern, _read_text(path).strip() if pattern.startswith("^") else _read_text(path))
    return int(match[1]) if match else None


def _mib_text(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
