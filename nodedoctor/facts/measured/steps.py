"""The steps of a child that measures, each on a line of its own: what it wrote before it ended is known."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.json_shapes import Json, answer, loaded, text
from nodedoctor.model import Observation, Outcome

BROKEN = frozenset({Outcome.TIMEOUT, Outcome.STUCK, Outcome.CRASH})


def steps_of(document: str) -> Iterator[Json]:
    """The steps that were written completely; a cut-off document has lost its last line."""
    for line in document.splitlines():
        try:
            step = loaded(line.rstrip().removesuffix(","))
        except ValueError:
            continue
        if isinstance(step, dict) and text(step, "step"):
            yield step


def cut_short(observation: Observation) -> str:
    """Why there are fewer steps than were planned; empty when all are there."""
    if observation.outcome in BROKEN:
        return observation.note or observation.outcome.value
    try:
        answer(observation.text)
    except ValueError:
        return "its document is not whole"
    return ""
