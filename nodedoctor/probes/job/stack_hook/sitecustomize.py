"""Lets this Python be asked for its stacks, then loads the sitecustomize that it shadows.

A folder with this file comes first in PYTHONPATH where `nodedoctor run` or the block of `nodedoctor arm` put
it there. It registers faulthandler on an unused real-time signal, writes a marker that says so, and
leaves everything else alone. Whatever goes wrong here is passed over: a job must never fail because of it.
"""

import contextlib
import sys

_PLACES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
"""Who has one of these may be a rank; Ray's workers get theirs later, so they are known by their program."""
_RENAMED = (
    ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", (2, 11)),
    ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", (2, 8)),
)
"""New name, old name, and the torch from which the new one alone does all; from 2.8 on the old one brings a
warning. Torch 2.8 to 2.10 know both names of the size, but make the pipe that asks for a dump for the old one
only (DumpPipe in ProcessGroupNCCL.hpp): there the pipe is worth the warning."""


def _may_be_rank() -> bool:
    """Whether this is a rank, or a script or a child of multiprocessing's that may become one: Lightning
    trains in the main process, and torch.multiprocessing.spawn sets no variable."""
    import os

    if any(name in os.environ for name in _PLACES) or "--multiprocessing-fork" in sys.orig_argv:
        return True
    return sys.argv[:1] != ["-c"]


def _register_dump() -> None:
    import os

    folder = os.environ.get("NODEDOCTOR_STACKS")
    if not folder or sys.platform != "linux":
        return
    if not _may_be_rank():
        return
    import faulthandler
    import fcntl
    import json
    import signal
    import stat

    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    about = os.lstat(folder)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        return  # somebody else made it: what is written there could go anywhere
    number = next(
        (n for n in range(signal.SIGRTMIN + 11, signal.SIGRTMAX) if signal.getsignal(n) == signal.SIG_DFL), 0
    )
    if not number:
        return
    open_fds: list[int] = []

    def mark() -> None:
        """Open this process's own file and say by which signal it is written."""
        pid = os.getpid()
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            start = int(file.read().rpartition(")")[2].split()[19])
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        opened = os.open(os.path.join(folder, f"{pid}.txt"), flags, 0o600)
        high = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 200)  # out of the way of programs that count from 3
        os.close(opened)
        faulthandler.register(number, file=high, all_threads=True, chain=False)
        open_fds[:] = [high]
        marker = {"pid": pid, "start": start, "signal": number,
                  "place": {name: os.environ[name] for name in _PLACES if name in os.environ}}  # fmt: skip
        path = os.path.join(folder, f"{pid}.json")
        written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(written, "w", encoding="utf-8") as file:
            json.dump(marker, file)

    def again() -> None:
        with contextlib.suppress(Exception):
            mark()

    mark()
    os.register_at_fork(after_in_child=again)
    _let_trace()


def _let_trace() -> None:
    """Where Yama lets only parents trace (ptrace_scope 1), allow the process that asked for it."""
    import os

    tracer = os.environ.get("NODEDOCTOR_TRACER", "")
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:
        return
    if scope == "1" and tracer.isdecimal():
        import ctypes

        pr_set_ptracer = 0x59616D61
        ctypes.CDLL(None).prctl(pr_set_ptracer, int(tracer), 0, 0, 0)


def _name_recorder_once() -> None:
    """Of two names of one variable leave the one that the torch of this Python reads."""
    import os

    if not all(name in os.environ for name in _RENAMED[0][:2]):
        return
    for folder in sys.path:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(os.path.join(folder, "torch", "version.py"), encoding="utf-8") as file:
                text = file.read(4096)
            version = text.split("__version__ = ", 1)[1].split("\n", 1)[0].strip("'\"")
            major, minor = (int(part) for part in version.split(".")[:2])
            for new, old, since in _RENAMED:
                if os.environ.get(new) == os.environ.get(old):
                    os.environ.pop(old if (major, minor) >= since else new, None)
            return


def _load_shadowed() -> None:
    """Import the sitecustomize that would have been found without this one."""
    import os

    ours = os.path.dirname(os.path.abspath(__file__))
    before = sys.path[:]
    sys.path[:] = [entry for entry in before if os.path.abspath(entry or ".") != ours]
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if mine is not None:
            sys.modules["sitecustomize"] = mine


with contextlib.suppress(Exception):
    _name_recorder_once()
with contextlib.suppress(Exception):
    _register_dump()
_load_shadowed()
