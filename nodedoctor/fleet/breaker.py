"""The circuit breaker of `--failing`: one cause on many nodes is a common cause or a bad rule."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from nodedoctor.fleet.model import Fleet
from nodedoctor.model import Severity

SHARE, LEAST = 0.1, 2
"""Of the nodes may fail for one cause, at least two. Our choice: hardware does not fail on every tenth node
at once, and a rule that takes a tenth of a cluster away does more harm than the fault it found."""


def limit(text: str) -> float:
    """`--max-failing`: a share (`10%`) as below one, or a number of nodes."""
    number = text[:-1] if text.endswith("%") else text
    value = int(number) if number.isdecimal() and len(number) < 6 else -1
    if value < 0 or (text.endswith("%") and value > 100):
        raise argparse.ArgumentTypeError(f"wants a number of nodes or a share like 10%, not {text!r}")
    return (
        value / 100 if text.endswith("%") and value < 100 else float("inf") if text.endswith("%") else value
    )


def tripped(causes: Mapping[str, Iterable[str]], nodes: int, allowed: float | None) -> str:
    """What to say instead of writing the list; empty when no cause is on too many nodes."""
    if allowed is None:
        most = max(LEAST, SHARE * nodes)
    else:
        most = max(LEAST, allowed * nodes) if allowed < 1 and allowed else allowed
    cause, hosts = max(((c, len(set(h))) for c, h in causes.items()), key=lambda one: one[1], default=("", 0))
    if hosts <= most:
        return ""
    return (
        f"{hosts} of {nodes} nodes fail for the same cause ({cause}): a common cause or a bad rule; "
        f"--failing is not written (--max-failing raises the limit)"
    )


def causes_of(fleet: Fleet) -> dict[str, set[str]]:
    """The nodes that fail, by what fails: a check, a missing report, or a difference."""
    found: dict[str, set[str]] = {}
    for node in fleet.nodes:
        if node.state != "answered":
            found.setdefault(node.state, set()).add(node.host)
        for problem in node.problems:
            if problem.severity >= Severity.BROKEN:
                found.setdefault(problem.check, set()).add(node.host)
    for oddity in fleet.oddities:
        if oddity.status.value == "fail":
            found.setdefault(oddity.key, set()).update(oddity.odd)
    return found
