"""Why nodes are out of service, by `sinfo -R`.

Format: Slurm 20.11 to 25.11, src/sinfo: REASON USER TIMESTAMP NODELIST.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import WORDS, Result, Verdict
from nodedoctor.patterns import regex

PROBE = "sinfo-reasons"
sinfo_reasons = pasted(PROBE, "The output of sinfo -R.")

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


def verdicts(output: str) -> Iterator[Verdict]:
    """Each reason with its nodes: a warning where it is one of Slurm's own or names a fault, else a note."""
    for row in _DOWN.finditer(output):
        result: Result = "warn" if _TROUBLE.search(row["reason"]) else "note"
        words = f"{row['nodes']}: {row['reason']} (by {row['user']})"
        subject = f"nodes:{row['nodes']}"
        yield Verdict(PROBE, "sinfo -R", result, words[:WORDS], subject[:80], row[0].strip()[:WORDS])
