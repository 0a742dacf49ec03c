"""NCCL versions that are known to misbehave, and the conditions under which they do.

Versions are strings, `2.27.5`, compared as versions. Conditions are traits of the node or job.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.record import record

Effect = Literal["hang", "crash", "wrong-data", "slow", "init-failure"]


@record
class BadVersion:
    """NCCL from `first` ("": any) up to before `fixed` misbehaves where every trait in `needs` holds."""

    id: str
    fixed: str
    needs: tuple[str, ...]
    effect: Effect
    what: str
    remedy: str
    source: str
    first: str = ""
    unverified: bool = False


@record
class NcclTrait:
    """A condition a row can need, in words."""

    trait: str
    meaning: str


bad_versions = cached_rows("nccl_bad", "versions", BadVersion)
"""All rows, the gravest first."""
traits = cached_rows("nccl_bad", "traits", NcclTrait)
"""The vocabulary of conditions."""


def known_bad(version: str, holds: Collection[str] = ()) -> tuple[BadVersion, ...]:
    """What is known against a version on a node or job with these traits (see `traits`)."""
    return tuple(row for row in affecting(version) if set(row.needs) <= set(holds))


def affecting(version: str) -> tuple[BadVersion, ...]:
    """What is known against a version under any condition; empty for a text that is no version."""
    from packaging.version import Version

    try:
        release = Version(version.strip().partition("+")[0]).release[:3]
    except ValueError:  # no version, or one of thousands of digits
        return ()

    def covers(row: BadVersion) -> bool:
        is_later = not row.first or release >= Version(row.first).release
        return is_later and release < Version(row.fixed).release

    return tuple(row for row in bad_versions() if covers(row))
