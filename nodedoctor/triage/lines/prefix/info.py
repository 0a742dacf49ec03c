"""What prefixes say: which process printed a line, when, and its severity."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from nodedoctor.triage.model import DEFAULT_WORLD, LOCAL_RANK_LABEL, RANK_LABEL, Identity


@dataclass(slots=True)
class PrefixInfo:
    """What the prefixes taken off so far say."""

    who: Identity
    time: float | None = None
    origin: str = ""
    level: str = ""
    severities: tuple[bool, ...] = ()
    """For each severity, the outermost first, whether it may be that of somebody who passes lines on."""
    logged: bool = False
    """A logger speaks: what follows a time or a severity may be its name."""
    basic: bool = False
    """A severity and a colon were in front: a logger's name and a colon follow."""
    cited: bool = False
    """The mark of a quotation or a comment was in front."""
    labels: tuple[tuple[str, int], ...] = ()
    common_rank: bool = False
    """A rank or local rank is in front of every line of the file, also of those that no rank printed."""
    printer: int | None = None
    """The process in a syslog tag, `train[4711]:`: that of the line, or a script that passes it on."""

    def add_rank(self, rank: int) -> None:
        """Add a rank in front of a line; a launcher may use it as label."""
        if self.who.world == DEFAULT_WORLD and self.who.pid is None:
            self.labels = ((RANK_LABEL, rank), *self.labels)
        else:
            self.add(rank=rank)

    def add_local_rank(self, local: int) -> None:
        """Add a local rank; in front of every line it is only a label."""
        if self.common_rank:
            self.labels += ((LOCAL_RANK_LABEL, local),)
        else:
            self.add(local_rank=local)

    def add_recorder(self, name: str | None) -> None:
        """Add the host or container by whose record a line came: the host, where nothing names another."""
        self.add(host=name, recorder=name)

    def add(self, **facts: object) -> None:
        """Add the facts that are not None."""
        self.who = with_identity(self.who, tuple([fact for fact in facts.items() if fact[1] is not None]))


@lru_cache(maxsize=4096)
def with_identity(who: Identity, facts: tuple[tuple[str, object], ...]) -> Identity:
    """An identity with more facts; cached, since few processes print many lines."""
    return replace(who, **dict(facts))  # type: ignore[arg-type]


ReadPrefix = Callable[[re.Match[str], PrefixInfo], None]
"""Adds what a prefix says."""

Reader = tuple[re.Pattern[str], ReadPrefix, str]
"""A prefix, the function that adds what it says, and the characters that it can begin with."""

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits


def ignore_prefix(match: re.Match[str], prefix: PrefixInfo) -> None:
    """For a prefix that says nothing."""
