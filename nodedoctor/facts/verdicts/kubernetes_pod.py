"""`kubectl describe pod`: why it waits, how its containers ended, and what its events warn of.

Format: kubernetes/kubectl 1.10 to 1.35, pkg/describe/describe.go (describePod).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import WORDS, Result, Verdict
from nodedoctor.patterns import regex

PROBE = "kubernetes-pod"
TOOL = "kubectl describe pod"
kubernetes_pod = pasted(PROBE, "The output of kubectl describe pod.")

_STATUS = regex(r"^[ \t]{0,40}Status:[ \t]{1,40}(?P<status>\w{3,30})[ \t]*$", re.M)
_TERMINATED = regex(
    r"^[ \t]{1,40}(?:Last )?State:[ \t]{1,20}Terminated[ \t]*\n"
    r"[ \t]{1,40}Reason:[ \t]{1,20}(?P<reason>\w{2,40})"
    r"(?:[^\n]{0,200}\n[ \t]{1,40}(?:Message:[^\n]{0,400}\n[ \t]{1,40})?"
    r"Exit Code:[ \t]{1,20}(?P<code>\d{1,3}))?",
    re.M,
)
_WAITS = regex(
    r"^[ \t]{1,40}State:[ \t]{1,20}Waiting[ \t]*\n[ \t]{1,40}Reason:[ \t]{1,20}(?P<reason>\w{2,60})", re.M
)
_WARNING = regex(r"^[ \t]{1,40}Warning[ \t]{1,20}(?P<reason>[A-Z]\w{2,40})[ \t][^\n]{0,1000}$", re.M)
_AGE = regex(r"^Warning \w+ \S{1,20}(?: \(x\d{1,9} over \S{1,20}\))? [\w.-]{1,60}(?:, \S{1,80})? ")
_STARTING = ("ContainerCreating", "PodInitializing")
"""Reasons for which every pod waits at first."""
_FINE = ("Completed",)


def verdicts(output: str) -> Iterator[Verdict]:
    """Warnings of its events, containers that wait or ended badly; its status where there is none."""
    problems = False
    for row in _TERMINATED.finditer(output):
        if row["reason"] not in _FINE and row["code"] != "0":
            problems = True
            code = f", exit code {row['code']}" if row["code"] else ""
            yield _verdict("warn", f"a container ended: {row['reason']}{code}", f"ended:{row['reason']}", row)
    for row in _WAITS.finditer(output):
        if row["reason"] not in _STARTING:
            problems = True
            yield _verdict("warn", f"a container waits: {row['reason']}", f"waits:{row['reason']}", row)
    reasons = set()
    for row in _WARNING.finditer(output):
        if row["reason"] not in reasons:
            problems = True
            reasons.add(row["reason"])
            message = _AGE.sub("", " ".join(row[0].split()))
            yield _verdict("warn", f"{row['reason']}: {message}", f"event:{row['reason']}", row)
    status = _STATUS.search(output)
    if status and not problems:
        is_well = status["status"] in ("Running", "Succeeded")
        yield _verdict("pass" if is_well else "note", f"status {status['status']}", "", status)


def _verdict(result: Result, words: str, subject: str, row: re.Match[str]) -> Verdict:
    return Verdict(PROBE, TOOL, result, words[:WORDS], subject, row[0].strip()[:WORDS])
