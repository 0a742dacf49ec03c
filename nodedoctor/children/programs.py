"""Our own programs in `nodedoctor/probes`, and nodedoctor itself: how a child of ours is called."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

from nodedoctor import single_file
from nodedoctor.debug import Log

_log = Log(__name__)

_RUN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from nodedoctor.cli.main import main; sys.exit(main())"
)
LOCALE = {"LC_ALL": "C.UTF-8"}
"""What makes tools answer in plain words."""


def child(program: str, *args: str, packages: bool = False) -> tuple[str, ...]:
    """The argv of one of our own programs in `nodedoctor/probes`, isolated from the caller's environment.

    It has the standard library only; with `packages` also the folders where we find psutil and pynvml. That
    no child looks for site-packages saves a third of its start: 5 of 15 ms, 13 where one has import hooks.
    """
    options = ("-X", f"packages={os.pathsep.join(folders)}") if packages and (folders := _packages()) else ()
    return (
        sys.executable,
        "-I",
        "-S",
        *options,
        str(Path(__file__).parents[1] / "probes" / f"{program}.py"),
        *args,
    )


def nodedoctor_again(*words: str, isolated: bool = False) -> tuple[str, ...]:
    """The argv that runs nodedoctor with these words, from wherever it was started.

    `isolated` leaves the caller's PYTHON variables and own packages out.
    """
    return (
        sys.executable,
        *(("-I",) if isolated else ()),
        "-c",
        _RUN,
        str(Path(__file__).parents[2]),
        *words,
    )


def installed_with_us(program: str) -> str:
    """The path of a program that came with nodedoctor; '' where there is none.

    It lies in the single file, which is unpacked, or where pip puts what belongs to this Python.
    """
    folders = (single_file.programs(), os.path.dirname(sys.executable))
    places = (os.path.join(folder, program) for folder in folders if folder)
    return next((path for path in places if os.access(path, os.X_OK)), "")


def environment() -> dict[str, str]:
    """The environment of every child: ours, with a plain locale and the folders it may run programs from.

    NODEDOCTOR_CALLER_PATH is PATH as it was, for programs that look up what they then only read, or run as
    the user it belongs to.
    """
    from nodedoctor.children.search_path import search_path

    path = search_path()
    theirs = {"NODEDOCTOR_CALLER_PATH": os.environ.get("PATH", os.defpath)} if path.left_out else {}
    return {**os.environ, **theirs, **LOCALE, "PATH": path.folders}


@functools.cache
def _packages() -> tuple[str, ...]:
    """The folders that hold the packages our children need; looked for, not imported."""
    from importlib.util import find_spec

    folders: dict[str, None] = {}
    for name in ("psutil", "pynvml"):
        try:
            spec = find_spec(name)
        except (ImportError, ValueError) as error:  # half-imported by somebody
            _log.debug("children do without %s: %s", name, error)
            continue
        if spec is not None and spec.origin:
            inside = 2 if spec.submodule_search_locations else 1  # a folder psutil/, a file pynvml.py
            folders[str(Path(os.path.abspath(spec.origin)).parents[inside - 1])] = None
    return tuple(folders)
