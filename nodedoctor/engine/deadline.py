"""How long a whole run may take."""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor.declare.registry import Check

DEADLINE = 50.0
"""Seconds for a whole run. Slurm ends a HealthCheckProgram after HealthCheckTimeout, 60 s (slurm.conf(5))."""
DEADLINE_DEEP = 900.0
"""Seconds for a run with checks that load GPUs (chosen by us, no external source)."""

DEEP = "deep"
"""Checks with this tag run only with --deep or by name."""


def deadline(asked: float | None, checks: Iterable[Check], *, deep: bool) -> float:
    """Seconds for a run of these checks: what was asked for, or the longer one where any check is deep."""
    if asked is not None:
        return asked
    return DEADLINE_DEEP if deep or any(DEEP in check.tags for check in checks) else DEADLINE
