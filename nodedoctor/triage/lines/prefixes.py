"""Which process printed a line, and when, by the prefixes in front of it.

The order matters: `[rank3]:` is the global rank, `[default3]:` and `3:` are not, and `[Rank 3]` inside the
text is a rank within one process group. Nothing here raises, whatever the bytes are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from nodedoctor.record import record
from nodedoctor.triage.lines.plain import plain_text
from nodedoctor.triage.lines.prefilter import split_redraws
from nodedoctor.triage.lines.prefix import clocks, launchers, loggers
from nodedoctor.triage.lines.prefix.info import PrefixInfo, Reader, ReadPrefix, with_identity
from nodedoctor.triage.lines.prefix_pattern import LearnedPrefix
from nodedoctor.triage.lines.required_literals import required_literals
from nodedoctor.triage.model import (
    BESIDE_LABEL,
    DEFAULT_WORLD,
    LARGEST_WORLD,
    NOBODY,
    RANK_LABEL,
    SERIOUS,
    TASK_LABEL,
    Identity,
    Line,
    Place,
)
from nodedoctor.whole_numbers import whole_number

LONGEST = 16384
"""Characters of one line that are looked at; every known message fits, a line of gigabytes does not."""
_SOURCE_PLACE = re.compile(r"(?<! ) {2,}[\w.-]{1,99}\.\w{1,4}:\d+$")
"""Where a message was printed, as loggers put it at the right margin."""
_LABEL = re.compile(r" {0,4}(\d{1,5}): (?:(?! *\d)|(?= *\d{1,5}: \S))")
_LABELED = re.compile(r" {0,4}(\d{1,5}):(?: |$)")
_OF_SLURM = re.compile(r"(?:srun|slurmstepd): ")
_RANK_LABEL = re.compile(r"[ \t]{0,8}\[(?:rank|default)\d{1,6}\]:? ?")
_TORCH_TEXT = re.compile(r"\s|$|Traceback \(most|\[[EWIF]\d{0,4}\b|During handling of|The above exception")
_RANK_FIELD = re.compile(r"(?:(?:global|world)_)?(?:rank|RANK)=(\d{1,6}) ")
_REPEATED = re.compile(r"(?<!\s)\s*\[repeated (\d{1,9})x across (?:cluster|all nodes)\].*$")
_GROUP_RANK = re.compile(r"\[Rank (\d{1,6})\]")
_SPLIT = re.compile(
    r"\[(?:rank|default)\d{1,6}\]:(?=[ \[])"
    r"|\[(?:INFO|WARNING|ERROR):[\w.-]{1,60}\] (?=Traceback \(most recent call last\):$)"
    r"|(?<=[\s:|>)])Traceback \(most recent call last\):$"
    r"|\[[EWF](?:\d{3,4} [\d:.]{8,20})? ProcessGroup\w+\.cpp:\d+\]"
    r'|(?<=ExitCode \d )ErrorMessage (?=")|(?<=\S)" Command "(?=/)'
    r"|(?<=[\]%])Traceback \(most recent call last\):"
    r"|(?<=(?:it/s|s/it)\])(?= {0,8}(?:\d{1,3}%\||[A-Za-z(\[]|[./]\S{1,200}: line \d))"
    r"|(?<=[\d%\])])(?:Killed|(?:Segmentation fault|Bus error|Aborted)(?: \(core dumped\))?)$"
)
_SPLITS = required_literals(_SPLIT.pattern) or ("",)
"""Words without which nothing is to be split; where the expression promises none every line is searched."""


@record
class CommonPrefix:
    """The common prefix of a file's lines: learned patterns, an indent, a severity.

    A severity in front of every line is that of a collector that passes the lines on.
    """

    patterns: tuple[LearnedPrefix, ...] = ()
    indent: int = 0
    has_severity: bool = False
    shared_severity: str = ""
    """The severity that all lines have: it says nothing of one."""
    usual_severity: str = ""
    """Another one does, unless a whole traceback has it: some collectors call all of stderr a warning."""
    has_labels: bool = False
    """A task's label is in front of every line, and so may be in front of a number, too."""
    has_ranks: bool = False
    """A rank is in front of every line, where a launcher may have put it."""


NO_PREFIX = CommonPrefix()


def parse_line(
    raw: str, place: Place, common: CommonPrefix = NO_PREFIX, who: Identity = NOBODY
) -> Iterator[Line]:
    """The lines in one raw line: bars are cut at carriage returns, ranks apart.

    `who` is what an envelope said; the line's own prefixes know better.
    """
    for drawing in split_redraws(raw) if "\r" in raw else (raw,):
        text = plain_text(drawing[:LONGEST])
        if text:
            yield from _split_glued(text, place, common, who)


def without_prefixes(text: str) -> str:
    """A line without its known prefixes; labels stay, as they may be line numbers."""
    prefix = PrefixInfo(NOBODY)
    text = plain_text(text.rpartition("\r")[2][:LONGEST])
    for _ in range(10):
        rest = _take_prefix(text, prefix)
        if rest is None:
            return text
        text = rest
    return text


def is_known(text: str) -> bool:
    """Whether a line begins with a prefix that is known."""
    return _take_prefix(text, PrefixInfo(NOBODY)) is not None


def is_labeled(text: str) -> bool:
    """Whether a line may have a task's label in front, or is of who puts it there."""
    return _LABELED.match(text) is not None or _OF_SLURM.match(text) is not None


def forwarded_label(text: str) -> str:
    """The `[rank3]:` or `[default3]:` in front of a line, '' without one."""
    match = _RANK_LABEL.match(text)
    return match[0].strip() if match else ""


def is_passed_on(text: str, first: bool) -> bool:
    """Whether a launcher, and not torch itself, put the rank in front of a line.

    Torch does so in tracebacks and in c10's messages; anything may follow the first line of an exception's
    message that has no prefix of its own.
    """
    match = _RANK_LABEL.match(text)
    rest = text[match.end() :] if match else text
    return _TORCH_TEXT.match(rest) is None and (first or is_known(rest))


def leading_severity(text: str, common: CommonPrefix) -> str:
    """The severity in front of a line that may be a collector's; '' without one."""
    prefix = PrefixInfo(NOBODY)
    _parse_prefixed(plain_text(text.rpartition("\r")[2][:LONGEST]), Place("", 0), prefix, common)
    return prefix.level if prefix.severities[:1] == (True,) else ""


def _split_glued(text: str, place: Place, common: CommonPrefix, who: Identity) -> Iterator[Line]:
    """The lines of two ranks that wrote into one at once."""
    first = _parse_prefixed(text, place, PrefixInfo(who, common_rank=common.has_ranks), common)
    split = _find_split(first.text)
    if split is None:
        yield first
        return
    head, tail = first.text[: split.start()], first.text[split.start() :]
    if head.strip():
        yield replace(first, text=head.rstrip())
    same = not tail.startswith("[")
    second = PrefixInfo(first.who if same else replace(first.who, rank=None), first.time)
    yield from _split_again(tail, place, second)


def _find_split(text: str) -> re.Match[str] | None:
    """Where the text of another process begins inside of a line."""
    for word in _SPLITS:
        if word in text:
            return _SPLIT.search(text, 1)
    return None


def _split_again(text: str, place: Place, inherited: PrefixInfo) -> Iterator[Line]:
    line = _parse_prefixed(text, place, inherited)
    while (split := _find_split(line.text)) is not None:
        yield replace(line, text=line.text[: split.start()].rstrip())
        line = _parse_prefixed(line.text[split.start() :], place, replace(inherited))
    yield line


def _parse_prefixed(text: str, place: Place, prefix: PrefixInfo, common: CommonPrefix = NO_PREFIX) -> Line:
    repeated = _REPEATED.search(text) if "[repeated " in text else None
    if repeated:
        text = text[: repeated.start()]
    if common.indent and not text[: common.indent].strip():
        text = text[common.indent :]
    layer = 0
    front_time: float | None = None
    for _ in range(12):
        before = prefix.time
        rest = _take_prefix(text, prefix)
        while rest is None and layer < len(common.patterns):
            rest = _take_common_prefix(text, common, layer, prefix)
            layer += 1
        if rest is None and (label := (_LABELED if common.has_labels else _LABEL).match(text)):
            prefix.labels = ((TASK_LABEL, int(label[1])),)
            rest = text[label.end() :]
        if rest is None or rest == text:
            break
        if before is not None and prefix.time != before and front_time is None:
            front_time = before
        text = rest
    if prefix.severities and text.startswith(":"):  # `ERROR:2026-11-07 10:41:22,123:text`
        text = text[1:]
    if prefix.logged and text.endswith(tuple("0123456789")):
        text = _SOURCE_PLACE.sub("", text)
    who = prefix.who
    if prefix.labels:
        who = with_identity(who, (("labels", prefix.labels),))
    has_rank_label = bool(prefix.labels) and prefix.labels[0][0] == RANK_LABEL
    group_rank = (_GROUP_RANK.match(text) or _RANK_FIELD.match(text)) if who.rank is None else None
    if group_rank:  # up to torch 2.1 nothing else tells; a rank in its group, which mostly is the whole job
        fact = (
            ("labels", (*prefix.labels, ("inner", int(group_rank[1]))))
            if has_rank_label
            else ("rank", int(group_rank[1]))
        )
        who = with_identity(who, (fact,))
    speaker = who.pid, who.host, who.labels[:1] if who.rank is None else ()
    key = f"{place.source}|{who.world}|{who.rank}|{who.local_rank}|{speaker if who.rank is None else ''}"
    count = int(repeated[1]) if repeated else 0
    passed_on = (
        common.has_severity and prefix.severities == (True,) and not _is_own(prefix.level, text, common)
    )
    return Line(
        text,
        place,
        who,
        prefix.time,
        prefix.origin,
        count,
        key,
        "" if passed_on else prefix.level,
        prefix.cited,
        prefix.printer,
        front_time=front_time,
    )


_OF_A_TRACEBACK = re.compile(
    r"\s|Traceback \(|During handling of|The above exception|[\w.]{1,80}(?:Error|Exception|Interrupt)\b"
)


def _is_own(level: str, text: str, common: CommonPrefix) -> bool:
    """Whether a line's severity is its program's, although every line has one."""
    if level in SERIOUS:
        return level != common.shared_severity
    return level == "W" and common.usual_severity not in ("", "W") and not _OF_A_TRACEBACK.match(text)


def _take_prefix(text: str, prefix: PrefixInfo) -> str | None:
    """Take one prefix off and note what it says; None when there is no more."""
    if not text:
        return None
    for pattern, read in _BY_FIRST.get(text[0]) or _prefix_readers(text[0]):
        match = pattern.match(text)
        if match and match.end():
            read(match, prefix)
            return text[match.end() :]
    ends = loggers.name_ends(text, prefix) if prefix.logged else 0
    return text[ends:] if ends else None


_ENDS_IN_LABEL = re.compile(r"(?:^|\\[ \])|]|>) \*\(\\d\+\):\\ $")
"""The pattern of a learned prefix that ends in what `srun --label` prints, behind something else. The number
is a word of its own: in `gpu017: ` it is a part of a host's name."""


def _take_common_prefix(text: str, common: CommonPrefix, layer: int, prefix: PrefixInfo) -> str | None:
    """Take off the common prefix, and keep its rank, or its numbers as labels."""
    learned = common.patterns[layer]
    match = learned.pattern.match(text)
    if match is None:
        return None
    if learned.rank is not None and prefix.who.rank is None:
        rank = whole_number(match[learned.rank + 1], LARGEST_WORLD - 1)
        if rank is not None:
            prefix.add_rank(rank)
        return text[match.end() :]
    if learned.is_host:
        prefix.add(host=match[0].rstrip(": "))
    own = "own " if prefix.who.world != DEFAULT_WORLD else ""
    if prefix.who.rank is None:
        last = match.re.groups - 1 if _ENDS_IN_LABEL.search(learned.pattern.pattern) else -1
        numbers = (
            (f"{own}label" if i == last else f"{own}prefix {layer}.{i}", whole_number(match[i + 1]))
            for i in sorted(learned.labels)
        )
        prefix.labels += tuple((name, value) for name, value in numbers if value is not None)
        if learned.labels:
            others = (
                (f"{BESIDE_LABEL} {layer}.{i}", whole_number(match[i + 1])) for i in sorted(learned.beside)
            )
            prefix.labels += tuple((name, value) for name, value in others if value is not None)
    return text[match.end() :]


_READERS: tuple[Reader, ...] = (
    launchers.RANK,
    launchers.MPI,
    launchers.LOGGER_RANK,
    launchers.SHORT_RANK,
    loggers.GLOG,
    clocks.RFC5424,
    clocks.SYSLOG,
    launchers.SGLANG,
    launchers.RAY_LOG,
    clocks.DATE,
    clocks.CLOCK,
    clocks.WORDED,
    clocks.SECONDS,
    clocks.SHORT_DATE,
    clocks.UPTIME,
    loggers.FIELD,
    loggers.PRIORITY,
    launchers.COMPOSER,
    launchers.TEE,
    launchers.HOST_RANK,
    loggers.UCX,
    launchers.RAY,
    launchers.SKY,
    launchers.RAYLET,
    loggers.NCCL,
    launchers.POD,
    launchers.PDSH,
    launchers.SAGEMAKER,
    loggers.TAG,
    loggers.NAMED_LEVEL,
    loggers.LEVEL,
    loggers.COMMAND,
    loggers.MARKUP,
)
"""The prefixes in the order in which a line is asked for them; by its first character only for a few."""

_BY_FIRST: dict[str, tuple[tuple[re.Pattern[str], ReadPrefix], ...]] = {}


def _prefix_readers(first: str) -> tuple[tuple[re.Pattern[str], ReadPrefix], ...]:
    """The prefixes that begin with a character."""
    readers = tuple((pattern, read) for pattern, read, firsts in _READERS if first in firsts)
    if first.isascii():
        _BY_FIRST[first] = readers
    return readers
