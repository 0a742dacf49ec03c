"""A cause as text: all of its page, or as much as a terminal has room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from nodedoctor.record import record
from nodedoctor.report.page import (
    CHECK,
    DOCS,
    FIX,
    FOLLOWS,
    OWNER,
    SINCE,
    WHY,
    CausePage,
)
from nodedoctor.report.steps import REPAIR, StepText
from nodedoctor.report.writer import INDENT, Writer
from nodedoctor.wording import count_with_noun


@record
class Limits:
    """Lines that a cause may take, in all and of each part of its page."""

    block: int
    parts: Mapping[str, int]
    proof: int
    follows: int


ONE_SCREEN = 24
"""Lines of a report with one cause: the height of a terminal."""
_FULL: Mapping[str, int] = {OWNER: 1, SINCE: 1, CHECK: 2, WHY: 2, FIX: 3}
_BRIEF: Mapping[str, int] = {OWNER: 1, SINCE: 1, CHECK: 1, WHY: 1, FIX: 2}
_BLOCK = ONE_SCREEN - 6
"""What the head, the foot and the blank lines around it leave."""
_SHORT = (
    Limits(_BLOCK, _FULL, 3, 2),
    Limits(_BLOCK, _FULL, 2, 1),
    Limits(_BLOCK, _FULL, 1, 1),
    Limits(_BLOCK, _BRIEF, 1, 1),
)
"""The first under which a cause fits with a step to type."""


def write_short(to: Writer, cause: CausePage) -> None:
    """The first part of a cause's page, with a step to type before more of the proof or what follows."""
    for limits in _SHORT:
        page = to.blank_page()
        steps = write_cause(page, cause, limits)
        if len(page.lines) <= limits.block and (steps or not cause.steps):
            break
    to.line(*page.lines)


def write_cause(to: Writer, cause: CausePage, limits: Limits | None = None) -> int:
    """The page of a cause, and how many steps it shows; with limits cut at sentences and between steps."""
    start = len(to.lines)
    most: Mapping[str, int] = limits.parts if limits else {}
    to.status(cause.status, cause.headline + cause.mark, most=2 if limits else 0)
    for part in cause.opening:
        only_name = part.label == CHECK and most.get(CHECK) == 1  # the headline has said what it found
        text = part.text.partition(": ")[0] if only_name else part.text
        to.prose(part.label, text, most.get(part.label, 0))
    _write_proof(to, cause.proof, limits.proof if limits else 0)
    to.prose(FIX, cause.advice, most.get(FIX, 0))
    closing = [part for part in cause.closing if not limits or part.label != DOCS]
    follows = min(len(cause.follows), limits.follows) if limits else len(cause.follows)
    if limits:
        room = limits.block - (len(to.lines) - start) - follows - len(closing)
        shown = _first_steps(to, cause, room)
    else:
        shown = len(cause.steps)
        write_steps(to, cause.steps)
    for part in closing:
        to.labelled(part.label, part.text, 1 if limits else 0)
    _write_follows(to, cause.follows, limits)
    return shown


def write_steps(to: Writer, steps: Sequence[StepText]) -> None:
    """Each command alone on its line, under what it is for; a last resort is apart."""
    heading = ""
    for step in steps:
        if step.heading != heading:
            if step.last:
                to.line("")
            to.indented(step.heading)
        heading = step.heading
        to.line(f"{INDENT}$ {step.command}")


def _write_proof(to: Writer, lines: Sequence[str], most: int) -> None:
    room = to.width - len(INDENT)
    shown = lines if not most or len(lines) <= most else lines[: most - 1]
    to.line(
        *(f"{INDENT}{line if not most or len(line) <= room else f'{line[: room - 3]}...'}" for line in shown)
    )
    if len(lines) > len(shown):
        to.line(f"{INDENT}| ... {count_with_noun(len(lines) - len(shown), 'more line')} with -v")


def _first_steps(to: Writer, cause: CausePage, room: int) -> int:
    """Whole commands in at most so many lines, each under what it is for; how many these are.

    The first ones, in their order: none before a reset is left out while the reset shows. Where the one
    that does what the headline says does not fit, the last line names it. Last resorts are for -v.
    """
    shown = _fitting_steps(cause.steps, room, cause.goal)
    write_steps(to, shown)
    if hidden := cause.steps[len(shown) :]:
        last = ", also the last resort" if hidden[-1].last else ""
        which = f", also {cause.goal.command}" if cause.goal in hidden and cause.goal else last
        to.indented(f"{count_with_noun(len(hidden), 'more step')} with -v{which}", 1, "... ")
    return len(shown)


def _write_follows(to: Writer, follows: Sequence[str], limits: Limits | None) -> None:
    """What follows from a cause: a line each, or the names of the checks where that is too much."""
    if limits and len(follows) > limits.follows:
        names = Counter(text.partition(": ")[0] for text in follows)
        with_counts = (f"{name} ({count} times)" if count > 1 else name for name, count in names.items())
        to.labelled(FOLLOWS, ", ".join(with_counts), limits.follows)
        return
    for number, text in enumerate(follows):
        to.labelled("" if number else FOLLOWS, text, 1 if limits else 0)


def _fitting_steps(steps: Sequence[StepText], room: int, goal: StepText | None) -> Sequence[StepText]:
    """The first steps that fit in so many lines; half of a repair is for -v, unless it comes first."""
    count = used = 0
    for number, step in enumerate(steps):
        new = not number or steps[number - 1].heading != step.heading
        rest = number + 1 < len(steps)
        if (step.last and step != goal) or used + new + 1 + rest > room:
            break
        count = number + 1
        used += new + 1
    shown, rest_of_repair = steps[:count], [step for step in steps[count:] if not step.last]
    looks = next((number for number, step in enumerate(shown) if step.word == REPAIR), count)
    return shown[:looks] if looks and rest_of_repair and goal not in shown else shown
