"""Which process a traceback is of, by its head or the line above it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from nodedoctor.triage.identity.trace_leads import HEAD, TraceLeads
from nodedoctor.triage.lines.join import join_broken
from nodedoctor.triage.model import NOBODY, RANK_LABEL, SERIOUS, Identity, Line
from nodedoctor.triage.patterns.elastic import ENTRY, ElasticBlock
from nodedoctor.triage.patterns.trace import RAISED

_GATHERED = re.compile(r"^Traceback \(most recent call last\): \(RANK (\d{1,6})\)")
_SPAWNED = re.compile(r"^(?:-- )?Process (\d{1,6}) terminated with the following error:")
_IN_LIST = re.compile(r"^(\s+)traceback *:(?: (?=Traceback \(most recent)|$)")


def attribute_lines(lines: Iterable[Line]) -> Iterable[Line]:
    """The lines of one log, each with the identity that the lines around it give."""
    lines = join_broken(TraceLeads().read(lines))
    for owner in (SpawnTraceOwner(), PrefixOnceTraceOwner(), CheckpointTraceOwner(), ElasticTraceOwner()):
        lines = map(owner.line, lines)
    return lines


class CheckpointTraceOwner:
    """torch.distributed.checkpoint gathers the exceptions of all ranks, and each rank shows all of them.

    A traceback is of the rank that its head names (`torch/distributed/checkpoint/api.py`).
    """

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def line(self, line: Line) -> Line:
        """The line with the rank whose traceback it is in."""
        head = _GATHERED.match(line.text) if line.text.startswith("Traceback") else None
        if head is not None:
            self._of[line.key] = int(head[1])
        rank = self._of.get(line.key)
        if rank is None:
            return line
        if head is None and not line.text[:1].isspace():
            del self._of[line.key]  # the line of the exception is the last one
        who = replace(line.who, rank=rank, pid=None, local_rank=None, gpu=None, labels=())
        return replace(line, who=who, key=f"{line.key}|{rank}")


class SpawnTraceOwner:
    """Gives tracebacks of mp.spawn the rank that the line in front names."""

    def __init__(self) -> None:
        self._next: tuple[str, int] | None = None

    def line(self, line: Line) -> Line:
        """The line, with its rank where it begins what the process raised."""
        process = _SPAWNED.search(line.text) if "Process " in line.text else None
        if process is not None:
            self._next = (line.place.source, int(process[1]))
            return line
        if self._next is None or not line.text.startswith(HEAD):
            return line
        (source, rank), self._next = self._next, None
        return line if source != line.place.source else replace(line, who=replace(line.who, rank=rank))


class PrefixOnceTraceOwner:
    """Gives tracebacks the identity of their first line, which alone has a prefix.

    That is the head, or the message above it, where `logging.exception` prints both at once.
    """

    def __init__(self) -> None:
        self._first: Line | None = None
        self._message: Line | None = None

    def line(self, line: Line) -> Line:
        """The line with the identity of the traceback that it continues."""
        first, text = self._first, line.text
        message, self._message = self._message, line if _is_logged_message(line) else None
        if text.startswith(HEAD):
            if line.who == NOBODY and line.time is None and message is not None:
                line = replace(line, who=message.who, key=message.key, time=message.time)
            self._first = line if line.who != NOBODY else None
            return line
        if first is None:
            return line
        inside = text[:1].isspace()
        alone = line.who == NOBODY and line.time is None
        if not inside:
            self._first = None
        if line.place.source != first.place.source or not _is_compatible(line.who, first.who):
            self._first = None
            return line
        if not (inside or alone or RAISED.match(text)):
            return line
        return replace(line, who=first.who, key=first.key, time=first.time)


def _is_logged_message(line: Line) -> bool:
    """True for an error of a program's logger, not of torch's C++, that has its rank in front."""
    has_rank = line.who.rank is not None or any(kind == RANK_LABEL for kind, _ in line.who.labels)
    return has_rank and line.level in SERIOUS and _IN_CPP.search(line.text) is None


_IN_CPP = re.compile(r"\[Rank \d{1,6}\]|\[PG \w|\[c10d\]|\.(?:cpp|cc|cu):\d")


def _is_compatible(who: Identity, owner: Identity) -> bool:
    """True when an identity adds nothing to the owner's: collectors mark all lines."""
    return who == NOBODY or (
        who.fill_from(owner) == replace(owner, labels=who.labels) and who.labels in ((), owner.labels)
    )


class ElasticTraceOwner:
    """Gives tracebacks in torchelastic's list the rank of their entry."""

    def __init__(self) -> None:
        self._block = ElasticBlock()
        self._of: Identity | None = None
        self._indent: str | None = None

    def line(self, line: Line) -> Line:
        """The line with the entry's identity, where it is of the entry's traceback."""
        line = line if self._of is None else self._attribute(line, self._of)
        entry = self._block.read(line)
        if entry is not None:
            self._of, self._indent = (entry.who if entry.who.rank is not None else None), None
        return line

    def _attribute(self, line: Line, who: Identity) -> Line:
        begins = _IN_LIST.match(line.text)
        if begins is not None:
            self._indent = begins[1]
            text = line.text[begins.end() :]
        elif self._indent is None:
            return line
        elif line.text.startswith((HEAD, self._indent)) and not ENTRY.match(line.text):
            text = line.text.removeprefix(self._indent)  # a line that begins with the head was split off
        else:
            self._of = self._indent = None
            return line
        return replace(line, text=text, who=who, key=f"{line.key}|{who.rank}")
