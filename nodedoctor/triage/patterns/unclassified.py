"""Lines that speak of a failure in words that no sign reads.

Every program has words of its own for what went wrong, and nobody knows them all. Such a line is no trouble
by itself, since healthy programs complain too. It counts where nothing else tells how the log ends: a log
whose last words are of a failure is no log of which nothing was recognised.
"""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.model import ASSERTED, Line
from nodedoctor.triage.patterns.assertion import assertion_of
from nodedoctor.triage.patterns.not_a_log import PASSING

MUCH = 100
"""Lines behind a complaint that make it none of a log's last words: a help text or the frames of a stack that
follow an error are fewer. Ours."""
VERY_MUCH = 100_000
"""Bytes behind an error that its own program does not say while it ends: the stacks of all threads, the map
of its memory or the settings that some print then are fewer. Ours."""


_STOPPING = re.compile(r"\bscripts\.py:\d{1,5} -- ")
"""What `ray stop` says of each process that it ends, with all its arguments, when a job is over."""


class LastComplaint:
    """How many lines ago one spoke of a failure."""

    def __init__(self) -> None:
        self._behind: int | None = None

    def read(self, *, complains: bool) -> bool:
        """True at the line with which there is much behind the last complaint."""
        if complains:
            self._behind = 0
        elif self._behind is not None:
            self._behind += 1
        return self._behind == MUCH


class LastError:
    """How far back the last error of a log of one process stands. Of a long log not all lines are read."""

    def __init__(self) -> None:
        self._at: int | None = None
        self._several = False

    def read(self, line: Line, *, erred: bool) -> bool:
        """True at the line with which there is very much behind the last error."""
        self._several = self._several or line.who.rank is not None or line.who.pid is not None
        if erred:
            self._at = line.place.offset
        elif self._at is not None and _STOPPING.search(line.text):
            self._at += len(line.text)
        elif self._at is not None and line.place.offset - self._at >= VERY_MUCH:
            self._at = None
            return not self._several
        return False


class RetryDetails:
    """Whether a line is the detail of an error that the line in front of it says is tried again."""

    def __init__(self) -> None:
        self._key: str | None = None

    def detail(self, line: Line) -> bool:
        """True right behind a retry of the same process."""
        behind = self._key == line.key
        self._key = line.key if "etrying" in line.text else None
        return behind


@record
class UnclassifiedError:
    """A line that speaks of a failure. `aside`: as a sentence about one, and not as a report."""

    aside: bool = False


FAILING = re.compile(
    r"(?<![\w.=/-])(?:[Ee]rrors?|ERROR|FAIL(?:ED|URE)|[Ff]ail(?:ed|ure|s)?|[Ff]atal|FATAL|[Pp]anic(?:ked)?"
    r"|[Aa]bort(?:ed|ing)?(?! request)|ABORT(?:ED)?|[Cc]rashed|[Kk]illed|[Ee]xiting|[Cc]ancell?ed"
    r"|[Cc]an(?:not|'t| not)|[Cc]ould ?n[o']t|[Uu]nable to|not found|NOT FOUND|[Nn]o such|[Dd]enied"
    r"|[Rr]efused|[Uu]nreachable|[Tt]imed? ?out|TIMEOUT|[Ii]nvalid|[Uu]nsupported"
    r"|[Nn]ot (?:supported|recogni[sz]ed)|[Uu]nrecogni[sz]ed|[Cc]orrupt(?:ed)?|[Ii]llegal"
    r"|[Vv]iolation|[Ii]ncompatible|[Dd]isallowed"
    r"|[Ff]orbidden|[Uu]nauthorized|[Mm]utually exclusive|[Nn]on-?zero|[Ee]xceeded|[Ii]nsufficient"
    r"|[Nn]ot (?:available|a valid)|[Uu]navailable|UNAVAILABLE|INTERNAL|Internal(?=: )|[Ee]victed"
    r"|before \w+ initiali[sz]ation)(?![\w=])"
    r"|\w(?:Error|Exception|Failure|BackOff|Killed)\b|[A-Z]_(?:FAILED|FAILURE|ERROR|EXCEEDED|EXHAUSTED)\b"
    r"|[Ee]xit(?:ed)? (?:with )?(?:code|status)\b|[Cc]onnection (?:was )?closed\b"
    r"|\b(?:[Ss]tack ?trace|[Bb]acktrace)\b|TerminateHandler"
    r"|[Ww]aiting for (?:more|all|other|the) .{0,40}\b(?:node|worker|rank|peer|process|member|client)"
)
"""Words of failure, none of them a part of a name."""
_NONE = re.compile(
    r"(?<![\w.])(?:0|[Nn]o|NO|[Ww]ithout|[Zz]ero)\s(?:\w+\s)?"
    r"(?:[Ee]rrors?|[Ff]ail(?:s|ed|ures?)?|[Tt]imeouts?|[Cc]orrupt(?:ed)?|[Ii]nvalid)\b"
    r"|\b(?:[Ee]rrors?|[Ff]ail(?:ed|ures?)|[Tt]imeouts?)\W{1,3}(?:0|none|None|False|false|null)\b"
    r"|\b(?:[Ee]rrors?|[Ff]ail(?:ed|ures?))\b[^:=]{1,40}[:=]\s*0\s*$"
    r"|\b[Ee]rror(?: \([^()]{1,40}\)|(?: \w+){1,3})?[:=] ?-?\d{1,9}\.\d+(?!\w|\.\w)"
    r"|\b[Ee]rror (?:rate|bars?|bound|feedback|correct\w*|margin|estimate)"
    r"|\b(?i:relative|absolute|mean|squared?|standard|percent\w*|rounding|numerical|truncation|reconstruction)"
    r" (?i:errors?)\b"
    r"|\bcuda(?:Get|PeekAt)LastError\b(?!\()"  # a function in a profiler's table
    r"|: Not affected$"  # lscpu, of a weakness of the processor
    r"|(?:exit|return)(?:ed)? (?:with )?(?:code|status)\W{1,3}0\b"
)
"""Counts of none, and measures that have such a word in their name."""
_INFORMS = re.compile(r"\bNCCL INFO\b(?!.*\bclosed by localRank)")
"""Programs that go on after what they tell so; NCCL tells there, too, that a local process went away."""

_LEAVES = re.compile(r"\b(?:[Ee]xiting|[Aa]borting|[Qq]uitting)\b\W*$")
"""How a program warns that it ends."""
_GIVEN = re.compile(
    r"^\++ \S"
    r"|^(?=.{1,200}$)\W*(?:\w[\w.-]{0,80} )?[\w.-]{0,80}(?i:time_?out)[\w.-]{0,80}"
    r"(?: ?\(\w{1,8}\))?\s{0,9}[:=]\s{0,9}\d[\d.]{0,19}\s?\w{0,3}\W{0,80}$"
    r"|\b(?:with|using) (?:a |an )?\d[\d.]{0,9} ?-?(?:ms|s|sec(?:ond)?s?|min(?:ute)?s?|hours?) [Tt]ime-?out\b"
    r"|\b[Tt]ime-?out (?:is |was )?set to:? ?\d"
)
"""What was asked for: a command that a shell shows before it runs it (`set -x`), a limit and its number."""


def unclassified_error(line: Line) -> UnclassifiedError | None:
    """What a line that nothing else was read from says of a failure."""
    found = FAILING.search(line.text)
    leaves = _LEAVES.search(line.text) is not None
    if (
        found is None
        or line.level in ("D", "I")
        or (line.level == "W" and not leaves)
        or _NONE.search(line.text)
        or _INFORMS.search(line.text)
        or _GIVEN.search(line.text)
        or PASSING.search(line.text)
    ):
        return None
    how = assertion_of(line, found.start(), found.end())
    told = how in (*ASSERTED, "described") or (how == "warning" and leaves)
    return UnclassifiedError(how == "described") if told else None
