"""Which reports are of one machine: the newest of them counts, and two machines stay two.

A folder of reports holds yesterday's beside today's, and a file beside its packed copy. Counting each as a
node would let the clean one of yesterday pass a node that fails today.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from nodedoctor.fleet.model import Node
from nodedoctor.grouping import group_by
from nodedoctor.nodeset import natural_key
from nodedoctor.record import replace

REBOOT = 60.0
"""Seconds from one boot of a machine to its next at least; ours, and little for a machine with GPUs."""


def drop_duplicates(nodes: Iterable[Node]) -> Iterator[Node]:
    """A node for every machine, each by a name no other has; in the order people count."""
    by_name = group_by(nodes, lambda node: node.host)
    names = set(by_name)
    for name in sorted(by_name, key=natural_key):
        first, *others = (_newest_report(reports) for reports in _group_machines(by_name[name]))
        yield first
        number = 2
        for namesake in others:
            while f"{name}+{number}" in names:
                number += 1
            names.add(f"{name}+{number}")
            where = f"another machine by the name {name}, of {namesake.report}" if namesake.hostname else ""
            note = "; ".join(filter(None, (where, namesake.note)))
            yield replace(namesake, host=f"{name}+{number}", alias=name, note=note)


def _group_machines(nodes: Sequence[Node]) -> list[list[Node]]:
    """Reports that have one name by machine, the newest first; of the same moment the worst first.

    What has no time (a damaged file) is no older report of any machine, and stays by itself.
    """
    machines: list[list[Node]] = []
    for node in sorted(nodes, key=lambda node: (_start_time(node), node.severity, node.report), reverse=True):
        for reports in machines:
            if _start_time(node) and not any(_are_two(report, node) for report in reports):
                reports.append(node)
                break
        else:
            machines.append([node])
    return machines


def _are_two(newer: Node, older: Node) -> bool:
    """Whether these cannot be of one machine: no GPU in common, or both up at one time by different boots."""
    if newer.serials and older.serials and not set(newer.serials) & set(older.serials):
        return True
    if not newer.boot_id or not older.boot_id or newer.boot_id == older.boot_id:
        return False
    return _start_time(newer) - _start_time(older) < max(newer.uptime, REBOOT)


def _newest_report(reports: Sequence[Node]) -> Node:
    """The newest of one machine's reports, saying what was left out for it."""
    newest = reports[0]
    path, moment = _unpacked_path(newest), _start_time(newest)
    others = {
        _unpacked_path(node): _start_time(node) < moment for node in reports if _unpacked_path(node) != path
    }
    notes = (
        _left_out(sum(others.values()), "older report", "of it"),
        _left_out(len(others) - sum(others.values()), "other report", "of the same moment"),
    )
    note = "; ".join(filter(None, (newest.note, *notes)))
    return replace(newest, note=note)


def _left_out(count: int, what: str, which: str) -> str:
    if not count:
        return ""
    return f"{count} {what}{'s' if count > 1 else ''} {which} {'were' if count > 1 else 'was'} left out"


def _unpacked_path(node: Node) -> str:
    return node.report.removesuffix(".gz")


def _start_time(node: Node) -> float:
    """When a report was started, in seconds; 0 when it does not say."""
    try:
        return datetime.strptime(f"{node.started[:19]}+0000", "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return 0.0
