"""Kept stacks of processes: which process a dump is of, and where its main thread was.

`py-spy dump` (src/main.rs, print_trace) prints a line for the process, which people often leave out, one per
thread, and frames below. Python's faulthandler (Python/traceback.c) prints `Timeout (0:30:00)!`, and then all
threads; logs mix the dumps of several ranks.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nodedoctor.triage.model import LARGEST_PID, NOBODY, Event, Identity, Line
from nodedoctor.triage.patterns.log_pattern import rank_in_words
from nodedoctor.triage.patterns.progress import PidRoster
from nodedoctor.triage.patterns.stacks import StackFrame, ThreadStack, is_library
from nodedoctor.whole_numbers import whole_number

FRAMES = 200
HEADING = 120
"""Characters of a line above a dump that may be its heading; ours."""
HEADINGS = 3
"""Lines above a dump, or between its head and its first thread, that may be headings; ours."""
GAP = 20
"""Lines of others, and of no dump, behind which a dump is over: a process prints it at once; ours."""
MOST_OPEN = 4096
"""Dumps that are read at once."""
_BEGINS = ("Process ", "Thread ", "Timeout (")
_PROCESS = re.compile(r"^Process (\d{1,7}): ")
_RANK_OPTION = re.compile(r"[ .]-{0,2}(?:global[_-]|world[_-])?rank[= ](\d{1,6})(?!\S)")
"""The rank in a process's command, where those of others differ: a rank of LoRA is the same for all."""
_THREAD = re.compile(r'^Thread (\S+) \(([a-z+]+)\)(?:: "([^"]{0,200})")?')
_FRAME = re.compile(r"^\s+(\S.{0,300}?) \(([^()]{1,500})\)$")
_FAULT_TIMEOUT = re.compile(r"^Timeout \(\d{1,4}:\d\d:\d\d(?:\.\d{1,6})?\)!$")
_FAULT_THREAD = re.compile(r"^Thread 0x[0-9a-f]{1,16}(?: \[[^\]]{0,64}\])? \(most recent call first\):$")
_FAULT_FRAME = re.compile(r'^\s+File "([^"]{1,500})", line (\d{1,9}) in (\S.{0,300})$')
_THREADING = re.compile(r"[/\\]threading\.py$|^threading\.py$")
_NOTED_RANK = re.compile(
    r"(?<![A-Za-z0-9])(?<!--)(?<!\s-)(?<!(?i:ocal)[ _.-])(?<!(?i:ode)[ _.-])(?<!(?i:roup)[ _.-])"
    r"(?<!(?i:chine)[ _.-])(?<!\b(?i:[tdpecms]p)[ _.-])(?<!(?i:lora)[ _.-])"
    r"(?:[Rr]ank|RANK)(?:[ =:#]{0,2}|[_-])(?P<rank>\d{1,7})(?![A-Za-z0-9])"
)
"""How people note above a dump, or behind its command, which rank it is of."""
_NOTED_PID = re.compile(r"(?:\bp(?:id|ID)|\bPID|\bpy-spy dump -p)[ =:]{1,2}(\d{2,7})\b")
_BEHIND_COMMAND = re.compile(r"\s(?:#|<-|←|\()")
_OF_A_DUMP = re.compile(r"(?i)\b(?:py-?spy|gdb|pids?|stacks?|dumps?)\b")
_BEGINS_A_DUMP = re.compile(r"(?i)^\W{0,3}(?:\w+ )?(?:py-?spy|gdb|pid|stacks?|dumps?)\b.{0,60}$")
_QUOTED_BLANK = re.compile(r"(?:[>|] ?){1,9}$")
_FENCE = re.compile(r"^(?:```|~~~|\W*$)")
_IS_HEADING = re.compile(
    r"^(?:[#=*$+>~%@|:<]|--)|:[\s*#=-]*$"
    r"|^[\[(]?(?:[Gg]lobal |[Ww]orld )?(?:[Rr]ank|RANK)(?:[ =:#]{0,2}|[_-])\d{1,7}(?: ?/ ?\d{1,7})?[\])]?"
    r"(?:$| \(| [-=*#]{2}|,? (?:on |at |@ ?)\S{1,64}$)"
)


@dataclass(slots=True)
class _OpenDump:
    """The dump of one process, while it is read."""

    head: Line
    who: Identity
    by_faulthandler: bool
    headings: list[Line] = field(default_factory=list)
    has_threads: bool = False
    of_main: bool = False
    wanted: bool = False
    gil: bool = False
    native: bool = False
    frames: list[StackFrame] = field(default_factory=list)
    touched: int = 0

    def read_frame(self, text: str) -> None:
        """Take in a frame of the thread that is read."""
        frame = _read_fault_frame(text) if self.by_faulthandler else _read_frame(text)
        if frame is not None and self.wanted and len(self.frames) < FRAMES:
            self.frames.append(frame)

    def begin_thread(self, *, wanted: bool, gil: bool = False, native: bool = False) -> None:
        """Begin the next thread."""
        self.has_threads, self.wanted, self.gil, self.native = True, wanted, gil, native

    def end_thread(self) -> Iterator[Event[ThreadStack]]:
        """The stack of the thread that was read; what Python's own threads run is none of the main one."""
        frames, self.frames, wanted = tuple(self.frames), [], self.wanted
        self.wanted = False
        in_main = not (self.by_faulthandler and frames and _THREADING.search(frames[-1].file))
        if not (wanted and frames and in_main):
            return
        native = self.native or (self.by_faulthandler and not is_library(frames[0]))
        stack = ThreadStack(frames, self.gil, native)
        doing = f"waits in {stack.collective}" if stack.collective else f"is in {frames[0].place}"
        whose = f"process {self.who.pid} " if self.who.pid is not None else "a process "
        yield Event.at(self.head, stack, who=self.who, text=whose + doing)


def _read_frame(text: str) -> StackFrame | None:
    match = _FRAME.match(text)
    if match is None:
        return None
    file, _, number = match[2].rpartition(":")
    line = whole_number(number) if file else None
    if line is None and " " in match[2]:
        return None
    return StackFrame(file, line, match[1]) if line is not None else StackFrame(match[2], 0, match[1])


def _read_fault_frame(text: str) -> StackFrame | None:
    match = _FAULT_FRAME.match(text)
    return StackFrame(match[1], int(match[2]), match[3]) if match is not None else None


class StackDumps:
    """Collects the stacks of dumps, line by line; those of several ranks may be mixed."""

    def __init__(self) -> None:
        self._open: dict[Identity, _OpenDump] = {}
        self._above: deque[Line] = deque(maxlen=HEADINGS)
        self._lines = 0
        self._ranks: dict[int, int] = {}
        self._first_command: Line | None = None

    def read(self, line: Line) -> Iterator[Event[ThreadStack]]:
        """The stacks that end before this line."""
        text, dump = line.text, None
        if text[:1] in (">", "|") and _QUOTED_BLANK.match(text):
            text = ""
        if self._open:
            dump = self._open.pop(line.who, None)
            if dump is not None:
                self._open[line.who], dump.touched = dump, self._lines
            else:
                self._lines += 1
                yield from self._close_passed(line)
        if dump is not None and (not text or text[0] in " \t"):
            dump.read_frame(text)
            return
        if not text.startswith(_BEGINS):
            if dump is not None:
                yield from self._read_other(line, dump)
            elif text:
                self._above.append(line)
            return
        if process := _PROCESS.match(text):
            yield from self._close(line.who)
            self._begin(line, whole_number(process[1], LARGEST_PID))
            self._read_command(line, int(process[1]))
        elif thread := _THREAD.match(text):
            yield from self._read_thread(line, dump, thread)
        elif _FAULT_TIMEOUT.match(text):
            yield from self._close(line.who)
            self._begin(line, None, by_faulthandler=True)
        elif dump is not None and dump.by_faulthandler and _FAULT_THREAD.match(text):
            yield from dump.end_thread()
            dump.who = dump.who if dump.has_threads else _whose_dump(dump, None)
            dump.begin_thread(wanted=True)
        else:
            yield from self._read_other(line, dump)

    def flush(self) -> Iterator[Event[ThreadStack] | Event[PidRoster]]:
        """The stacks that are open, and the ranks of at least two processes whose commands differ in them."""
        for who in list(self._open):
            yield from self._close(who)
        if self._first_command is not None and 1 < len(self._ranks) == len(set(self._ranks.values())):
            yield Event.at(self._first_command, PidRoster(tuple(self._ranks), tuple(self._ranks.values())))

    def _read_command(self, line: Line, pid: int) -> None:
        option = _RANK_OPTION.search(line.text)
        if option is not None and len(self._ranks) < MOST_OPEN:
            self._first_command = self._first_command or line
            self._ranks[pid] = int(option[1])

    def _read_other(self, line: Line, dump: _OpenDump | None) -> Iterator[Event[ThreadStack]]:
        """A line that is no part of a dump: a heading of the next one, or between a head and its threads."""
        self._above.append(line)
        if dump is None:
            return
        if not line.text.startswith("Python v"):
            dump.headings.append(line)
        if dump.has_threads or len(dump.headings) > HEADINGS:
            yield from self._close(line.who)

    def _read_thread(
        self, line: Line, dump: _OpenDump | None, thread: re.Match[str]
    ) -> Iterator[Event[ThreadStack]]:
        """The next thread of a dump, or the main thread of another one whose head was left out."""
        is_main, gil = thread[3] == "MainThread", "gil" in thread[2]
        if dump is None or dump.by_faulthandler or (is_main and dump.of_main):
            yield from self._close(line.who)
            dump = self._begin(line, whole_number(thread[1], LARGEST_PID)) if is_main else None
        if dump is None:
            return
        yield from dump.end_thread()
        if not dump.has_threads:
            dump.who = _whose_dump(dump, whole_number(thread[1], LARGEST_PID) if is_main else None)
        dump.of_main = dump.of_main or is_main
        wanted = gil or is_main or thread[3] is None
        dump.begin_thread(wanted=wanted, gil=gil, native="active" in thread[2] and not gil)

    def _begin(self, head: Line, pid: int | None, *, by_faulthandler: bool = False) -> _OpenDump | None:
        if len(self._open) >= MOST_OPEN:
            return None
        headings = [line for line in self._above if line.place.source == head.place.source]
        who = head.who.fill_from(Identity(pid=pid))
        dump = _OpenDump(head, who, by_faulthandler, headings, touched=self._lines)
        self._open[head.who] = dump
        self._above.clear()
        return dump

    def _close(self, who: Identity) -> Iterator[Event[ThreadStack]]:
        dump = self._open.pop(who, None)
        if dump is not None:
            yield from dump.end_thread()

    def _close_passed(self, line: Line) -> Iterator[Event[ThreadStack]]:
        """Close what others have printed past: only lines of speakers with names are mixed."""
        if line.text and line.who != NOBODY:
            yield from self._close(NOBODY)
        first = next(iter(self._open.items()), None)
        if first is not None and first[1].touched + GAP < self._lines:
            yield from self._close(first[0])


def _whose_dump(dump: _OpenDump, pid: int | None) -> Identity:
    """Whose a dump is: its process, and the rank that its head or the nearest heading notes."""
    who = dump.who.fill_from(Identity(pid=pid))
    behind = _BEHIND_COMMAND.search(dump.head.text)
    note = dump.head.text[behind.start() :] if behind is not None else ""
    if len(set(_NOTED_RANK.findall(note))) == 1:
        return rank_in_words(who, _NOTED_RANK, note)
    for line in reversed(dump.headings):
        if _FENCE.match(line.text):
            continue
        is_heading = _IS_HEADING.search(line.text) or _OF_A_DUMP.search(line.text)
        if line.level or len(line.text) > HEADING or not is_heading:
            break
        pids = {int(number) for number in _NOTED_PID.findall(line.text)}
        if len(pids) > 1 or (pids and who.pid is not None and who.pid not in pids):
            break  # of another dump, or of several
        who = who.fill_from(Identity(pid=next(iter(pids), None)))
        ranks = set(_NOTED_RANK.findall(line.text))
        if len(ranks) == 1:
            return rank_in_words(who, _NOTED_RANK, line.text)
        if ranks:
            break
        if who.rank is None and not who.labels and _BEGINS_A_DUMP.match(line.text):
            who = replace(who.fill_from(replace(line.who, pid=None)), labels=line.who.labels)
    return who
