"""What earlier runs on this node found: one JSON line a run, in a folder that somebody has asked for.

A run changes nothing on a node, so there is no journal unless `--journal DIR` or NODEDOCTOR_JOURNAL names its
folder. It holds no names of users; the file is its owner's alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from nodedoctor import input_files
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import Json, loaded, number, part, parts, text

SCHEMA = "nodedoctor.journal/1"
VARIABLE = "NODEDOCTOR_JOURNAL"
FILES = ("journal.1", "journal")
"""Oldest first; at 5 MB the second becomes the first."""
LARGEST = 8 << 20
"""Bytes of each that are read; a journal of ours is renamed at 5 MB."""
APPEND_S = 5.0
"""Seconds for a line to be written: the folder may lie on a file system that hangs. Ours."""


class JournalError(NodeDoctorError):
    """Why a journal cannot be read, in one line."""


def folder_of(option: str) -> str:
    """The folder that the option or the environment names; empty for no journal."""
    return option or os.environ.get(VARIABLE, "")


def entry_of(report: Mapping[str, Any], command: str, rates: Mapping[str, float]) -> dict[str, Any]:
    """What is kept of a run: when, on which boot and driver, its causes, and the rates that it measured."""
    node = report["node"]
    return {
        "schema": SCHEMA,
        "tool": report["tool"],
        "time": report["started"],
        "command": command,
        "host": node.get("hostname"),
        "boot": node.get("boot_id"),
        "driver": node.get("driver"),
        "kernel": node.get("kernel"),
        "causes": [
            {"id": cause["id"], "status": cause["status"], "headline": cause["headline"]}
            for cause in report["causes"]
        ],
        "rates": dict(rates),
    }


def append_command(folder: str, entry: Mapping[str, Any]) -> Command:
    """The child that appends an entry; it may hang, so it has a time limit and is abandoned."""
    line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
    return Command(child("host/journal", folder), stdin=line)


def read(folder: str) -> list[Json]:
    """The entries of a journal, in the order of their lines; what is damaged is left out.

    JournalError where the folder has no journal that can be read.
    """
    entries: list[Json] = []
    problems = []
    for name in FILES:
        path = os.path.join(folder, name)
        try:
            with input_files.opened(path) as file:
                entries += _entries(file.read(LARGEST))
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
    if len(problems) == len(FILES):
        raise JournalError(problems[-1])
    return entries


def _entries(data: bytes) -> Iterator[Json]:
    for line in data.splitlines():
        try:
            entry = loaded(line)
        except ValueError:  # cut by a crash or a full disk, or of another program
            continue
        if isinstance(entry, dict) and text(entry, "schema").startswith("nodedoctor.journal/"):
            yield entry


def earlier_rates(entries: Sequence[Json]) -> dict[str, float]:
    """The median of each rate over all entries, by its key: one bad day is no reference."""
    rates_by_key: dict[str, list[float]] = {}
    for entry in entries:
        for key in part(entry, "rates"):
            if (rate := number(part(entry, "rates").get(key))) is not None and rate > 0:
                rates_by_key.setdefault(key, []).append(rate)
    return {key: round(median(rates), 3) for key, rates in rates_by_key.items()}


def recurring_causes(entries: Sequence[Json]) -> dict[str, list[str]]:
    """The times at which each cause was found, by its id, for those that were found more than once."""
    times_by_cause: dict[str, list[str]] = {}
    for entry in entries:
        for cause in parts(entry, "causes"):
            if text(cause, "id") and text(cause, "status") in ("fail", "warn"):
                times_by_cause.setdefault(text(cause, "id"), []).append(text(entry, "time"))
    return {cause: times for cause, times in times_by_cause.items() if len(times) > 1}
