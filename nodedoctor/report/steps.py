"""The steps of a fix as every view shows them: what each is for, when to take it, and what it interrupts.

Made from the report's document, so that a view needs no more than that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nodedoctor.record import record
from nodedoctor.report.document import Fix, Step
from nodedoctor.report.inert import inert

REPAIR = "repair"
_WORDS = {
    "look": "look",
    "keep": "keep",
    "repair": REPAIR,
    "last-resort": "LAST RESORT",
    "verify": "verify",
}

CUT_FIX = "What differs between them, such as serials, is in each node's own report."

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@record
class StepText:
    """One step in words, all inert: what it is for, its condition and what it interrupts, the command."""

    word: str
    when: str
    interrupts: str
    command: str
    last: bool = False

    @property
    def repairs(self) -> bool:
        """Whether it changes something: a repair or a last resort."""
        return self.last or self.word == REPAIR

    @property
    def detail(self) -> str:
        """`when persistence mode is on; interrupts monitoring`; "" when there is nothing to say."""
        parts = (("when", self.when), ("interrupts", self.interrupts))
        return "; ".join(f"{label} {text}" for label, text in parts if text)

    @property
    def heading(self) -> str:
        """What is shown above the command."""
        return f"{self.word}: {self.detail}" if self.detail else self.word


def repair_steps(fix: Fix | None) -> list[StepText]:
    """The steps of a fix but for the one that verifies, which views show on a line of its own."""
    return [told_step(step) for step in fix["steps"] if step["role"] != "verify"] if fix else []


def told_step(step: Step) -> StepText:
    """One step in words."""
    role = step["role"]
    interrupts = interrupted(step["disturbs"]) if role in ("repair", "last-resort") else ""
    return StepText(
        _WORDS.get(role, REPAIR),
        inert(step["when"] or ""),
        inert(interrupts),
        inert(step["command"]),
        role == "last-resort",
    )


def interrupted(disturbs: str | None) -> str:
    """What a repair interrupts; empty where that is nothing, whatever reason is given."""
    first, *_ = (disturbs or "").split(maxsplit=1) or [""]
    return "" if not disturbs or first.strip(",;:.") in ("", "nothing") else disturbs


def advice(fix: Fix) -> str:
    """The fix in prose, with what it interrupts unless one of its steps says that."""
    disturbs = interrupted(fix["disturbs"])
    if not disturbs or any(step.interrupts for step in repair_steps(fix)):
        return fix["text"]
    return f"{fix['text']} It interrupts {disturbs.rstrip('.')}."


def common(fixes: Iterable[str]) -> str:
    """One fix for all of them: the sentences that all of them have."""
    first, *others = dict.fromkeys(fixes)
    if not others:
        return first
    theirs = [frozenset(_SENTENCE.split(fix)) for fix in others]
    common = [sentence for sentence in _SENTENCE.split(first) if all(sentence in fix for fix in theirs)]
    return " ".join((*common, CUT_FIX))
