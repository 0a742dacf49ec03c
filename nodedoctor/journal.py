"""What earlier runs on this node found: one JSON line a run, in a folder that somebody has asked for.

A run changes nothing on a node, so there is no journal unless `--journal DIR` or NODEDOCTOR_JOURNAL names its
folder. It holds no names of users; the file is its owner's alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.json_shapes import Json, loaded, number, part, parts, text
from nodedoctor.record import record
from nodedoctor.recurrence import serials_of

SCHEMA = "nodedoctor.journal/1"
VARIABLE = "NODEDOCTOR_JOURNAL"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
LIMIT_S = 5.0
"""Seconds for a journal to be read or written: it may lie on a file system that hangs. Ours."""


def folder_of(option: str) -> str:
    """The folder that the option or the environment names; empty for no journal."""
    return option or os.environ.get(VARIABLE, "")


def entry_of(
    report: Mapping[str, Any], command: str, rates: Mapping[str, float], *, with_serials: bool = True
) -> dict[str, Any]:
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
        "serials": serials_of(report["facts"]) if with_serials else {},
        "rates": dict(rates),
    }


def append_command(folder: str, entry: Mapping[str, Any]) -> Command:
    """The child that appends an entry; it may hang, so it has a time limit and is abandoned."""
    line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
    return Command(child("host/journal", folder, "append"), stdin=line)


def read_command(folder: str) -> Command:
    """The child that prints a journal, of which the last 4 MiB are kept."""
    return Command(child("host/journal", folder, "read"))


def entries_of(text_of_journal: str) -> list[Json]:
    """The entries, in the order of their lines; what is damaged is left out."""
    entries: list[Json] = []
    for line in text_of_journal.splitlines():
        try:
            entry = loaded(line)
        except ValueError:  # cut by a crash or a full disk, or of another program
            continue
        if isinstance(entry, dict) and text(entry, "schema").startswith("nodedoctor.journal/"):
            entries.append(entry)
    return entries


@record
class PastRate:
    """What a rate was: the median of all runs, and the last day on which it was at least that."""

    usual: float
    day: str = ""
    on_day: float = 0.0

    def trend(self, rate: float, share: float) -> str:
        """How much slower a rate is, since when; empty where it is at least this share of the usual one."""
        if rate >= share * self.usual:
            return ""
        if not self.day:
            return f"{1 - rate / self.usual:.0%} slower than before"
        return f"{1 - rate / self.on_day:.0%} slower than on {self.day}"


def earlier_rates(entries: Sequence[Json], now: str = "9999") -> dict[str, PastRate]:
    """Each rate over all entries, by its key: one bad day is no reference.

    A day after `now`, by a clock that was wrong, is not named.
    """
    rates_by_key: dict[str, list[tuple[str, float]]] = {}
    for entry in entries:
        when = text(entry, "time")
        day = when[:10] if _DAY.fullmatch(when[:10]) and when <= now else ""
        for key in part(entry, "rates"):
            if (rate := number(part(entry, "rates").get(key))) is not None and rate > 0:
                rates_by_key.setdefault(key, []).append((day, rate))
    return {key: _past_rate(rates) for key, rates in rates_by_key.items()}


def _past_rate(rates: Sequence[tuple[str, float]]) -> PastRate:
    usual = median(rate for _, rate in rates)
    day, on_day = max(((day, rate) for day, rate in rates if rate >= usual), default=("", 0.0))
    return PastRate(round(usual, 3), day, on_day)


def recurring_causes(entries: Sequence[Json]) -> dict[str, list[str]]:
    """The times at which each cause was found, by its id, oldest first."""
    times_by_cause: dict[str, list[str]] = {}
    for entry in entries:
        for cause in parts(entry, "causes"):
            if text(cause, "id") and text(cause, "status") in ("fail", "warn"):
                times_by_cause.setdefault(text(cause, "id"), []).append(text(entry, "time"))
    return times_by_cause
