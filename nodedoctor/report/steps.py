"""The steps of a fix as every view shows them: what each is for, when to take it, and what it interrupts.

Made from the report's document, so that a view needs no more than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodedoctor.model import Fix, Step
from nodedoctor.noun import noun
from nodedoctor.report.inert import inert

_WORDS = {
    "look": "look",
    "keep": "keep",
    "repair": "repair",
    "last-resort": "LAST RESORT",
    "verify": "verify",
}


@noun
class Told:
    """One step in words, all inert: what it is for, its condition and what it interrupts, the command."""

    word: str
    when: str
    interrupts: str
    command: str
    last: bool = False

    @property
    def detail(self) -> str:
        """`when persistence mode is on; interrupts monitoring`; "" when there is nothing to say."""
        parts = (("when", self.when), ("interrupts", self.interrupts))
        return "; ".join(f"{label} {text}" for label, text in parts if text)

    @property
    def heading(self) -> str:
        """What stands over the command."""
        return f"{self.word}: {self.detail}" if self.detail else self.word


def told(fix: Fix) -> list[Told]:
    """The steps of a fix but for the one that verifies, which views show on a line of its own."""
    return [told_step(step) for step in fix.plan if step.role != "verify"]


def told_step(step: Step) -> Told:
    """One step in words."""
    return _told({"role": step.role, "command": step.command, "when": step.when, "disturbs": step.disturbs})


def told_of(steps: Iterable[Mapping[str, Any]]) -> Iterator[Told]:
    """The steps of a document, but for the one that verifies."""
    return (_told(step) for step in steps if step.get("role") != "verify")


def _told(step: Mapping[str, Any]) -> Told:
    role, disturbs = str(step.get("role")), str(step.get("disturbs") or "")
    interrupts = disturbs if role in ("repair", "last-resort") and disturbs != "nothing" else ""
    return Told(
        _WORDS.get(role, "repair"),
        inert(str(step.get("when") or "")),
        inert(interrupts),
        inert(str(step.get("command") or "")),
        role == "last-resort",
    )
