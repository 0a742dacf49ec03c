"""Who said a line, and when: launchers, loggers and terminals all put something in front of it.

The order matters: `[rank3]:` is the global rank, `[default3]:` and `3:` are not, and `[Rank 3]` inside the
text is a rank within one process group. Nothing here raises, whatever the bytes are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from nodedoctor.record import record
from nodedoctor.triage.lines.plain import plain_text
from nodedoctor.triage.lines.prefix import clocks, launchers, loggers
from nodedoctor.triage.lines.prefix.info import PrefixInfo, Reader, Take, with_identity
from nodedoctor.triage.lines.redraws import split_redraws
from nodedoctor.triage.lines.required_literals import required_literals
from nodedoctor.triage.model import DEFAULT_WORLD, NOBODY, SERIOUS, STATED, Identity, Line, Place
from nodedoctor.whole_numbers import whole_number

LONGEST = 16384
"""Characters of one line that are looked at; every known message fits, a line of gigabytes does not."""
_PLACED = re.compile(r"(?<! ) {2,}[\w.-]{1,99}\.\w{1,4}:\d+$")
"""Where a message was printed, as loggers put it at the right margin."""
_LABEL = re.compile(r" {0,4}(\d{1,5}): (?:(?! *\d)|(?= *\d{1,5}: \S))")
_LABELED = re.compile(r" {0,4}(\d{1,5}): ")
_SEATED = re.compile(r"[ \t]{0,8}\[(?:rank|default)\d{1,6}\]:? ?")
_OF_TORCH = re.compile(r"\s|$|Traceback \(most|\[[EWIF]\d{0,4}\b|During handling of|The above exception")
_STATES = re.compile(r"(?:rank|RANK)=(\d{1,6}) ")
_REPEATED = re.compile(r"(?<!\s)\s*\[repeated (\d{1,9})x across (?:cluster|all nodes)\].*$")
_INNER = re.compile(r"\[Rank (\d{1,6})\]")
_SPLIT = re.compile(
    r"\[(?:rank|default)\d{1,6}\]:(?=[ \[])"
    r"|\[(?:INFO|WARNING|ERROR):[\w.-]{1,60}\] (?=Traceback \(most recent call last\):$)"
    r"|(?<=[\s:|>)])Traceback \(most recent call last\):$"
    r"|\[[EWF](?:\d{3,4} [\d:.]{8,20})? ProcessGroup\w+\.cpp:\d+\]"
    r"|(?<=[\]%])Traceback \(most recent call last\):"
    r"|(?<=(?:it/s|s/it)\])(?= {0,8}(?:\d{1,3}%\||[A-Za-z(\[]))"
    r"|(?<=[\d%\])])(?:Killed|(?:Segmentation fault|Bus error|Aborted)(?: \(core dumped\))?)$"
)
_SPLITS = required_literals(_SPLIT.pattern) or ("",)
"""Words without which nothing is to be split; where the expression promises none every line is searched."""


@record
class CommonPrefix:
    """What the lines of one file have in common in front: learned prefixes, blanks, and a severity.

    With each prefix stands which of its numbers may be ranks. A severity in front of every line, `leveled`,
    is that of whoever passes the lines on, and where all have the same, `shared`, it says nothing; one that
    is not the `usual` one does, unless a whole traceback has it: some call all of stderr a warning. With a
    task's label in front of every line, `labeled`, one may stand in front of a number, too. Where every line
    has a rank in front, `seated`, whoever passes them on may have put it there.
    """

    learned: tuple[tuple[re.Pattern[str], frozenset[int]], ...] = ()
    margin: int = 0
    leveled: bool = False
    shared: str = ""
    usual: str = ""
    labeled: bool = False
    seated: bool = False


NO_HABIT = CommonPrefix()


def parse_line(
    raw: str, place: Place, habit: CommonPrefix = NO_HABIT, who: Identity = NOBODY
) -> Iterator[Line]:
    """The lines in one line: a progress bar's carriage returns and glued ranks are taken apart.

    `who` is what an envelope said; the line's own prefixes know better.
    """
    for drawn in split_redraws(raw) if "\r" in raw else (raw,):
        text = plain_text(drawn[:LONGEST])
        if text:
            yield from _split_glued(text, place, habit, who)


def without_prefixes(text: str) -> str:
    """A line without the prefixes that are known, labels aside: they may be numbers of lines."""
    said = PrefixInfo(NOBODY)
    text = plain_text(text.rpartition("\r")[2][:LONGEST])
    for _ in range(10):
        rest = _take_prefix(text, said)
        if rest is None:
            return text
        text = rest
    return text


def is_known(text: str) -> bool:
    """Whether a line begins with a prefix that is known."""
    return _take_prefix(text, PrefixInfo(NOBODY)) is not None


def is_labeled(text: str) -> bool:
    """Whether a line may have a task's label in front."""
    return _LABELED.match(text) is not None


def forwarded_label(text: str) -> str:
    """The `[rank3]:` or `[default3]:` in front of a line, '' without one."""
    found = _SEATED.match(text)
    return found[0].strip() if found else ""


def is_passed_on(text: str, first: bool) -> bool:
    """Whether a line behind its seat is none in front of which torch itself puts a rank.

    Torch does so in tracebacks and in c10's messages; anything may follow the first line of an exception's
    message that has no prefix of its own.
    """
    found = _SEATED.match(text)
    rest = text[found.end() :] if found else text
    return _OF_TORCH.match(rest) is None and (first or is_known(rest))


def leading_severity(text: str, habit: CommonPrefix) -> str:
    """The severity in front of a line that may be that of whoever passes the line on; '' without one."""
    said = PrefixInfo(NOBODY)
    _parse_prefixed(plain_text(text.rpartition("\r")[2][:LONGEST]), Place("", 0), said, habit)
    return said.level if said.severities[:1] == (True,) else ""


def _split_glued(text: str, place: Place, habit: CommonPrefix, who: Identity) -> Iterator[Line]:
    """Two ranks may write at once, and the second one's prefix then stands inside the first one's line."""
    first = _parse_prefixed(text, place, PrefixInfo(who, seated=habit.seated), habit)
    cut = _begins_anew(first.text)
    if cut is None:
        yield first
        return
    head, tail = first.text[: cut.start()], first.text[cut.start() :]
    if head.strip():
        yield replace(first, text=head.rstrip())
    same = not tail.startswith("[")
    second = PrefixInfo(first.who if same else replace(first.who, rank=None), first.time)
    yield from _split_again(tail, place, second)


def _begins_anew(text: str) -> re.Match[str] | None:
    """Where another process begins to speak inside of a line."""
    for word in _SPLITS:
        if word in text:
            return _SPLIT.search(text, 1)
    return None


def _split_again(text: str, place: Place, inherited: PrefixInfo) -> Iterator[Line]:
    line = _parse_prefixed(text, place, inherited)
    while (cut := _begins_anew(line.text)) is not None:
        yield replace(line, text=line.text[: cut.start()].rstrip())
        line = _parse_prefixed(line.text[cut.start() :], place, replace(inherited))
    yield line


def _parse_prefixed(text: str, place: Place, said: PrefixInfo, habit: CommonPrefix = NO_HABIT) -> Line:
    repeated = _REPEATED.search(text) if "[repeated " in text else None
    if repeated:
        text = text[: repeated.start()]
    if habit.margin and not text[: habit.margin].strip():
        text = text[habit.margin :]
    layer = 0
    for _ in range(12):
        rest = _take_prefix(text, said)
        while rest is None and layer < len(habit.learned):
            rest = _take_common_prefix(text, habit, layer, said)
            layer += 1
        if rest is None and (label := (_LABELED if habit.labeled else _LABEL).match(text)):
            _read_label(label, said)
            rest = text[label.end() :]
        if rest is None or rest == text:
            break
        text = rest
    if said.severities and text.startswith(":"):  # `ERROR:2026-11-07 10:41:22,123:text`
        text = text[1:]
    if said.logged and text.endswith(tuple("0123456789")):
        text = _PLACED.sub("", text)
    who = said.who
    if said.labels:
        who = with_identity(who, (("labels", said.labels),))
    stated = bool(said.labels) and said.labels[0][0] == STATED
    inner = (_INNER.match(text) or _STATES.match(text)) if who.rank is None else None
    if inner:  # up to torch 2.1 nothing else tells; a rank in its group, which mostly is the whole job
        fact = ("labels", (*said.labels, ("inner", int(inner[1])))) if stated else ("rank", int(inner[1]))
        who = with_identity(who, (fact,))
    speaker = who.pid, who.host, who.labels[:1] if who.rank is None else ()
    key = f"{place.source}|{who.world}|{who.rank}|{who.local_rank}|{speaker if who.rank is None else ''}"
    count = int(repeated[1]) if repeated else 0
    passed_on = habit.leveled and said.severities == (True,) and not _is_own(said.level, text, habit)
    return Line(
        text, place, who, said.time, said.origin, count, key, "" if passed_on else said.level, said.cited
    )


_OF_A_TRACEBACK = re.compile(
    r"\s|Traceback \(|During handling of|The above exception|[\w.]{1,80}(?:Error|Exception|Interrupt)\b"
)


def _is_own(level: str, text: str, habit: CommonPrefix) -> bool:
    """Whether a line has its severity from its program although every line has one in front."""
    if level in SERIOUS:
        return level != habit.shared
    return level == "W" and habit.usual not in ("", "W") and not _OF_A_TRACEBACK.match(text)


def _take_prefix(text: str, said: PrefixInfo) -> str | None:
    """Take one prefix off and note what it says; None when there is no more."""
    if not text:
        return None
    for pattern, read in _BY_FIRST.get(text[0]) or _prefix_readers(text[0]):
        found = pattern.match(text)
        if found and found.end():
            read(found, said)
            return text[found.end() :]
    ends = loggers.name_ends(text, said) if said.logged else 0
    return text[ends:] if ends else None


_ENDS_IN_LABEL = re.compile(r"(?:^|\\[ \])|]|>) \*\(\\d\+\):\\ $")
"""The pattern of a learned prefix that ends in what `srun --label` prints, behind something else. The number
is a word of its own: in `gpu017: ` it is a part of a host's name."""


def _take_common_prefix(text: str, habit: CommonPrefix, layer: int, said: PrefixInfo) -> str | None:
    """Take off what all lines of the file have in front; `identity` decides whether its numbers are ranks."""
    pattern, columns = habit.learned[layer]
    found = pattern.match(text)
    if found is None:
        return None
    own = "own " if said.who.world != DEFAULT_WORLD else ""
    if said.who.rank is None:
        last = found.re.groups - 1 if _ENDS_IN_LABEL.search(pattern.pattern) else -1
        numbers = (
            (f"{own}label" if i == last else f"{own}prefix {layer}.{i}", whole_number(found[i + 1]))
            for i in sorted(columns)
        )
        said.labels += tuple((name, value) for name, value in numbers if value is not None)
    return text[found.end() :]


def _read_label(found: re.Match[str], said: PrefixInfo) -> None:
    said.labels = (("label", int(found[1])),)


_READERS: tuple[Reader, ...] = (
    launchers.RANK,
    launchers.MPI,
    launchers.LOGGER_RANK,
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
    launchers.SEAT,
    loggers.UCX,
    launchers.RAY,
    launchers.SKY,
    launchers.RAYLET,
    loggers.NCCL,
    launchers.POD,
    launchers.PDSH,
    loggers.NAMED_LEVEL,
    loggers.LEVEL,
    loggers.COMMAND,
    loggers.MARKUP,
)
"""The prefixes in the order in which a line is asked for them; by its first character only for a few."""

_BY_FIRST: dict[str, tuple[tuple[re.Pattern[str], Take], ...]] = {}


def _prefix_readers(first: str) -> tuple[tuple[re.Pattern[str], Take], ...]:
    """The prefixes that begin with a character."""
    found = tuple((pattern, read) for pattern, read, firsts in _READERS if first in firsts)
    if first.isascii():
        _BY_FIRST[first] = found
    return found
