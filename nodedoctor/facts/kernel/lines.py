"""Lines of a kernel log, from whatever printed them: journalctl, dmesg in its many forms, syslog, a mail.

Only lines that hold a word somebody is interested in are looked at: a log of 100 000 lines costs a moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

from nodedoctor.grouping import group_pairs
from nodedoctor.record import record

EVIDENCE = 400  # characters of a line that are kept
_JOINED = 3  # lines that mail or a printk with newlines in it may have broken a message into

_HEAD = re.compile(
    r"""[>|\s]*(?:<\d{1,3}>)?(?:\w{1,10}\s*:\w{1,10}\s*:\s*)?
    (?:(?P<iso>\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)\s+
      |(?P<syslog>[A-Z][a-z]{2}\ +\d{1,2}\ \d\d:\d\d:\d\d)(?:\.\d{1,9})?\s+
      |\[(?P<human>[A-Z][a-z]{2}\ [A-Z][a-z]{2}\ +\d{1,2}\ \d\d:\d\d:\d\d\ \d{4})\]\s*
      |\[(?:\s*\+\d{1,9}\.\d{1,9}|[A-Z][a-z]{2}\ ?\d{1,2}\ \d\d:\d\d)\]\s*)?
    (?P<host>(?:\S{1,255}\s+)?kernel(?:\[\d{1,9}\])?:\s*)?
    (?:\[\s*(?P<boot>\d{1,12}\.\d{1,9})\]\s*)?
    (?:\[\s*[TC]\d{1,9}\]\s*)?""",
    re.VERBOSE,
)


@record
class When:
    """The time of a line. `seconds` is on the log's own clock, good for distances between lines.

    With `absolute` it is the time since 1970; syslog and `dmesg -T` name no time zone, a bare dmesg no date.
    `at` is the line's place in the log, which orders lines whatever their times are.
    """

    text: str = ""
    seconds: float | None = None
    absolute: bool = False
    at: int = 0

    @property
    def iso(self) -> str | None:
        """The time in ISO 8601, in UTC where the zone is known; None without a year."""
        if self.seconds is None or not (self.absolute or re.search(r"^\d{4}-| \d{4}$", self.text)):
            return None
        moment = datetime.fromtimestamp(self.seconds, timezone.utc).replace(tzinfo=None)
        return moment.isoformat(timespec="seconds") + "Z" * self.absolute

    @property
    def boot(self) -> float | None:
        """When the node booted, in seconds since 1970, where a time since boot is dated."""
        since, separator, _ = self.text.partition(" s after boot")
        return self.seconds - float(since) if separator and self.absolute and self.seconds else None

    @property
    def short(self) -> str:
        """The time to the second, as people read it: 2026-11-14 08:41:07, a zone only when it is not UTC."""
        match = re.match(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)[.,\d]*(.*)", self.text)
        if match is None:
            return re.sub(r"^(\d+)\.\d+(?= s after boot)", r"\1", self.text)
        zone = "" if match[3] in ("Z", "+00:00", "+0000") else match[3]
        return f"{match[1]} {match[2]}{zone}"


@record
class KernelLine:
    """One message of the kernel: its time and place, its text, the words it was found by."""

    when: When
    text: str
    words: tuple[str, ...]


def lines_with(words: Iterable[str], text: str, boot_epoch: float | None = None) -> Iterator[KernelLine]:
    """The messages that hold one of the words, in the log's order. `boot_epoch` dates a bare dmesg."""
    words_at = group_pairs((start, word) for word in words for start in _line_starts(text, word))
    for start in sorted(words_at):
        raw = line_at(text, start)
        head = _HEAD.match(raw)
        used = head.end() if head else 0
        dated = bool(head and any(head.groupdict().values()))
        rest = _continuation_text(text, start + len(raw) + 1, words_at) if dated else ""
        yield KernelLine(when(head, boot_epoch, start), raw[used:].rstrip() + rest, tuple(words_at[start]))


def following(text: str, at: int, count: int) -> Iterator[str]:
    """The lines after the one that starts there."""
    for _ in range(count):
        at = text.find("\n", at) + 1
        if at == 0:
            return
        yield line_at(text, at)


def line_at(text: str, start: int) -> str:
    """The line that starts there, its first 4 KiB."""
    end = text.find("\n", start)
    return text[start : min(start + 4096, len(text) if end < 0 else end)]


def edges(text: str, boot_epoch: float | None = None) -> tuple[When, When]:
    """The times of the first and the last line."""
    stripped = text.strip("\n")
    ends = (line_at(stripped, 0), line_at(stripped, stripped.rfind("\n") + 1))
    first, last = (when(_HEAD.match(line), boot_epoch) for line in ends)
    return first, last


def when(head: re.Match[str] | None, boot_epoch: float | None = None, at: int = 0) -> When:
    """The time in front of a line; an empty one when it has none or none that exists."""
    nowhere = When(at=at)
    if head is None:
        return nowhere
    iso, syslog, human, boot = head.group("iso", "syslog", "human", "boot")
    try:
        if iso:
            return _parse_iso(iso, at)
        if syslog or human:
            # Syslog writes no year: take one that has a 29th of February.
            moment = (
                datetime.strptime(human, "%a %b %d %H:%M:%S %Y")
                if human
                else datetime.strptime(f"2000 {syslog}", "%Y %b %d %H:%M:%S")
            )
            return When(human or syslog, moment.replace(tzinfo=timezone.utc).timestamp(), at=at)
    except (ValueError, OverflowError):
        return nowhere
    if boot is None:
        return nowhere
    seconds = float(boot)
    return When(f"{boot} s after boot", seconds + (boot_epoch or 0.0), boot_epoch is not None, at)


def _parse_iso(text: str, at: int) -> When:
    plain = re.sub(r"[.,](\d{1,9})", lambda match: "." + (match.group(1) + "00000")[:6], text)
    plain = re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", plain.replace("Z", "+00:00"))
    moment = datetime.fromisoformat(plain)
    zone = moment.tzinfo is not None
    return When(text, (moment if zone else moment.replace(tzinfo=timezone.utc)).timestamp(), zone, at)


def _line_starts(text: str, word: str) -> Iterator[int]:
    """Where the lines that hold a word begin, each once."""
    at = text.find(word)
    while at >= 0:
        yield text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        at = -1 if end < 0 else text.find(word, end)


def _continuation_text(text: str, at: int, words_at: dict[int, list[str]]) -> str:
    """The text of the next lines, as long as they have no time of their own and no message of theirs."""
    parts = []
    for _ in range(_JOINED):
        if at >= len(text) or any(word != "NVRM:" for word in words_at.get(at, ())):
            break
        raw = line_at(text, at)
        head = _HEAD.match(raw)
        if not raw.strip() or raw.startswith("#") or (head and any(head.groupdict().values())):
            break
        parts.append(raw.strip())
        at += len(raw) + 1
    return "".join(f" {part}" for part in parts)
