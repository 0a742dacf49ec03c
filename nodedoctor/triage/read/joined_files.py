"""Splits one file that holds the logs of several processes, put one behind the other.

`tail -n 500 rank*.log` writes a heading for each; `cat` writes none, and the clock goes back where the next
rank begins. What one part says behind another did not happen behind it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from string import ascii_lowercase

from nodedoctor.record import record

LARGEST = 16 << 20
"""Bytes of a file in which headings are looked for: what people put together is small. Ours."""
LARGEST_UNNAMED = 4 << 20
"""Bytes of a file in which the clock is followed. Ours."""
BACK = 60.0
"""Seconds by which the clock goes back between two processes: lines of one log may be late. Ours."""
EDGE = 4 << 10
"""Bytes at the end of a file in which its last rank speaks. Ours."""
SPEAKER_SHARE = 0.1
"""Share of a part's lines with a rank that are of a rank which speaks in it; others are spoken of. Ours."""
_ENDINGS = (b"log", b"out", b"err", b"stdout", b"stderr", b"txt")
_LOG = rb"(?P<name>[\w./@+-]{1,200}\.(?:" + b"|".join(_ENDINGS) + rb")(?:\.\d{1,4})?)"


@record
class FileHeading:
    """How a file is named in front of its text, and `marks` of which each such text has one.

    `is_listed`: the same names may be a list of files, with no text between them.
    """

    marks: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    is_listed: bool = False


_HEADINGS = (
    # tail and head
    FileHeading((b"==> ",), re.compile(rb"^==> (?P<name>[^\r\n]{1,200}) <==\r?$", re.MULTILINE)),
    # more
    FileHeading(
        (b":" * 14,),
        re.compile(rb"^:{14}\r?\n(?P<name>[^:\r\n][^\r\n]{0,200})\r?\n:{14}\r?$", re.MULTILINE),
    ),
    # people and their scripts
    FileHeading(
        tuple(b"." + ending for ending in _ENDINGS),
        re.compile(
            rb"^(?:[=#*-]{2,20} ?|# )(?:[Ff]ile:? )?" + _LOG + rb":?(?: ?[=#*-]{1,20})?\r?$", re.MULTILINE
        ),
        is_listed=True,
    ),
    # a shell's prompt in front of what shows a file; any other command ends that file
    FileHeading(
        (b"cat ", b"tail ", b"head ", b"less "),
        re.compile(
            rb"^(?:[\w@:~./()\[\] -]{1,60})?[$#] (?:sudo )?(?:cat|tail|head|less)(?: -{0,2}[\w=]{1,9}){0,4} "
            + _LOG + rb"(?: *\|[^\r\n]{0,200})?\r?$"
            rb"|^(?:\$|[\w@:~./()\[\] -]{1,60}[$#]) [a-z][\w./-]{0,60}(?: [^\r\n]{0,400})?\r?$",
            re.MULTILINE,
        ),
    ),
)  # fmt: skip
"""What names the next file in a text, by who writes it."""
_CLOCK = re.compile(
    rb"^[^\r\n]{0,64}?(?:\d{4}-(?P<month>\d\d)-(?P<day>\d\d)[T ]|(?P<glog>[IWEF])(?P<date>\d{4}) )"
    rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)",
    re.MULTILINE,
)
_SPEAKER = re.compile(rb"^[^\r\n]{0,80}?[Rr]ank[ =:_-]?(\d{1,6})\b", re.MULTILINE)


@record
class LogPart:
    """A part of a file: its name, '' for the file's own, and where its bytes are."""

    name: str
    begin: int
    end: int


def split_joined(data: bytes) -> tuple[LogPart, ...]:
    """The logs that were put together in a file; none where it is one log."""
    for heading in _HEADINGS:
        parts = _split_at_headings(data, heading)
        if len({part.name for part in parts} - {""}) > 1:
            return parts
    return _split_at_clock(data) if len(data) <= LARGEST_UNNAMED else ()


def _split_at_headings(data: bytes, heading: FileHeading) -> tuple[LogPart, ...]:
    """The parts behind headings, and what is in front of the first."""
    if not any(mark in data for mark in heading.marks):
        return ()
    matches = list(heading.pattern.finditer(data))
    if heading.is_listed and any(not data[a.end() : b.start()].strip() for a, b in pairwise(matches)):
        return ()  # a list of files
    names = ["", *((match["name"] or b"").decode(errors="replace") for match in matches)]
    begins = [0, *(match.end() + 1 for match in matches)]
    ends = [*(match.start() for match in matches), len(data)]
    parts = map(LogPart, names, begins, ends)
    return tuple(part for part in parts if data[part.begin : part.end].strip())


def _split_at_clock(data: bytes) -> tuple[LogPart, ...]:
    """The parts at whose beginning the clock goes back, where each rank speaks in one of them alone."""
    first, last = _SPEAKER.search(data), _SPEAKER.findall(data, max(0, len(data) - EDGE))
    if first is None or (last and last[-1] == first[1]):
        return ()  # one rank from the first line to the last
    parts: list[LogPart] = []
    earlier_ranks: set[int] = set()
    for number, (begin, end) in enumerate(pairwise([0, *_find_seams(data), len(data)])):
        counts = Counter(int(rank) for rank in _SPEAKER.findall(data, begin, end))
        ranks = {rank for rank, count in counts.items() if count >= SPEAKER_SHARE * counts.total()}
        if not ranks or ranks & earlier_ranks or number >= len(ascii_lowercase) ** 2:
            return ()
        earlier_ranks |= ranks
        name = f"rank{min(ranks)}" if len(ranks) == 1 else ""
        letters = divmod(number, len(ascii_lowercase))
        parts.append(LogPart(name or "part-" + "".join(ascii_lowercase[n] for n in letters), begin, end))
    return tuple(parts) if len(parts) > 1 else ()


def _find_seams(data: bytes) -> Iterator[int]:
    """Where lines begin at which a clock goes back; each way to write times is a clock."""
    last: dict[bool, float] = {}
    for match in _CLOCK.finditer(data):
        of_glog = match["glog"] is not None
        month, day = (match["date"][:2], match["date"][2:]) if of_glog else (match["month"], match["day"])
        days = 31 * int(month) + int(day)
        time = 60.0 * (60 * (24 * days + int(match["hour"])) + int(match["minute"])) + int(match["second"])
        if time < last.get(of_glog, time) - BACK:
            yield match.start()
            last.clear()
        last[of_glog] = time
