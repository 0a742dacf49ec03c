"""What the prefixes of a line say: who printed it, when, and how serious its program thought it."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from nodedoctor.triage.model import DEFAULT_WORLD, SEATED, STATED, Identity


@dataclass(slots=True)
class PrefixInfo:
    """What the prefixes taken off so far have told."""

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
    seated: bool = False
    """A rank or a seat stands in front of every line of the file, also of those that no rank printed."""

    def state(self, rank: int) -> None:
        """Take a rank that stands in front: around a launcher of several ranks it may be their label."""
        if self.who.world == DEFAULT_WORLD and self.who.pid is None:
            self.labels = ((STATED, rank), *self.labels)
        else:
            self.know(rank=rank)

    def sit(self, local: int) -> None:
        """Take a place on a node that stands in front of a line: around everything it proves as little."""
        if self.seated:
            self.labels += ((SEATED, local),)
        else:
            self.know(local_rank=local)

    def know(self, **facts: object) -> None:
        """Take over what is told, the gaps aside."""
        self.who = with_identity(self.who, tuple([fact for fact in facts.items() if fact[1] is not None]))


@lru_cache(maxsize=4096)
def with_identity(who: Identity, facts: tuple[tuple[str, object], ...]) -> Identity:
    """An identity with more known of it; few processes print many lines."""
    return replace(who, **dict(facts))  # type: ignore[arg-type]


Take = Callable[[re.Match[str], PrefixInfo], None]
"""Takes notice of what a prefix says."""

Reader = tuple[re.Pattern[str], Take, str]
"""A prefix, what takes notice of what it says, and the characters that it can begin with."""

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits


def ignore_prefix(found: re.Match[str], said: PrefixInfo) -> None:
    """For a prefix that says nothing."""
