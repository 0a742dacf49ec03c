"""Who said a line, and when: launchers, loggers and terminals all put something in front of it.

The order matters: `[rank3]:` is the global rank, `[default3]:` and `3:` are not, and `[Rank 3]` inside the
text is a rank within one process group. Nothing here raises, whatever the bytes are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodedoctor.triage.model import DEFAULT_WORLD, LARGEST_PID, Line, Place, Who
from nodedoctor.whole_numbers import whole

LONGEST = 16384
"""Characters of one line that are looked at; every known message fits, a line of gigabytes does not."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]{0,200}\x07|\[\d{1,3}(?:;\d{1,3})*m")
_MARKUP = re.compile(r"\s{0,3}(?:(?:[#>*-]{1,4}\s+)+`*|`+)(?=\S)")
_DATE = re.compile(
    r"\[?(?:\w{3} )?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:Z|[+-]\d\d:?\d\d)?\]?"
    r"(?: (?:stdout|stderr) [FP] | - |:? +|\t|$)?"
)
_CLOCK = re.compile(r"\[\d\d:\d\d:\d\d(?:\.\d+)?\] ?|\d\d:\d\d:\d\d(?:[.,]\d+)? (?=\[)|\[\d{1,7}\] (?=\[)")
_UPTIME = re.compile(r"(?:<\d>)?\[ *\d+\.\d{6}\] ?")
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\S+) (?=[\w./-]+(?:\[\d+\])?: )")
_RANK = re.compile(r"\[rank(\d{1,6})\](?::|(?=[ \]])) ?")
_MPI = re.compile(r"\[\d+,(\d{1,6})\]<std(?:out|err)>: ?")
_TEE = re.compile(r"\[(?!rank\d)([A-Za-z_]\w*?)(\d{1,4})\]: ?")
_LABEL = re.compile(r" {0,4}(\d{1,5}): (?! *\d)")
_LOGGER_RANK = re.compile(r"\[(?:rank: |RANK )(\d{1,6})\] ?|(?:rank|RANK) (\d{1,6}): ")
_RAY = re.compile(r"\((?:([\w.:]+)(?:\([^)]*\))? )?pid=([\w]+)(?:, ip=([0-9a-fA-F.:]+))?\) ?")
_RAYLET = re.compile(r"\((raylet|gcs_server|autoscaler)(?:, ip=([0-9a-fA-F.:]+))?\) ?")
_POD = re.compile(r"\[pod/([\w.-]+)/[\w.-]+\] ?|([\w.-]+-\d+) +\| ")
_PDSH = re.compile(r"((?:[a-z][\w.]*-[\w.-]*\d|node\d+|worker\d+)): (?=\S)")
_GLOG = re.compile(
    r"\[?([EWIF])(?:(\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+))?(?: +(\d+))? ([\w./-]+\.\w+:\d+)\] ?"
)
_NCCL = re.compile(r"([A-Za-z0-9][\w.-]*):(\d{1,7}):\d+ \[(-?\d+)\] (?=\S)")
_REPEATED = re.compile(r"\s*\[repeated (\d{1,9})x across (?:cluster|all nodes)\].*$")
_INNER = re.compile(r"\[Rank (\d{1,6})\]")
_SPLIT = re.compile(
    r"\[(?:rank|default)\d{1,6}\]:(?=[ \[])"
    r"|\[[EWF](?:\d{3,4} [\d:.]{8,20})? ProcessGroup\w+\.cpp:\d+\]"
    r"|(?<=[\]%])Traceback \(most recent call last\):"
)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)


def parse(raw: str, place: Place) -> Iterator[Line]:
    """The lines in one line: a progress bar's carriage returns and glued ranks are taken apart."""
    for piece in raw[:LONGEST].split("\r"):
        text = _COLOUR.sub("", piece).rstrip()
        if text:
            yield from _glued(text, place)


def seconds(month: int, day: int, hour: int, minute: int, second: int, fraction: str | None) -> float:
    """Seconds since New Year of a leap year: comparable between lines with and without a year."""
    days = _DAYS_BEFORE[(month - 1) % 12] + day
    return days * 86400.0 + hour * 3600 + minute * 60 + second + float(f"0.{fraction or 0}")


def _glued(text: str, place: Place) -> Iterator[Line]:
    """Two ranks may write at once, and the second one's prefix then stands inside the first one's line."""
    whole = _prefixed(text, place, _Prefix(Who()))
    cut = _SPLIT.search(whole.text, 1)
    if cut is None:
        yield whole
        return
    head, tail = whole.text[: cut.start()], whole.text[cut.start() :]
    if head.strip():
        yield replace(whole, text=head.rstrip())
    second = _Prefix(replace(whole.who, rank=None), whole.time)
    yield from _again(tail, place, second)


def _again(text: str, place: Place, inherited: _Prefix) -> Iterator[Line]:
    line = _prefixed(text, place, inherited)
    cut = _SPLIT.search(line.text, 1)
    if cut is None:
        yield line
        return
    yield replace(line, text=line.text[: cut.start()].rstrip())
    yield _prefixed(line.text[cut.start() :], place, replace(inherited))


@dataclass(slots=True)
class _Prefix:
    """What the prefixes taken off so far have told."""

    who: Who
    time: float | None = None
    origin: str = ""
    task: int | None = None
    level: str = ""

    def know(self, **facts: object) -> None:
        given = {name: value for name, value in facts.items() if value is not None}
        self.who = replace(self.who, **given)  # type: ignore[arg-type]


def _prefixed(text: str, place: Place, prefix: _Prefix) -> Line:
    repeated = _REPEATED.search(text)
    if repeated:
        text = text[: repeated.start()]
    for _ in range(8):
        rest = _take(text, prefix)
        if rest is None or rest == text:
            break
        text = rest
    who = prefix.who
    if who.rank is None and prefix.task is not None:
        who = replace(who, rank=prefix.task)
    inner = _INNER.match(text) if who.rank is None else None
    if inner:  # up to torch 2.1 nothing else tells; a rank in its group, which mostly is the whole job
        who = replace(who, rank=int(inner[1]))
    key = f"{place.source}|{who.world}|{who.rank}|{who.local_rank}|{who.pid if who.rank is None else ''}"
    count = int(repeated[1]) if repeated else 0
    return Line(text, place, who, prefix.time, prefix.origin, count, key, prefix.level)


def _take(text: str, prefix: _Prefix) -> str | None:
    """Take one prefix off and note what it says; None when there is no more."""
    for pattern, read in _READERS:
        found = pattern.match(text)
        if found and found.end():
            read(found, prefix)
            return text[found.end() :]
    return None


def _read_nothing(found: re.Match[str], prefix: _Prefix) -> None:
    pass


def _read_date(found: re.Match[str], prefix: _Prefix) -> None:
    month, day, hour, minute, second = (int(found[i]) for i in range(2, 7))
    prefix.time = seconds(month, day, hour, minute, second, found[7])


def _read_syslog(found: re.Match[str], prefix: _Prefix) -> None:
    if found[1] in _MONTHS:
        month = _MONTHS.index(found[1]) + 1
        prefix.time = seconds(month, int(found[2]), int(found[3]), int(found[4]), int(found[5]), None)
        prefix.know(host=found[6])


def _read_rank(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.know(rank=int(found[1]))


def _read_logger_rank(found: re.Match[str], prefix: _Prefix) -> None:
    if prefix.who.rank is None:
        prefix.know(rank=int(found[1] or found[2]))


def _read_tee(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.know(local_rank=int(found[2]))


def _read_label(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.task = int(found[1])


def _read_ray(found: re.Match[str], prefix: _Prefix) -> None:
    pid = whole(found[2], LARGEST_PID)
    prefix.know(world=found[1] or DEFAULT_WORLD, pid=pid, host=found[3])


def _read_raylet(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.origin = found[1]
    prefix.know(host=found[2])


def _read_pod(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.know(host=found[1] or found[2])


def _read_pdsh(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.know(host=found[1])


def _read_glog(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.level = found[1]
    prefix.origin = found[9]
    if found[2]:
        month, day, hour, minute, second = (int(found[i]) for i in range(2, 7))
        prefix.time = seconds(month, day, hour, minute, second, found[7])


def _read_nccl(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.know(host=found[1], pid=int(found[2]))


_READERS = (
    (_RANK, _read_rank),
    (_MPI, _read_rank),
    (_LOGGER_RANK, _read_logger_rank),
    (_GLOG, _read_glog),
    (_DATE, _read_date),
    (_CLOCK, _read_nothing),
    (_UPTIME, _read_nothing),
    (_SYSLOG, _read_syslog),
    (_TEE, _read_tee),
    (_RAY, _read_ray),
    (_RAYLET, _read_raylet),
    (_NCCL, _read_nccl),
    (_POD, _read_pod),
    (_PDSH, _read_pdsh),
    (_LABEL, _read_label),
    (_MARKUP, _read_nothing),
)
