"""Calls of tracebacks and of stacks: whose they are, where a person begins to read, where a process hung.

Stacks have the layout of `py-spy dump` (src/main.rs, print_trace): a line for the process, one per thread,
frames below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nodedoctor.record import record
from nodedoctor.triage.model import LARGEST_PID, Event, Identity, Line
from nodedoctor.triage.patterns.log_pattern import rank_in_words
from nodedoctor.whole_numbers import whole_number


@record
class StackFrame:
    """One call: file, line, function and the source text shown for it."""

    file: str
    line: int
    function: str
    source: str = ""

    @property
    def name(self) -> str:
        """The file's name without its folders, of either system; a package's own file with its folder."""
        parts = _SLASH.split(self.file)
        return "/".join(parts[-2:]) if parts[-1] in ("__init__.py", "__main__.py") else parts[-1]


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
LIBRARY = re.compile(r"torch/distributed/|torch/cuda/|torch/utils/_")
DEEPEST = 12
"""Innermost frames among which the collective is looked for."""
FRAMES = 200
HEADING = 80
"""Characters of a line above a dump that may be its heading; ours."""
_PROCESS = re.compile(r"^Process (\d{1,7}): ")
_NOTED_RANK = re.compile(r"(?<![\w.-])(?<!local )[Rr]ank[ =:#]{0,2}(?P<rank>\d{1,7})\b")
"""How people note above a dump, or behind its command, which rank it is of."""
_THREAD = re.compile(r'^Thread \S+ \(([a-z+]+)\)(?:: "([^"]{0,200})")?')
_FRAME = re.compile(r"^\s+(\S.{0,300}?) \(([^()]{1,500}):(\d{1,9})\)$")


@record
class ThreadStack:
    """The stack of the main thread or of the one with the GIL."""

    frames: tuple[StackFrame, ...]
    owns_gil: bool = False

    @property
    def collective(self) -> str:
        """The collective in which it waits, '' when it is elsewhere."""
        return collective_in(self.frames)


def collective_in(frames: tuple[StackFrame, ...]) -> str:
    """The collective in which a stack waits, '' when it is elsewhere."""
    waiting = (f.function for f in frames[:DEEPEST] if LIBRARY.search(f.file) and WAITS.search(f.function))
    return next(waiting, "")


class StackDumps:
    """Collects the stacks of dumps, line by line."""

    def __init__(self) -> None:
        self._process: Line | None = None
        self._above: Line | None = None
        self._who = Identity()
        self._wanted = self._gil = False
        self._frames: list[StackFrame] = []

    def read(self, line: Line) -> Iterator[Event[ThreadStack]]:
        """The stack that ends before this line, if one does."""
        text = line.text
        above, self._above = self._above, line
        frame = _FRAME.match(text) if self._wanted else None
        if frame is not None:
            if len(self._frames) < FRAMES:
                self._frames.append(StackFrame(frame[2], int(frame[3]), frame[1]))
            return
        process = _PROCESS.match(text) if text.startswith("Process ") else None
        thread = _THREAD.match(text) if text.startswith("Thread ") else None
        if process or thread:
            yield from self.flush()
        if process:
            self._process, self._who = line, _whose_dump(line, whole_number(process[1], LARGEST_PID), above)
        elif thread and self._process is not None:
            self._gil = "gil" in thread[1]
            self._wanted = self._gil or thread[2] in ("MainThread", None)

    def flush(self) -> Iterator[Event[ThreadStack]]:
        """The stack that is open."""
        frames, self._frames, wanted = tuple(self._frames), [], self._wanted
        self._wanted = False
        first = self._process
        if not wanted or not frames or first is None:
            return
        stack = ThreadStack(frames, self._gil)
        doing = f"waits in {stack.collective}" if stack.collective else f"is in {describe_frame(frames)}"
        yield Event.at(first, stack, who=self._who, text=f"process {self._who.pid} {doing}")


def _whose_dump(head: Line, pid: int | None, above: Line | None) -> Identity:
    """Whose a dump is: its process, and the rank that its head or a short line above notes."""
    who = head.who.fill_from(Identity(pid=pid))
    texts = [head.text]
    if above is not None and above.place.source == head.place.source and len(above.text) <= HEADING:
        texts.append(above.text)
    for text in texts:
        if len(set(_NOTED_RANK.findall(text))) == 1:
            who = rank_in_words(who, _NOTED_RANK, text)
    return who


def describe_frame(frames: tuple[StackFrame, ...]) -> str:
    """The innermost frame in words."""
    return f"{frames[0].function} ({frames[0].file}:{frames[0].line})"
