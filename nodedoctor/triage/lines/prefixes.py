"""Who said a line, and when: launchers, loggers and terminals all put something in front of it.

The order matters: `[rank3]:` is the global rank, `[default3]:` and `3:` are not, and `[Rank 3]` inside the
text is a rank within one process group. Nothing here raises, whatever the bytes are.
"""

from __future__ import annotations

import html
import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from nodedoctor.record import record
from nodedoctor.triage.events.needles import needles
from nodedoctor.triage.lines.redraws import drawings
from nodedoctor.triage.lines.times import moment, seconds
from nodedoctor.triage.model import (
    COMPILED,
    DEFAULT_WORLD,
    LARGEST_PID,
    LARGEST_WORLD,
    NOBODY,
    SERIOUS,
    Line,
    Place,
    Who,
)
from nodedoctor.whole_numbers import whole

LONGEST = 16384
"""Characters of one line that are looked at; every known message fits, a line of gigabytes does not."""

_COLOUR = re.compile(
    r"\x1b7[^\n]{0,400}?\x1b8"  # drawn elsewhere on the screen, with the cursor saved and put back
    r"|\x1b[_P^][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)"
    r"|\x1b(?:[()][0-9A-Z]|[=>78DEHMNOZc])"
)
_HALF_COLOUR = re.compile(r"\[\d{1,3}(?:;\d{1,3})*m")
"""A colour without its escape character, which pages and chats leave out."""
_MARKUP = re.compile(r"\s{0,3}(?:(?:[#>*-]{1,4}\s)+`*(?=.)|`+(?=\S))")
_DATE = re.compile(
    r"[\[(]?(?:\w{3} )?(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,:](\d{1,9}))?"
    r"(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?[\])]?"
    r"(?: (?:stdout|stderr) ([FP]) | - | \| |:? |\t|$)?"
)
_WORDED = re.compile(
    r"[\[(]?(?:[A-Z][a-z]{2},? )?(?:([A-Z][a-z]{2}) +(\d{1,2})|(\d{1,2})[ /]([A-Z][a-z]{2}))"
    r"(?:[ /](?:19|20)\d\d)?[ :](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?: (?:AM|PM))?"
    r"(?: (?:[A-Z]{3,4}|[+-]\d{4}))?(?: (?:19|20)\d\d)?"
    r"[\])]?(?: - | \| |:? |\t|(?=\[\d{1,6}\]<std)|$)"
)
_SGLANG = re.compile(r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)()((?: [A-Z]{2,4}\d{1,4}){1,4})\] ?")
_CLOCK = re.compile(
    r"\[\d\d:\d\d:\d\d(?:\.\d+)?\] ?|\d\d:\d\d:\d\d(?:[.,]\d+)?(?: - | \| | )(?=.)|\[\d{1,7}\] (?=\[)"
    r"|\[\d{1,2}/\d{1,2}/\d{2,4} \d\d:\d\d:\d\d\] ?"
)
_SECONDS = re.compile(r"(1\d{9})(?:\.(\d{1,9})|(\d{3}))? (?=\S)")
_PRIORITY = re.compile(r"<\d{1,3}>(?=\S)")
_RFC5424 = re.compile(
    r"(?:<\d{1,3}>)?1 (\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|[+-]\d\d:?\d\d) (\S+)"
    r" \S+ \S+ \S+ (?:-|(?:\[[^\]]*\])+) ?(?:\ufeff)?"
)
_PADDED = {"DEBUG": 4, "INFO": 5, "NOTICE": 3, "WARNING": 2, "WARN": 5, "ERROR": 4, "CRITICAL": 1, "FATAL": 4,
           "TRACE": 4, "SUCCESS": 2}  # fmt: skip
"""Severities, and the blanks behind them at most: what is further in belongs to the text."""
_LEVEL = re.compile(
    r" {0,12}(?:\[|<)?(?:("
    + "|".join(_PADDED)
    + r")(?:\]|>)?(?: *\| ?| +- |:(?=[\w.]+:|\d{4}-\d\d-\d\d )|:$|(?<=[\]>]):? ?)"
    r"|(" + "|".join(f"{word}:? {{1,{most}}}" for word, most in _PADDED.items()) + r")(?=[^:\s]| ))"
)
_LOGGER = re.compile(
    r"\[(?!rank|default)[A-Za-z_][\w.:/-]*\](?: - |: | ?(?=[\[<]))"
    r"|[\w.<>/-]+(?::[\w.<>]+)*(?::\d+)?(?: - | +\| |\|)"
    r"|(?:[\w.<>/-]+\.\w{1,4}|[A-Za-z_][\w.<>/-]*:[\w.<>]+):\d+:? (?=\S)"
    r"|\[[\w./-]+\.\w{1,4}:\d+\] "
    r"|[\w./-]+\.\w{1,4}:\d+\] "
)
_SHORT_DATE = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?: - | \| | )")
_NAMED = re.compile(r"[a-z_][\w.]*:(?=\S)")
_VALUE = re.compile(r"[a-z_][\w.]*:\d")
"""The name of a number and no logger's, unless it stands as in logging's basic format, `INFO:root:`."""
_COMMAND = re.compile(r"##\[(\w+)\]|::(error|warning|notice)(?: [^:]*)?::")
_PLACED = re.compile(r" {2,}[\w.-]+\.\w{1,4}:\d+$")
_ENTITIES = re.compile(r"&(?:nbsp|lt|gt|quot|apos|amp|#\d{2,6}|#x[0-9A-Fa-f]{2,5});")
_TAG = r"</?(?:span|div|pre|code|p|td|tr|br|b|li|font|html|body)(?: [^<>]{0,200})? ?/?>"
_MARKED_UP = re.compile(rf"^(?:{_TAG})+|(?:{_TAG})+$")
_TAGS = re.compile(_TAG)
_CELLS = re.compile(r"</td>\s*<td(?: [^<>]{0,200})?>")
_UNSEEN = "\ufeff\0\u200b\u200c\u200d\u200e\u2060"
"""Characters of no width, which pages and chats put between what is copied from them."""
_UPTIME = re.compile(r"(?:<\d>)?\[ *\d+\.\d{6}\] ?")
_SYSLOG = re.compile(
    r"(?:([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"|(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)"
    r"(?:\.(\d{1,9}))?(?:Z|[+-]\d\d:?\d\d)?) "
    r"(?!(?i:error|warn|warning|info|debug|note|notice|fatal|critical) )([A-Za-z0-9][\w.-]*) "
    r"(?:(?=[\w./-]+: )|[\w./@-]+\[\d+\]: ?)"
)
_RANK = re.compile(r"[ \t]{0,8}\[rank(\d{1,6})\](?::|(?=[ \]])) ?")
_MPI = re.compile(r"\[(?:[\w.-]+@)?(?:\d+,)?(\d{1,6})\]<std(?:out|err)>: ?|\[?mpirank: ?(\d{1,6})\]?:? ?")
_TEE = re.compile(r"\[(?!rank\d)([A-Za-z_]\w*?)(\d{1,4})\]: ?")
_LABEL = re.compile(r" {0,4}(\d{1,5}): (?:(?! *\d)|(?= *\d{1,5}: \S))")
_LABELED = re.compile(r" {0,4}(\d{1,5}): ")
_LOGGER_RANK = re.compile(
    r"[\[(<](?:[Rr]ank: |RANK |[Gg]lobal [Rr]ank:? |[Rr]ank[=:]|RANK[=:])(\d{1,6})[\])>]:? ?"
    r"|(?:[Rr]ank[ =]|RANK[ =])(\d{1,6})(?:: | ?\| | - |\t)"
)
_STATES = re.compile(r"(?:rank|RANK)=(\d{1,6}) ")
_RAY = re.compile(
    r"\((?:([\w.:]+)(?:\([^)]*\))? )?(?:rank=(\d{1,6}) )?pid=([\w]+)(?:, ip=([0-9a-fA-F.:]+))?\) ?"
)
_VERL = re.compile(r"(\w+?)_(\d{1,5}):(\d{1,3})$")
_VLLM = re.compile(r"(?:Vllm)?Worker(?:Proc)?(?:_TP|-)(\d{1,4})$")
_SEAT = re.compile(r"\[([A-Za-z][\w.]*-?[\w.]*):(\d{1,5})\]: ?")
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
    r"|(?<=[\s:|>)])Traceback \(most recent call last\):$"
    r"|\[[EWF](?:\d{3,4} [\d:.]{8,20})? ProcessGroup\w+\.cpp:\d+\]"
    r"|(?<=[\]%])Traceback \(most recent call last\):"
    r"|(?<=(?:it/s|s/it)\])(?= {0,8}(?:\d{1,3}%\||[A-Za-z(\[]))"
)
_SPLITS = needles(_SPLIT.pattern) or ("",)
"""Words without which nothing is to be split; where the expression promises none every line is searched."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@record
class Habit:
    """What the lines of one file have in common in front: learned prefixes, blanks, and a severity.

    With each prefix stands which of its numbers may be ranks. A severity in front of every line, `leveled`,
    is that of whoever passes the lines on. With a task's label in front of every line, `labeled`, one may
    stand in front of a number, too.
    """

    learned: tuple[tuple[re.Pattern[str], frozenset[int]], ...] = ()
    margin: int = 0
    leveled: bool = False
    labeled: bool = False


NO_HABIT = Habit()


def parse(raw: str, place: Place, habit: Habit = NO_HABIT, who: Who = NOBODY) -> Iterator[Line]:
    """The lines in one line: a progress bar's carriage returns and glued ranks are taken apart.

    `who` is what an envelope said; the line's own prefixes know better.
    """
    for drawn in drawings(raw) if "\r" in raw else (raw,):
        text = _plain(drawn[:LONGEST])
        if text:
            yield from _glued(text, place, habit, who)


def _plain(text: str) -> str:
    """A text without colours, the marks of a page or a chat, and blanks behind it."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    text = (_HALF_COLOUR.sub("", text) if "[" in text else text).rstrip().strip(_UNSEEN).replace("\xa0", " ")
    if (text[:1] == "<" or text[-1:] == ">") and _MARKED_UP.search(text):
        text = _TAGS.sub("", _CELLS.sub("\t", text))
    if "&" in text:
        text = _ENTITIES.sub(lambda found: html.unescape(found[0]).replace("\xa0", " "), text)
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == "`" else text


def bare(text: str) -> str:
    """A line without the prefixes that are known, labels aside: they may be numbers of lines."""
    prefix = _Prefix(NOBODY)
    text = _plain(text.rpartition("\r")[2][:LONGEST])
    for _ in range(10):
        rest = _take(text, prefix)
        if rest is None:
            return text
        text = rest
    return text


def is_known(text: str) -> bool:
    """Whether a line begins with a prefix that is known."""
    return _take(text, _Prefix(NOBODY)) is not None


def is_labeled(text: str) -> bool:
    """Whether a line may have a task's label in front."""
    return _LABELED.match(text) is not None


def is_leveled(text: str, habit: Habit) -> bool:
    """Whether the severity in front of a line may be that of whoever passes the line on."""
    prefix = _Prefix(NOBODY)
    _prefixed(_plain(text.rpartition("\r")[2][:LONGEST]), Place("", 0), prefix, habit)
    return prefix.severities[:1] == (True,)


def _glued(text: str, place: Place, habit: Habit, who: Who) -> Iterator[Line]:
    """Two ranks may write at once, and the second one's prefix then stands inside the first one's line."""
    first = _prefixed(text, place, _Prefix(who), habit)
    cut = _begins_anew(first.text)
    if cut is None:
        yield first
        return
    head, tail = first.text[: cut.start()], first.text[cut.start() :]
    if head.strip():
        yield replace(first, text=head.rstrip())
    same = not tail.startswith("[")
    second = _Prefix(first.who if same else replace(first.who, rank=None), first.time)
    yield from _again(tail, place, second)


def _begins_anew(text: str) -> re.Match[str] | None:
    """Where another process begins to speak inside of a line."""
    for word in _SPLITS:
        if word in text:
            return _SPLIT.search(text, 1)
    return None


def _again(text: str, place: Place, inherited: _Prefix) -> Iterator[Line]:
    line = _prefixed(text, place, inherited)
    while (cut := _begins_anew(line.text)) is not None:
        yield replace(line, text=line.text[: cut.start()].rstrip())
        line = _prefixed(line.text[cut.start() :], place, replace(inherited))
    yield line


@dataclass(slots=True)
class _Prefix:
    """What the prefixes taken off so far have told."""

    who: Who
    time: float | None = None
    origin: str = ""
    level: str = ""
    severities: tuple[bool, ...] = ()
    """For each severity, the outermost first, whether it may be that of somebody who passes lines on."""
    logged: bool = False
    """A logger speaks: what follows a time or a severity may be its name."""
    basic: bool = False
    """A severity and a colon were in front: a logger's name and a colon follow."""
    labels: tuple[tuple[str, int], ...] = ()

    def know(self, **facts: object) -> None:
        self.who = _knowing(self.who, tuple([fact for fact in facts.items() if fact[1] is not None]))


@lru_cache(maxsize=4096)
def _knowing(who: Who, facts: tuple[tuple[str, object], ...]) -> Who:
    """An identity with more known of it; few processes print many lines."""
    return replace(who, **dict(facts))  # type: ignore[arg-type]


def _prefixed(text: str, place: Place, prefix: _Prefix, habit: Habit = NO_HABIT) -> Line:
    repeated = _REPEATED.search(text) if "[repeated " in text else None
    if repeated:
        text = text[: repeated.start()]
    if habit.margin and not text[: habit.margin].strip():
        text = text[habit.margin :]
    layer = 0
    for _ in range(12):
        rest = _take(text, prefix)
        while rest is None and layer < len(habit.learned):
            rest = _learned(text, habit, layer, prefix)
            layer += 1
        if rest is None and (label := (_LABELED if habit.labeled else _LABEL).match(text)):
            _read_label(label, prefix)
            rest = text[label.end() :]
        if rest is None or rest == text:
            break
        text = rest
    if prefix.severities and text.startswith(":"):  # `ERROR:2026-11-07 10:41:22,123:text`
        text = text[1:]
    if prefix.logged and text.endswith(tuple("0123456789")):
        text = _PLACED.sub("", text)
    who = prefix.who
    if prefix.labels:
        who = _knowing(who, (("labels", prefix.labels),))
    inner = (_INNER.match(text) or _STATES.match(text)) if who.rank is None else None
    if inner:  # up to torch 2.1 nothing else tells; a rank in its group, which mostly is the whole job
        who = _knowing(who, (("rank", int(inner[1])),))
    speaker = who.pid, who.host, who.labels[:1] if who.rank is None else ()
    key = f"{place.source}|{who.world}|{who.rank}|{who.local_rank}|{speaker if who.rank is None else ''}"
    count = int(repeated[1]) if repeated else 0
    passed_on = habit.leveled and prefix.severities == (True,)
    level = "" if passed_on and prefix.level not in SERIOUS else prefix.level
    return Line(text, place, who, prefix.time, prefix.origin, count, key, level)


def _take(text: str, prefix: _Prefix) -> str | None:
    """Take one prefix off and note what it says; None when there is no more."""
    if not text:
        return None
    for pattern, read in _BY_FIRST.get(text[0]) or _readers(text[0]):
        found = pattern.match(text)
        if found and found.end():
            read(found, prefix)
            return text[found.end() :]
    if prefix.logged:
        found = _LOGGER.match(text)
        if found is None and prefix.level and (prefix.basic or not _VALUE.match(text)):
            found = _NAMED.match(text)
        if found and not (found[0].startswith(("Error", "Warning")) or text.startswith("NCCL ", found.end())):
            return text[found.end() :]
    return None


_ENDS_IN_LABEL = re.compile(r"(?:^|\\[ \])|]|>) \*\(\\d\+\):\\ $")
"""The pattern of a learned prefix that ends in what `srun --label` prints, behind something else. The number
is a word of its own: in `gpu017: ` it is a part of a host's name."""


def _learned(text: str, habit: Habit, layer: int, prefix: _Prefix) -> str | None:
    """Take off what all lines of the file have in front; `identity` decides whether its numbers are ranks."""
    pattern, columns = habit.learned[layer]
    found = pattern.match(text)
    if found is None:
        return None
    if prefix.who.rank is None:
        last = found.re.groups - 1 if _ENDS_IN_LABEL.search(pattern.pattern) else -1
        numbers = (
            ("label" if i == last else f"prefix {layer}.{i}", whole(found[i + 1])) for i in sorted(columns)
        )
        prefix.labels += tuple((name, value) for name, value in numbers if value is not None)
    return text[found.end() :]


def _read_nothing(found: re.Match[str], prefix: _Prefix) -> None:
    pass


def _read_clock(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.logged = True


def _read_date(found: re.Match[str], prefix: _Prefix) -> None:
    month, day, hour, minute, second = (int(found[i]) for i in range(2, 7))
    prefix.time = seconds(month, day, hour, minute, second, found[7])
    prefix.logged = True


def _read_sglang(found: re.Match[str], prefix: _Prefix) -> None:
    _read_date(found, prefix)
    alone = re.fullmatch(r" TP(\d+)", found[8])  # beside a rank of data or pipeline it is no global one
    prefix.know(rank=int(alone[1]) if alone else None)


def _read_short_date(found: re.Match[str], prefix: _Prefix) -> None:
    month, day, hour, minute, second = (int(found[i]) for i in range(1, 6))
    prefix.time = seconds(month, day, hour, minute, second, found[6])
    prefix.logged = True


def _read_worded(found: re.Match[str], prefix: _Prefix) -> None:
    name = found[1] or found[4]
    if name in _MONTHS:
        day, hour, minute, second = (
            int(text) for text in (found[2] or found[3], found[5], found[6], found[7])
        )
        prefix.time = seconds(_MONTHS.index(name) + 1, day, hour, minute, second, found[8])
        prefix.logged = True


def _read_seconds(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.time = moment(found[1] + "." + (found[2] or found[3] or "0"))
    prefix.logged = True


def _read_syslog(found: re.Match[str], prefix: _Prefix) -> None:
    if found[1] in _MONTHS:
        month = _MONTHS.index(found[1]) + 1
        prefix.time = seconds(month, int(found[2]), int(found[3]), int(found[4]), int(found[5]), found[6])
    elif found[7]:
        month, day, hour, minute, second = (int(found[i]) for i in range(8, 13))
        prefix.time = seconds(month, day, hour, minute, second, found[13])
    prefix.know(host=found[14])


def _read_rfc5424(found: re.Match[str], prefix: _Prefix) -> None:
    _read_date(found, prefix)
    prefix.know(host=found[8] if found[8] != "-" else None)


def _read_level(found: re.Match[str], prefix: _Prefix) -> None:
    first = (found[1] or found[2])[0]
    prefix.level = {"S": "I", "T": "D", "N": "I", "C": "F"}.get(first, first)
    prefix.severities += (True,)
    prefix.logged = True
    prefix.basic = found[0].endswith(":")


def _read_command(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.level = {"error": "E", "warning": "W"}.get(found[1] or found[2], prefix.level)
    prefix.severities += (True,)


def _read_rank(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.know(rank=int(found[1]))


def _read_mpi(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.know(rank=int(found[1] or found[2]))


def _read_logger_rank(found: re.Match[str], prefix: _Prefix) -> None:
    if prefix.who.rank is None:
        prefix.know(rank=int(found[1] or found[2]))


def _read_tee(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.know(local_rank=int(found[2]))


def _read_label(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.labels = (("label", int(found[1])),)


def _read_seat(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.know(host=found[1])
    prefix.labels = (("seat", int(found[2])),)


def _read_ray(found: re.Match[str], prefix: _Prefix) -> None:
    world, rank = found[1] or DEFAULT_WORLD, whole(found[2], LARGEST_WORLD - 1)
    verl, vllm = _VERL.match(world), _VLLM.match(world)
    if verl:  # the name of verl's actors ends in the number of their node and their rank on it
        world = verl[1]
        prefix.know(local_rank=int(verl[3]))
        prefix.labels = (("node", int(verl[2])),)
    if vllm or rank is not None:
        world, rank = DEFAULT_WORLD, rank if rank is not None or vllm is None else int(vllm[1])
    prefix.know(world=world, pid=whole(found[3], LARGEST_PID), host=found[4], rank=rank)


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
    prefix.severities += (not COMPILED.search(found[9]),)
    if found[2]:
        month, day, hour, minute, second = (int(found[i]) for i in range(2, 7))
        prefix.time = seconds(month, day, hour, minute, second, found[7])


def _read_nccl(found: re.Match[str], prefix: _Prefix) -> None:
    prefix.know(host=found[1], pid=int(found[2]))


_UPPER, _LOWER, _DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], _Prefix], None], str], ...] = (
    (_RANK, _read_rank, "[ \t"),
    (_MPI, _read_mpi, "[m"),
    (_LOGGER_RANK, _read_logger_rank, "[(<rRgG"),
    (_GLOG, _read_glog, "[EWIF"),
    (_RFC5424, _read_rfc5424, "<1"),
    (_SYSLOG, _read_syslog, _UPPER + _DIGITS),
    (_SGLANG, _read_sglang, "["),
    (_DATE, _read_date, "[(_" + _UPPER + _LOWER + _DIGITS),
    (_CLOCK, _read_clock, "[" + _DIGITS),
    (_WORDED, _read_worded, "[(" + _UPPER + _DIGITS),
    (_SECONDS, _read_seconds, "1"),
    (_SHORT_DATE, _read_short_date, _DIGITS),
    (_UPTIME, _read_nothing, "[<"),
    (_PRIORITY, _read_nothing, "<"),
    (_TEE, _read_tee, "["),
    (_SEAT, _read_seat, "["),
    (_RAY, _read_ray, "("),
    (_RAYLET, _read_raylet, "("),
    (_NCCL, _read_nccl, _UPPER + _LOWER + _DIGITS),
    (_POD, _read_pod, "[_.-" + _UPPER + _LOWER + _DIGITS),
    (_PDSH, _read_pdsh, _LOWER),
    (_LEVEL, _read_level, " [<DINWECFTS"),
    (_COMMAND, _read_command, "#:"),
    (_MARKUP, _read_nothing, " \t#>*-`"),
)
"""Each prefix, what it says, and what it can begin with: a line is asked only about a few."""

_BY_FIRST: dict[str, tuple[tuple[re.Pattern[str], Callable[[re.Match[str], _Prefix], None]], ...]] = {}


def _readers(first: str) -> tuple[tuple[re.Pattern[str], Callable[[re.Match[str], _Prefix], None]], ...]:
    """The prefixes that begin with a character."""
    found = tuple((pattern, read) for pattern, read, firsts in _READERS if first in firsts)
    if first.isascii():
        _BY_FIRST[first] = found
    return found
