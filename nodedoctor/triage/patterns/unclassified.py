"""Lines that speak of a failure in words that no pattern reads.

Every program has words of its own for what went wrong, and no table has them all. Such a line is no trouble
by itself, since healthy programs complain too. It counts where nothing else shows how the log ends: a log
whose last words are of a failure is no log of which nothing was recognised.
"""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import ASSERTED, SERIOUS, Line
from nodedoctor.triage.patterns.assertion import assertion_of
from nodedoctor.triage.patterns.handling import is_handled

LINES_BEHIND = 100
"""Lines behind a complaint that make it none of a log's last words: a help text or the frames of a stack that
follow an error are fewer. Ours."""
BYTES_BEHIND = 100_000
"""Bytes behind an error that its own program does not say while it ends: the stacks of all threads, the map
of its memory or the settings that some print then are fewer. Ours."""


_STOPPING = re.compile(r"\bscripts\.py:\d{1,5} -- ")
"""What `ray stop` says of each process that it ends, with all its arguments, when a job is over."""


class LastComplaint:
    """How many lines ago the last complaint was."""

    def __init__(self) -> None:
        self._behind: int | None = None

    def read(self, *, complains: bool) -> bool:
        """True at the line that is `LINES_BEHIND` lines behind the last complaint."""
        if complains:
            self._behind = 0
        elif self._behind is not None:
            self._behind += 1
        return self._behind == LINES_BEHIND


class LastError:
    """How many bytes ago a one-process log had its last error."""

    def __init__(self) -> None:
        self._at: int | None = None
        self._several = False

    def read(self, line: Line, *, erred: bool) -> bool:
        """True at the line that is `BYTES_BEHIND` bytes behind the last error."""
        self._several = self._several or line.who.rank is not None or line.who.pid is not None
        if erred:
            self._at = line.place.offset
        elif self._at is not None and _STOPPING.search(line.text):
            self._at += len(line.text)
        elif self._at is not None and line.place.offset - self._at >= BYTES_BEHIND:
            self._at = None
            return not self._several
        return False


class RetryDetails:
    """Whether a line is the detail of the retried error in front of it."""

    def __init__(self) -> None:
        self._key: str | None = None

    def detail(self, line: Line) -> bool:
        """True right behind a retry of the same process."""
        behind = self._key == line.key
        self._key = line.key if "etrying" in line.text else None
        return behind


@record
class UnclassifiedError:
    """A line about a failure; `aside`: as a sentence, not as a report."""

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
_NAME = (
    r"(?!(?:is|are|am|be|do|does|can|could|may|might|will|would|should|must|not|if|when)\b)"
    r"(?=[\d./@+-]{0,39}[A-Za-z_])[\w./@+-]{1,40}"
)
_COMPLAINER = re.compile(rf"(?:{_NAME}:? (?:(?:{_NAME}|(?<!: )\d{{1,9}}):? )?)?")
"""The name of who complains, in front of the words.

A number is a part of a name only behind a word, `container 3`: behind a label it counts, `eval: 3 failed`.
What is, or may be, is a state and no event.
"""
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
    r"|(?:[Ee]xit|[Rr]eturn)(?:ed)? (?:with )?(?:code|status)\W{1,3}0\b"
)
"""Counts of none, and measures that have such a word in their name."""
_NCCL_INFO = re.compile(r"\bNCCL INFO\b(?!.*\bclosed by localRank)")
"""NCCL goes on after these lines, except after the one about a local process that went away."""

_FRAME = re.compile(r"\bframe #\d{1,4}: ")
"""A frame of a stack in C++, whose functions have such words in their names (c10/util/Backtrace.cpp)."""
_EXIT_WARNING = re.compile(r"\b(?:[Ee]xiting|[Aa]borting|[Qq]uitting)\b\W*$")
"""How a program warns that it ends."""
_REQUESTED = re.compile(
    r"^\++ \S"
    r"|^(?=.{1,200}$)\W*(?:\w[\w.-]{0,80} )?[\w.-]{0,80}(?i:time_?out)[\w.-]{0,80}"
    r"(?: ?\(\w{1,8}\))?\s{0,9}[:=]\s{0,9}\d[\d.]{0,19}\s?\w{0,3}\W{0,80}$"
    r"|\b(?:with|using) (?:a |an )?\d[\d.]{0,9} ?-?(?:ms|s|sec(?:ond)?s?|min(?:ute)?s?|hours?) [Tt]ime-?out\b"
    r"|\b[Tt]ime-?out (?:is |was )?set to:? ?\d"
)
"""What was asked for: a command that a shell shows before it runs it (`set -x`), a limit and its number."""


def unclassified_error(line: Line) -> UnclassifiedError | None:
    """The failure in a line that no pattern reads."""
    match = FAILING.search(line.text)
    leaves = _EXIT_WARNING.search(line.text) is not None
    if (
        match is None
        or line.level in ("D", "I")
        or (line.level == "W" and not leaves)
        or _NONE.search(line.text)
        or _NCCL_INFO.search(line.text)
        or _FRAME.search(line.text)
        or _REQUESTED.search(line.text)
        or PASSING.search(line.text)
    ):
        return None
    how = assertion_of(line, match.start(), match.end())
    counts = how in (*ASSERTED, "described") or (how == "warning" and leaves)
    return UnclassifiedError(how in ("described", "retold")) if counts else None


def is_report(text: str) -> bool:
    """True where the words of a failure head the line: neither a remark nor the announcement of another."""
    match = FAILING.search(text)
    return (
        match is not None and not text.endswith(":") and bool(_COMPLAINER.fullmatch(text, 0, match.start()))
    )


ANNOUNCES = re.compile(
    r"\bNCCL WARN\b(?!.* which can lead to )|^\W{0,3}(?:ERROR|CRITICAL|FATAL)\b"
    r"|(?: - |\[|\|\s{0,3})(?:ERROR|CRITICAL|FATAL)(?: - |\]|\s{0,3}\|)"
    r"|^\W{0,3}(?:Fatal error|Error (?:executing|running|launching|starting|from server))\b"
    r"|^(?:Error|[Ff]atal(?: error)?): \S"
    r"|^(?!srun|slurmstepd|sbatch)[\w./@+-]{2,60}(?:\[\d+\])?: (?:fatal|(?:fatal )?error): \S"
    r"|terminate called|\bAborted(?: \(core|[.!]?$)|\bAborting\b(?! request)"
)


_LEVEL = re.compile(r"\W*(?:ERROR|CRITICAL|FATAL)\W*")
_WORD = re.compile(r"[^\W\d_]")

PASSING = re.compile(
    r"\bduring autotuning\b|\bNo valid triton configs\b|\bIgnoring this choice\b|\bW&B\b|^wandb: "
    r"|\[(?:wandb_\w+|internal|asyncio_manager|service_\w+|mailbox|retry|file_stream)\.py:\w+\(\):\d+\] "
    r"|\bexporter agent\. (?:Events and )?[Mm]etrics will not be exported"
    r"|^(?:-{3} )?Logging error -{3}$"
    r"|\bUnable to register cu\w+ factory: "
    r"|\bslurmstepd: error: (?:_is_a_lwp|_?x?cgroup\w*|_?jobacct\w*|_?acct_gather\w*|couldn't chdir to)\b"
    r"|\bras/\w+\.cc:\d+ NCCL WARN\b|\bNCCL WARN (?:[Ff]ailed|[Uu]nable) to (?:open|load|find) lib\w+\.so"
    r"|\bNCCL WARN NET/IB ?: (?:\S{1,40} )?Got async event(?!.*\berror\b)"
    r"|\bToken indices sequence length is longer than\b"
)
"""What compilers say of a kernel that they try and do not take (`torch/_inductor/select_algorithm.py`), and
what Weights & Biases says of its own trouble, in its `debug.log`, too: it sends what a job measures, and the
job goes on without. Slurm goes on where it cannot count a process that is gone (`src/plugins/proctrack`), or
a folder is on other nodes only. NCCL takes sockets where there is no library for InfiniBand
(`misc/ibvwrap.cc`), and works without its RAS where another job on the node has that port. Ray goes on
without the metrics of its dashboard. TensorFlow registers the libraries of CUDA once for itself and once for
XLA, and calls it an error (`stream_executor/cuda/cuda_fft.cc`). A tokenizer warns of a long text that it only
cuts later (transformers/tokenization_utils_base.py)."""


def trouble_announced(line: Line) -> Mark | None:
    """The announcement in a line that nothing else was read from."""
    match = ANNOUNCES.search(line.text)
    if not _WORD.search(line.text) or PASSING.search(line.text):
        return None
    if match is not None and _LEVEL.fullmatch(match[0]) and not _WORD.search(line.text, match.end()):
        return None  # an empty message, to set something off
    if match is None:
        went_on = is_handled(line.text) and line.level != "F"
        return Mark.UNREAD_TROUBLE if line.level in SERIOUS and not went_on else None
    how = assertion_of(line, match.start(), match.end())
    return Mark.UNREAD_TROUBLE if how in ASSERTED else None
