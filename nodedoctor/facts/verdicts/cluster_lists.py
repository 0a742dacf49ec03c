"""Nodes that a scheduler has given up or taken out, and why: `kubectl get nodes`, `sinfo`, `sinfo -R`.

Formats: kubernetes/kubernetes 1.16 to 1.35, pkg/printers/internalversion/printers.go (printNode); Slurm 18.08
to 25.11, src/sinfo; of `sinfo -R`, from 20.11 on, REASON USER TIMESTAMP NODELIST.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Result, Verdict, make_verdict
from nodedoctor.knowledge.slurm_states import is_planned, is_trouble, kinds_of
from nodedoctor.patterns import regex
from nodedoctor.wording import count_with_noun

NODES, SINFO, REASONS = "kubernetes-nodes", "sinfo", "sinfo-reasons"
kubernetes_nodes = pasted(NODES, "The output of kubectl get nodes.")
sinfo = pasted(SINFO, "The output of sinfo.")
sinfo_reasons = pasted(REASONS, "The output of sinfo -R.")
_of_kubernetes = partial(make_verdict, NODES, "kubectl get nodes")
_of_slurm = partial(make_verdict, SINFO, "sinfo")
_of_reason = partial(make_verdict, REASONS, "sinfo -R")

_MARKS = "*~#!%$@^+-"
"""What sinfo puts behind a state."""
_NODE = regex(
    r"^[ \t]{0,8}(?P<name>[a-z\d][\w.-]{0,252})[ \t]{1,300}"
    r"(?P<status>(?:Ready|NotReady|Unknown)(?:,[\w-]{1,40}){0,4})[ \t]",
    re.M,
)
_STATE = regex(
    r"^[ \t]{0,8}(?P<partition>[\w.*+-]{1,64})[ \t]{1,40}(?:up|down|drain|inact)[ \t]{1,40}"
    r"\S{1,20}[ \t]{1,40}(?P<count>\d{1,6})[ \t]{1,40}(?P<state>[a-z_]{2,20})(?P<mark>[*~#!%$@^+-]{0,3})"
    r"(?:[ \t]{1,40}(?P<nodes>[A-Za-z][\w.,[\]-]{0,2000}))?[ \t]*$",
    re.M,
)


def nodes(output: str) -> Iterator[Verdict]:
    """Each node that is not ready, each that was cordoned, and how many are ready."""
    rows = list(_NODE.finditer(output))
    for row in rows:
        words = f"{row['name']} is {row['status']}"
        if not row["status"].startswith("Ready"):
            yield _of_kubernetes("fail", words, f"nodes:{row['name']}", row[0])
        elif "SchedulingDisabled" in row["status"]:
            words = f"{row['name']} is cordoned (SchedulingDisabled)"
            yield _of_kubernetes("note", words, f"nodes:{row['name']}", row[0])
    if ready := [row for row in rows if row["status"].startswith("Ready")]:
        words = f"{len(ready)} of {count_with_noun(len(rows), 'node')} Ready"
        yield _of_kubernetes("pass", words, quote=ready[0][0])


def states(output: str) -> Iterator[Verdict]:
    """The nodes in each state in which no job starts: a warning where that state is of a fault.

    A node of several partitions has a line in each; an asterisk says that it does not respond.
    """
    entries = set()
    rows = list(_STATE.finditer(output))
    by_node = list(_rows_by_node(output))
    for name, state, reason, quote in dict.fromkeys(by_node):
        is_sick = is_trouble([state], reason)
        if is_sick or kinds_of([state]) & {"drain", "maintenance"}:
            words = f"{name}: {state}{reason and f': {reason}'}"
            yield _of_slurm("warn" if is_sick else "note", words, f"nodes:{name}", quote)
    for row in rows:
        state, is_silent = row["state"], "*" in row["mark"]
        if not int(row["count"]) or (row["nodes"], state) in entries:
            continue
        entries.add((row["nodes"], state))
        kinds = kinds_of([state])
        if is_silent or kinds & {"fault", "drain", "maintenance"}:
            silent = " and not responding" if is_silent and "fault" not in kinds else ""
            result: Result = "warn" if is_silent or "fault" in kinds else "note"
            words = f"{row['nodes'] or count_with_noun(int(row['count']), 'node')}: {state}{silent}"
            yield _of_slurm(result, words, f"nodes:{row['nodes'] or row['partition']}", row[0])
    if rows or by_node:
        count = count_with_noun(len(rows) or len(by_node), "line")
        yield _of_slurm("note", f"{count} of node states read")


def _rows_by_node(output: str) -> Iterator[tuple[str, str, str, str]]:
    """Of `sinfo -N` the node, its state without marks, its reason, and the line."""
    heading: list[str] = []
    for line in output.splitlines():
        words = line.split(None, max(0, len(heading) - 1))
        if "NODELIST" in line and "STATE" in line:
            heading = line.split() if line.split()[0] == "NODELIST" else []
        elif heading and len(words) == len(heading):
            cells = dict(zip(heading, words, strict=True))
            state = cells["STATE"]
            reason = cells.get("REASON", "").strip() if heading[-1] == "REASON" else ""
            silent = "not_responding" if "*" in state and not kinds_of([state.rstrip(_MARKS)]) else ""
            yield cells["NODELIST"], silent or state.rstrip(_MARKS), "" if reason == "none" else reason, line


_DOWN = regex(
    r"^[ \t]{0,8}(?P<reason>\S[^\n]{0,120}?)[ \t]{1,60}(?P<user>[\w.()-]{1,40})[ \t]{1,30}"
    r"(?P<time>\d{4}-\d\d-\d\dT[\d:]{8}|Unknown)[ \t]{1,30}(?P<nodes>[A-Za-z][\w.,[\]-]{0,200})[ \t]*$",
    re.M,
)


def reasons(output: str) -> Iterator[Verdict]:
    """Each reason with its nodes: a warning, unless it is a plan.

    The heading alone is an answer, too: no node is down or drained.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    if len(lines) == 1 and lines[0].split()[:2] == ["REASON", "USER"]:
        yield _of_reason("pass", "no node is down or drained", quote=lines[0])
    for row in _DOWN.finditer(output):
        result: Result = "note" if is_planned(row["reason"]) else "warn"
        words = f"{row['nodes']}: {row['reason']} (by {row['user']})"
        yield _of_reason(result, words, f"nodes:{row['nodes']}", row[0])
