"""Files beside the report: HTML for people, JUnit for CI, Prometheus for dashboards, a ticket.

They are written once the report itself is out, each by a child, whole or not at all: a dead file system under
one of them costs neither the report nor the others.
"""

from __future__ import annotations

import argparse
import os

from nodedoctor.cli.console import write_stderr
from nodedoctor.cli.exit_codes import Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any

_FORMS = {
    "html": "a self-contained HTML page for a ticket",
    "junit": "JUnit XML, for CI",
    "prometheus": "metrics for node_exporter's textfile collector",
    "ticket": "a Markdown ticket for the provider's support",
}
_SHARED = ("junit", "prometheus")
"""Forms that another user reads: CI, node_exporter."""


def add(group: argparse._ArgumentGroup | argparse.ArgumentParser, *forms: str) -> None:
    """Offer these forms (all, if none is named) as options that take a file."""
    for form in forms or _FORMS:
        group.add_argument(f"--{form}", default="", metavar="FILE", help=f"also write {_FORMS[form]}")


def add_debug_log(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Offer `--debug-log FILE`; `start_debug_log` begins it."""
    group.add_argument(
        "--debug-log",
        default="",
        metavar="FILE",
        help="append a log of every command started, its result, its seconds, and every fallback",
    )


def start_debug_log(arguments: argparse.Namespace) -> None:
    """Log from here on, in this process, if that was asked for."""
    if arguments.debug_log:
        from nodedoctor.cli import debug_log

        debug_log.start(arguments.debug_log)


def no_folder(arguments: argparse.Namespace, *more: str) -> str:
    """What is wrong with the files asked for, before any work is done; `more` are further options."""
    for option in (*_FORMS, *more):
        path, name = getattr(arguments, option, ""), option.replace("_", "-")
        if path == "-":
            return f"--{name}: '-' is not allowed, stdout has the report; use /dev/stdout"
        folder = os.path.dirname(os.path.join(os.getcwd(), path.rstrip("/")))
        if path and not os.path.isdir(folder):
            return f"--{name}: no folder {folder}"
    return ""


def write(arguments: argparse.Namespace, document: Callable[[], Mapping[str, Any]]) -> int:
    """Write every file that was asked for; OUTPUT, with a line on stderr for each that could not be."""
    wanted = {form: path for form in _FORMS if (path := getattr(arguments, form, ""))}
    if not wanted:
        return Exit.OK
    json_document = document()
    recording = getattr(arguments, "record", "")
    return write_files(
        {path: _render_form(form, json_document, recording).encode() for form, path in wanted.items()},
        shared={path for form, path in wanted.items() if form in _SHARED},
    )


def write_lists(hosts_by_path: Mapping[str, Iterable[str]]) -> int:
    """Write lists of nodes where a path was given, a name a line: what srun, clush and mpirun read."""
    files = {
        path: "".join(f"{host}\n" for host in hosts).encode() for path, hosts in hosts_by_path.items() if path
    }
    return write_files(files, shared=files)


def write_files(files: Mapping[str, bytes], shared: Collection[str] = ()) -> int:
    """Write files by their paths, all at once; OUTPUT, with a line on stderr for each that could not be.

    Those that are `shared` are for other users too, as the umask has it.
    """
    import asyncio

    from nodedoctor.cli.headless import write as write_one

    async def together(others: Mapping[str, bytes]) -> list[str]:
        writing = (write_one(path, data, shared=path in shared) for path, data in others.items())
        return await asyncio.gather(*writing)

    others = {path: data for path, data in files.items() if _descriptor_number(path) is None}
    problems = dict(zip(others, asyncio.run(together(others)), strict=True)) if others else {}
    for path, data in files.items():
        if (number := _descriptor_number(path)) is not None:
            problems[path] = _write_own(number, data)
    for path, problem in problems.items():
        if problem:
            write_stderr(f"{path}: {problem}")
    return Exit.OUTPUT if any(problems.values()) else Exit.OK


def _descriptor_number(path: str) -> int | None:
    """The number of our own descriptor that a path names, which no child has; None for other paths."""
    folder, _, name = path.rpartition("/")
    if folder == "/dev" and name in ("stdout", "stderr"):
        return 1 if name == "stdout" else 2
    return int(name) if folder in ("/dev/fd", "/proc/self/fd") and name.isdecimal() else None


def _write_own(number: int, data: bytes) -> str:
    """Write to one of our own descriptors; returns what went wrong, or nothing."""
    try:
        with open(number, "wb", closefd=False) as stream:
            stream.write(data)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _render_form(form: str, document: Mapping[str, Any], recording: str) -> str:
    if form == "html":
        from nodedoctor.report import html

        return html.render(document)
    if form == "junit":
        from nodedoctor.report import junit

        return junit.render(document)
    from nodedoctor.report import prometheus, ticket
    from nodedoctor.report.saved import read

    if form == "ticket":
        return ticket.render(read(document), recording)
    return prometheus.render(read(document))
