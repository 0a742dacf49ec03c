"""The steps of a fix as every view shows them: what each is for, when to take it, and what it interrupts.

Made from the report's document, so that a view needs no more than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodedoctor.model import Fix, Step
from nodedoctor.noun import noun
from nodedoctor.report.inert import inert

LAST = "LAST RESORT"
_WORDS = {
    "look": "look",
    "keep": "keep evidence",
    "repair": "repair",
    "last-resort": LAST,
    "verify": "verify",
}


@noun
class Told:
    """One step in words: the heading over it (one for several steps alike) and the command, both inert."""

    heading: str
    command: str
    last: bool = False


def told(fix: Fix) -> list[Told]:
    """The steps of a fix but for the one that verifies, which views show on a line of its own."""
    return list(told_of(map(_plain, fix.plan)))


def told_of(steps: Iterable[Mapping[str, Any]]) -> Iterator[Told]:
    """The same from the `steps` of a document."""
    for step in steps:
        if step.get("role") != "verify":
            yield Told(
                heading(step), inert(str(step.get("command") or "")), step.get("role") == "last-resort"
            )


def heading(step: Mapping[str, Any]) -> str:
    """What a step is for, its condition, what it interrupts: `repair, when persistence mode is on; ...`."""
    word = _WORDS.get(str(step.get("role")), "repair")
    when, disturbs = step.get("when"), step.get("disturbs")
    parts = [f"{word}, when {inert(str(when))}" if when else word]
    if disturbs not in (None, "", "nothing") and step.get("role") in ("repair", "last-resort"):
        parts.append(f"interrupts {inert(str(disturbs))}")
    return "; ".join(parts)


def heading_of(step: Step) -> str:
    """The same of a step."""
    return heading(_plain(step))


def _plain(step: Step) -> dict[str, Any]:
    return {"role": step.role, "command": step.command, "when": step.when, "disturbs": step.disturbs}
