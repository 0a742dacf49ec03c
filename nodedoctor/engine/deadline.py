"""How long a whole run may take."""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor.declare.registry import Check

DEADLINE = 50.0
"""Seconds for a whole run. Slurm ends a HealthCheckProgram after HealthCheckTimeout, 60 s (slurm.conf(5))."""
DEADLINE_DEEP = 900.0
"""Seconds for a run with checks that load GPUs (chosen by us, no external source)."""
DEADLINE_GATE = 8.0
"""Seconds for a gate: a job waits, and Slurm gives a prolog 10 s (BatchStartTimeout, slurm.conf(5))."""
_DRIVER_LEAST, _OTHERS = 5.0, 3.0
"""Seconds that the driver has to answer a gate at least, as long as driver.answers calls no driver slow, and
what the other probes need (chosen by us, no external source)."""

DEEP = "deep"
"""Checks with this tag run only with --deep or by name."""


def driver_seconds(deadline: float) -> float:
    """Seconds of a gate's deadline that the driver has to answer: slower, it counts as hung."""
    return max(deadline - _OTHERS, min(_DRIVER_LEAST, deadline))


def deadline(asked: float | None, checks: Iterable[Check], *, deep: bool) -> float:
    """Seconds for a run of these checks: what was asked for, or the longer one where any check is deep."""
    if asked is not None:
        return asked
    return DEADLINE_DEEP if deep or any(DEEP in check.tags for check in checks) else DEADLINE
