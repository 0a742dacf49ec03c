"""Environment variables of NCCL, torch, CUDA, Ray and their neighbours: who reads them and what they do.

Where widespread advice is wrong the row says so; variables that nothing reads have the owner `nobody`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from nodedoctor.grouping import group_pairs
from nodedoctor.knowledge.table import cached_rows, raw_rows, rows, typed
from nodedoctor.record import record

Safety = Literal["yes", "workaround", "no", "no-effect"]
"""Whether it may stay set: yes; while a fault is worked around; for diagnosis only; it does nothing."""


@record
class EnvVar:
    """One variable. `owner` reads it: nccl, torch, cuda, ray, framework, rccl, plugin:…, packaging, nobody.

    `since` and `until` are the first and last version of the owner that read it ("": always, still).
    `instead` says what a person wanted who set a variable that does nothing.
    """

    name: str
    owner: str
    effect: str
    production_safe: Safety
    source: str
    unit: str = ""
    default: str = ""
    since: str = ""
    until: str = ""
    renamed_to: str = ""
    renamed_since: str = ""
    instead: str = ""
    note: str = ""
    unverified: bool = False

    @property
    def phantom(self) -> bool:
        """True when no program is known to read it."""
        return self.owner == "nobody"

    def read_by(self, version: str) -> bool | None:
        """Whether that version of its owner (nccl or torch) reads it; None when this is not known."""
        from packaging.version import Version

        if self.owner not in ("nccl", "torch"):
            return None
        try:
            release = Version(version).release
        except ValueError:  # no version, or one of thousands of digits
            return None
        old_enough = not self.since or release >= Version(self.since).release
        last = Version(self.until).release if self.until else release
        return old_enough and release[: len(last)] <= last


@record
class TimeoutSetting:
    """What really sets the timeout of collectives in a framework, and its default.

    `reaches_subgroups` is False where sub-groups keep torch's own default.
    """

    framework: str
    setting: str
    unit: str
    default_seconds: int
    reaches_subgroups: bool = False
    note: str = ""


@record
class Prefix:
    """A family of names and who reads it; with `complete` every public name of the family is in the table."""

    prefix: str
    owner: str
    complete: bool = False


@cache
def _raw_variables() -> dict[str, dict[str, Any]]:
    return {raw["name"]: raw for raw in raw_rows("env_vars", "variables")}


@cache
def _by_upper() -> dict[str, str]:
    return {name.upper(): name for name in _raw_variables()}


@cache
def _by_length() -> dict[int, list[tuple[str, frozenset[str]]]]:
    """Names with their letters, in the order of the table."""
    return group_pairs((len(name), (name, frozenset(name))) for name in _by_upper())


timeout_settings = cached_rows("env_vars", "timeouts", TimeoutSetting)
"""The settings behind the timeout of collectives, one per framework."""


@cache
def prefixes() -> tuple[Prefix, ...]:
    """The families, the longer prefix before the shorter one."""
    return tuple(sorted(rows("env_vars", "prefixes", Prefix), key=lambda row: -len(row.prefix)))


def env_vars() -> tuple[EnvVar, ...]:
    """All variables."""
    return rows("env_vars", "variables", EnvVar)


def is_env_var(name: str) -> bool:
    """Whether the table has a variable of exactly that name, without making its row."""
    return name in _raw_variables()


def env_var(name: str) -> EnvVar | None:
    """The variable of exactly that name; None when the table does not know it."""
    raw = _raw_variables().get(name)
    return typed("env_vars", raw, EnvVar) if raw else None


def family(name: str) -> Prefix | None:
    """The family an unknown name would belong to; None for a name outside all of them."""
    return next((row for row in prefixes() if name.startswith(row.prefix)), None)


def suggest(name: str) -> str | None:
    """The known name this one is probably a slip of; None when nothing is that close.

    At most one wrong letter (two in names of twelve letters and more), or other letter case.
    """
    if name in _raw_variables():
        return None
    same = _by_upper().get(name.upper())
    return same or _closest(name.upper())


def _closest(name: str) -> str | None:
    """The known name with the fewest letters out of place, if these are few enough."""
    allowed = 2 if len(name) >= 12 else 1
    letters = frozenset(name)
    likely = [
        candidate
        for length in range(len(name) - allowed, len(name) + allowed + 1)
        for candidate, its in _by_length().get(length, ())
        if len(its - letters) <= allowed + 1 and len(letters - its) <= allowed + 1
    ]
    if not likely:
        return None
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(name)
    scored = []
    for candidate in likely:
        matcher.set_seq1(candidate)
        # quick_ratio() is an upper bound and cheap; it leaves a handful for ratio().
        bound = _misplaced(matcher.quick_ratio(), candidate, name)
        if bound <= allowed:
            scored.append((_misplaced(matcher.ratio(), candidate, name), candidate))
    misplaced, closest = min(scored, default=(allowed + 1, ""))
    return _by_upper()[closest] if misplaced <= allowed else None


def _misplaced(ratio: float, first: str, second: str) -> int:
    """Letters out of place: a ratio is twice the matching letters, divided by all letters of both names."""
    total = len(first) + len(second)
    return (total + 1) // 2 - round(ratio * total / 2)
