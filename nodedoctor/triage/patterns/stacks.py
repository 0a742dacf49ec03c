"""Calls of tracebacks and of stacks: whose they are, where a person begins to read, where a process hung."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nodedoctor.record import record


@record
class StackFrame:
    """One call: file, line (0 for none), function and the source text shown for it."""

    file: str
    line: int
    function: str
    source: str = ""

    @property
    def name(self) -> str:
        """The file's name without its folders, of either system; a package's own file with its folder."""
        parts = _SLASH.split(self.file)
        return "/".join(parts[-2:]) if parts[-1] in ("__init__.py", "__main__.py") else parts[-1]

    @property
    def place(self) -> str:
        """The call in words: `all_reduce (train.py:12)`."""
        return f"{self.function} ({self.file}:{self.line})" if self.line else f"{self.function} ({self.file})"


_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\](\w+)")
_DASHBOARD = re.compile(r"[/\\]ray[/\\](?:dashboard|thirdparty_files[/\\]psutil)[/\\]")
_SLASH = re.compile(r"[/\\]")
_STANDARD = re.compile(r"[/\\]lib(?:64)?[/\\]python\d[\w.]*[/\\]|^<")
_TORCH = re.compile(r"[/\\]torch[/\\](?:autograd|cuda|distributed|nn|optim|utils|_\w+)[/\\]")
"""Torch built in place is in no folder of packages."""


def is_library_file(path: str) -> bool:
    """True for a file of Python's own or of a package: none that the program's author wrote."""
    return any(library.search(path) for library in (_PACKAGE, _STANDARD, _TORCH))


def is_library(frame: StackFrame) -> bool:
    """True for a call in Python's own code or in a package."""
    return is_library_file(frame.file)


def is_standard(frame: StackFrame) -> bool:
    """True for a call in Python's own code."""
    return _STANDARD.search(frame.file) is not None and _PACKAGE.search(frame.file) is None


def source_place(frames: Sequence[StackFrame]) -> str:
    """The innermost call of the program's own code, else of a package."""
    own = [frame for frame in frames if not is_library(frame)]
    of_packages = [frame for frame in frames if _PACKAGE.search(frame.file)]
    frame = next((calls[-1] for calls in (own, of_packages) if calls), None)
    if frame is None:
        return ""
    package = _PACKAGE.search(frame.file)
    where = f"{frame.name}, line {frame.line}"
    return f"{package[1]}'s {where}" if package is not None else where


def program_file(frames: Sequence[StackFrame]) -> str:
    """The file of the outermost call that is the program's own."""
    own = (frame for frame in frames if not is_library(frame))
    return next((frame.name for frame in own), "")


_ASIDE = frozenset((
    "wandb", "IPython", "ipykernel", "jedi", "parso", "traitlets", "tornado", "notebook", "nbformat",
    "jupyter_client", "jupyter_core", "jupyter_server", "jupyterlab", "terminado", "zmq",
))  # fmt: skip
"""Packages that look on while a program runs; a notebook's shell asks jedi what to offer for a Tab."""


_TRACKER = re.compile(r"[/\\]multiprocessing[/\\]resource_tracker\.py$")
"""The process that cleans up behind Python's programs, by the only file that it runs."""


def ends_in_package(frames: Sequence[StackFrame]) -> bool:
    """True where the innermost call is that of an installed package."""
    return bool(frames) and _PACKAGE.search(frames[-1].file) is not None


_CATCHERS = re.compile(
    r"[/\\](?:multiprocessing[/\\]util\.py:_run_finalizers|weakref\.py:_exitfunc"
    r"|socketserver\.py:(?:_handle_request_noblock|process_request_thread))$"
)
"""Outermost calls that print what was raised below them and go on: they clean up at the end of a program, or
answer one of many requests (CPython's Lib/multiprocessing/util.py, Lib/weakref.py, Lib/socketserver.py)."""


_WRITTEN = re.compile(r"[/\\](?:tmp[a-z0-9_]{8}|sandbox(?:es)?)[/\\]")
"""Folders of programs that the job itself wrote and tries: those of Python's tempfile, and sandboxes."""


def is_beside_job(frames: Sequence[StackFrame]) -> bool:
    """True for a stack whose end no program of the job has to survive.

    Python itself caught and showed the error, or only Weights & Biases, a notebook's shell, Ray's dashboard,
    Python's tracker of resources or a program that the job had written and tried ran.
    """
    if not frames:
        return False
    outermost = f"{frames[0].file}:{frames[0].function}"
    if _CATCHERS.search(outermost) or _WRITTEN.search(frames[0].file):
        return True
    if all(_TRACKER.search(frame.file) for frame in frames):
        return True
    packages = {match[1] for frame in frames if (match := _PACKAGE.search(frame.file))}
    shown = any(_DASHBOARD.search(frame.file) for frame in frames)
    return ((packages and packages <= _ASIDE) or shown) and not program_file(frames)


COLLECTIVES = r"all_reduce|gather|scatter|broadcast|barrier|all_to_all|wait_for_everyone"
"""Parts of the names of functions in which a rank meets all others."""
WAITS = re.compile(rf"{COLLECTIVES}|\brecv\b|\bsend\b|synchronize")
LIBRARY = re.compile(r"torch/distributed/(?!checkpoint/)|torch/cuda/|torch/utils/_")
"""Where they are: not where torch saves checkpoints, which names its ranks' own work like them."""
DEEPEST = 12
"""Innermost frames among which the collective is looked for."""
_GPU_WORK = re.compile(
    r"(?:^|[/\\])(?:torch[/\\](?:_tensor|_ops|autograd|nn|optim|cuda|amp|_dynamo|_inductor|_functorch"
    r"|distributed[/\\](?!checkpoint|elastic|run))"
    r"|flash_attn|xformers|transformer_engine|apex|bitsandbytes|deepspeed[/\\](?:runtime|ops))"
)
"""Files that give work to the GPU: calls wait there while a collective in front of that work hangs."""
_HELPERS = re.compile(
    r"torch[/\\](?:utils[/\\]data[/\\]_utils[/\\]worker\.py:_worker_loop|distributed[/\\]elastic[/\\]agent[/\\]"
    r"|distributed[/\\]run\.py|_inductor[/\\]compile_worker[/\\])"
    r"|concurrent[/\\]futures[/\\]process\.py:_process_worker|multiprocessing[/\\](?:resource_tracker|pool)\.py:"
)
"""What only processes beside the ranks run."""
_FILE_WORK = re.compile(
    r"\b(?:fsync|fdatasync|sync_file_range|flush)\b"
    r"|torch[/\\](?:serialization|storage|distributed[/\\]checkpoint[/\\]filesystem)\.py"
    r"|safetensors[/\\]"
)
"""Innermost calls that write or read files."""


@record
class ThreadStack:
    """The stack of the main thread or of the one with the GIL, the innermost call first.

    `native`: it may have been in native code, where it may have waited for the GPU.
    """

    frames: tuple[StackFrame, ...]
    owns_gil: bool = False
    native: bool = False

    @property
    def collective(self) -> str:
        """The collective in which it waits, '' when it is elsewhere."""
        return collective_in(self.frames)

    @property
    def may_wait_for_gpu(self) -> bool:
        """True where its innermost call gives work to the GPU, which a hanging collective holds up."""
        return _GPU_WORK.search(self.frames[0].file) is not None

    @property
    def of_helper(self) -> bool:
        """True for a process that is no rank: a loader's or a compiler's worker, or a launcher."""
        return any(_HELPERS.search(f"{frame.file}:{frame.function}") for frame in self.frames)

    @property
    def in_storage(self) -> bool:
        """True where its innermost call writes or reads files."""
        return _FILE_WORK.search(f"{self.frames[0].function} {self.frames[0].file}") is not None


def collective_in(frames: tuple[StackFrame, ...]) -> str:
    """The collective in which a stack waits, '' when it is elsewhere."""
    waiting = (f.function for f in frames[:DEEPEST] if LIBRARY.search(f.file) and WAITS.search(f.function))
    return next(waiting, "")
