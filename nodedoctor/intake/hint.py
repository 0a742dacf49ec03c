"""What to type for a file that was given to a command of another kind."""

from __future__ import annotations

import shlex

LOOKED_AT = 1 << 20
"""Bytes of a file by which it is recognised here; ours."""


def read_instead(path: str, *, wholly: bool = False) -> str:
    """`it is X; nodedoctor read PATH judges it` for a file of outputs; "" for anything else.

    With `wholly` only where it holds nothing but outputs.
    """
    from nodedoctor.intake.inputs import Unreadable, units
    from nodedoctor.intake.split import split

    try:
        unit = next(units([path], []), None)
    except Unreadable:
        return ""
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
