"""What a good pair of nodes has at least, per fabric: for clusters that are slow everywhere."""

from __future__ import annotations

from functools import cache

from nodedoctor.knowledge.table import rows
from nodedoctor.record import record


@record
class PairFloor:
    """One row: `share` of what `of` names, for links of `up_to_gbps` at most (None: of any speed)."""

    what: str
    fabric: str
    share: float
    of: str
    up_to_gbps: float | None
    why: str
    source: str


@cache
def pair_floors() -> tuple[PairFloor, ...]:
    """All rows."""
    return rows("pair_floors", "pair_floors", PairFloor)


def floor(what: str, gbps: float) -> PairFloor | None:
    """The row for a measurement on links of this speed; None where nothing is known of them."""
    fitting = (row for row in pair_floors() if row.what == what)
    return next((row for row in fitting if row.up_to_gbps is None or gbps <= row.up_to_gbps), None)
