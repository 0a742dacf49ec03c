"""What to type for a file that was given to a command of another kind."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from nodedoctor.errors import NodeDoctorError

if TYPE_CHECKING:
    from nodedoctor.intake.inputs import Unit

_READERS = {
    "report": "it is the report of a node; `nodedoctor read {0}` judges it again",
    "recording": "it is a recorded node; `nodedoctor --replay {0}` judges it",
    "triage": "it is a verdict of triage; `nodedoctor triage {0}` shows it",
    "text": "`nodedoctor read {0}` judges outputs, `nodedoctor triage {0}` the logs of a job",
    "job": "`nodedoctor triage {0}` judges what a job left",
}
LOOKED_AT = 1 << 20
"""Bytes of a file by which it is recognised here; ours."""


STALLED, LONGEST = 3.0, 10.0
"""Seconds that a file may be silent, and that it may take, for a hint: the error is said without it. Ours."""


def describe_file(path: str, *, folders: bool = False) -> str:
    """What a file is and which command reads it; "" for what none does, and for what does not answer."""
    return _in_time(lambda: _describe_input(path) if folders or os.path.isfile(path) else "")


def read_instead(path: str, *, wholly: bool = False) -> str:
    """`it is X; nodedoctor read PATH judges it` for a file of outputs; "" for anything else.

    With `wholly` only where it holds nothing but outputs.
    """
    return _in_time(lambda: _of_outputs(path, wholly=wholly) if os.path.isfile(path) else "")


def _in_time(work: Callable[[], str]) -> str:
    """A hint that a process of its own found: a file may hang, or unpack without an end."""
    from nodedoctor.intake.reader_process import read_in_fork

    try:
        return read_in_fork(lambda at: work(), STALLED, LONGEST)
    except NodeDoctorError:
        return ""


def _describe_input(path: str) -> str:
    if hint := _of_outputs(path):
        return hint
    unit = _first_unit(path)
    if unit is None:
        return ""
    document = f"it is a document of nodedoctor ({unit.kind}), which holds no node"
    return _READERS.get(unit.kind, document).format(shlex.quote(path))


def _of_outputs(path: str, *, wholly: bool = False) -> str:
    from nodedoctor.intake.split import split

    unit = _first_unit(path)
    if unit is None or unit.kind != "text":
        return ""
    parts = split(unit.text[:LOOKED_AT])
    if unit.quiet:
        what = "a bug report or a sosreport"
    elif parts.pieces and not (wholly and parts.rest):
        what = parts.pieces[0].shape.what
    else:
        return ""
    return f"it holds {what}; `nodedoctor read {shlex.quote(path)}` judges it"


def _first_unit(path: str) -> Unit | None:
    """The first text or document behind a path; None where there is none."""
    from nodedoctor.intake.inputs import Unreadable, units

    try:
        return next(units([path], []), None)
    except Unreadable:
        return None
