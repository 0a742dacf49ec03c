"""Our own documents among the sources: they quote logs, and are none."""

from __future__ import annotations

import re

_OWN = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"nodedoctor\.(triage|report|fleet|pairs|compare|accept|rates)/'
)
"""How each of them begins, in one line or in many."""

READ_BY = {
    "triage": "a saved verdict, not a log; `nodedoctor triage FILE` with nothing else shows it again",
    "report": "the report of a node, not a log; --node FILE judges it together with logs",
    "fleet": "the reports of many nodes, not a log; --node FILE takes the report of one",
    "pairs": "what was measured between nodes, not a log",
    "compare": "what differs between two reports, not a log",
    "accept": "the measured rates of a node, not a log",
    "rates": "the measured rates of many nodes, not a log",
}
"""What each is, and what reads it."""


def document_kind(head: bytes) -> str:
    """Which of our documents a file is by its first bytes; '' for anything else."""
    match = _OWN.match(head)
    return match[1].decode() if match else ""
