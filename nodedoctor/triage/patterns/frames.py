"""The calls of a traceback: whose they are, and where a person begins to read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nodedoctor.record import record


@record
class StackFrame:
    """One call: file, line, function and the source text shown for it."""

    file: str
    line: int
    function: str
    source: str = ""

    @property
    def name(self) -> str:
        """The file's name without its folders, of either system."""
        return _SLASH.split(self.file)[-1]


_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\](\w+)")
_DASHBOARD = re.compile(r"[/\\]ray[/\\](?:dashboard|thirdparty_files[/\\]psutil)[/\\]")
_SLASH = re.compile(r"[/\\]")
_STANDARD = re.compile(r"[/\\]lib[/\\]python[\d.]+[/\\]|^<")


def is_library(frame: StackFrame) -> bool:
    """True for a call in Python's own code or in a package."""
    return _PACKAGE.search(frame.file) is not None or _STANDARD.search(frame.file) is not None


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


def of_onlookers(frames: Sequence[StackFrame]) -> bool:
    """True where only Weights & Biases, a notebook's shell or Ray's dashboard ran.

    The job does without them.
    """
    packages = {match[1] for frame in frames if (match := _PACKAGE.search(frame.file))}
    shown = any(_DASHBOARD.search(frame.file) for frame in frames)
    return ((packages and packages <= _ASIDE) or shown) and not program_file(frames)
