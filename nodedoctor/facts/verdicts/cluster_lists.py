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
from nodedoctor.knowledge.slurm_states import kinds_of
from nodedoctor.patterns import regex
from nodedoctor.wording import count_with_noun

NODES, SINFO, REASONS = "kubernetes-nodes", "sinfo", "sinfo-reasons"
kubernetes_nodes = pasted(NODES, "The output of kubectl get nodes.")
sinfo = pasted(SINFO, "The output of sinfo.")
sinfo_reasons = pasted(REASONS, "The output of sinfo -R.")
_of_kubernetes = partial(make_verdict, NODES, "kubectl get nodes")
_of_slurm = partial(make_verdict, SINFO, "sinfo")
_of_reason = partial(make_verdict, REASONS, "sinfo -R")

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
    if rows:
        count = count_with_noun(len(rows), "line")
        yield _of_slurm("note", f"{count} of node states read")


_DOWN = regex(
    r"^[ \t]{0,8}(?P<reason>\S[^\n]{0,120}?)[ \t]{1,60}(?P<user>[\w.()-]{1,40})[ \t]{1,30}"
    r"(?P<time>\d{4}-\d\d-\d\dT[\d:]{8}|Unknown)[ \t]{1,30}(?P<nodes>[A-Za-z][\w.,[\]-]{0,200})[ \t]*$",
    re.M,
)
_TROUBLE = regex(
    r"Not responding|[Kk]ill task failed|[Ll]ow (?:Real)?[Mm]em|lower than configured|(?:Pro|Epi)log error"
    r"|unexpectedly rebooted|[Dd]uplicate jobid|batch job complete|(?i:xid|gpu|nvlink|ecc|fail|error|fell"
    r"|lost|dead|broken|hca|\bib\b|link|oom|disk|hang|hung|dcgm|nhc|health)"
)
"""Reasons of slurmctld and slurmd, and words of a fault in what a person or a health check wrote; others are
plans: a reboot, an update, a reservation."""


def reasons(output: str) -> Iterator[Verdict]:
    """Each reason with its nodes: a warning where it is one of Slurm's own or names a fault, else a note.

    The heading alone is an answer, too: no node is down or drained.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    if len(lines) == 1 and lines[0].split()[:2] == ["REASON", "USER"]:
        yield _of_reason("pass", "no node is down or drained", quote=lines[0])
    for row in _DOWN.finditer(output):
        result: Result = "warn" if _TROUBLE.search(row["reason"]) else "note"
        words = f"{row['nodes']}: {row['reason']} (by {row['user']})"
        yield _of_reason(result, words, f"nodes:{row['nodes']}", row[0])
