"""What is known of the job's nodes: reports of them, and the list of those that are left out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from nodedoctor import input_files
from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.timeline.node_reports import NodeFaults, NotANode
from nodedoctor.triage.verdict.decision.decide import Witness

LARGEST = 1 << 20
"""Bytes of a list of nodes; ten thousand names have 200 KB. Ours."""


def reports_in(paths: Iterable[str]) -> list[str]:
    """The reports among these files and folders, by name; NotANode for a path that is not there."""
    files: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            files.append(path)
            continue
        try:
            names = sorted(os.listdir(path))
        except OSError as error:
            raise NotANode(f"{path}: {error.strerror}") from None
        files += [os.path.join(path, name) for name in names if name.endswith(".json")]
    return files


def witness_of(nodes: Iterable[NodeFaults]) -> Witness:
    """Why no new job may start on each node, '' where one may; the stricter of two reports of one."""
    reasons: dict[str, str] = {}
    for node in nodes:
        if node.host:
            host = short_host(node.host)
            reasons[host] = reasons.get(host) or node.keeps_jobs_away
    return reasons


def exclude_list(path: str, hosts: Sequence[str]) -> bytes:
    """The list at `path` with these nodes added, one a line: its other lines stay. OSError if unreadable."""
    lines: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        lines = input_files.read(path, largest=LARGEST).decode(errors="replace").splitlines()
    return "".join(f"{line}\n" for line in dict.fromkeys((*lines, *hosts))).encode()
