"""Python tracebacks: stack and exception, put together per process although their lines interleave."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from nodedoctor.record import record
from nodedoctor.triage.model import NOBODY, SERIOUS, Event, Line
from nodedoctor.triage.patterns.assertion import Assertion, assertion_of, is_heading, names_error
from nodedoctor.triage.patterns.handling import counts_tries, tells_what_is_next
from nodedoctor.triage.patterns.open_traceback import FRAME, OpenTraceback, is_head
from nodedoctor.triage.patterns.stacks import StackFrame, is_beside_job

STEPS_BEHIND = 3
"""Lines that count steps behind an open traceback, from which on the log does not end in it. Ours."""
RAISED = re.compile(
    r"^(?!L(?:ustre|Net)Error: )"
    r"((?:[A-Za-z_]\w*\.)*(?:(?:Base)?Exception|OutOfResources|[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|Failed|Timeout|Fault|Died"
    r"|Aborted|Iteration|Expired|NotFound|Denied|Refused|Unavailable|Invalid)))(?:\(\w+\))?"
    r"(?::\s?(.*))?$"
)
"""Lustre's clients in the kernel begin their lines in the same way."""
_QUALIFIED = re.compile(
    r"^((?:[A-Za-z_]\w*\.)+(?:[A-Z]\w*|error|timeout|gaierror|herror)|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+){1,8})(?::\s(.*))?$"
)
"""Behind a stack, a class with its module or of several words is an exception, whatever it is called."""
_THROWN = re.compile(r"^terminate called after throwing an instance of '([^']{1,200})'")
_WHAT = re.compile(r"^\s*what\(\):\s+(\S.*)$")
_SIGNAL_ERROR = re.compile(
    r"(?:\w+Error: )?KeyboardInterrupt\b|(?:\w+\.)*SignalException: Process \d+ got signal: "
    r"|FatalError: `[^`]{1,60}` is detected by the operating system"  # Paddle's handler of signals
)
"""Exceptions for signals that have lines of their own, behind or in front of them."""
_FAILED = re.compile(
    r"(?i)error|exception|traceback|fail|could(?: not|n't)|cannot|can't|unable|caught|raised|due to"
)
"""A warning that has to do with the traceback behind it; torchrun's about OMP_NUM_THREADS has not."""
_CONDA_ERROR = re.compile(r"CommandNotFoundError|Conda\w{0,40}Error|Environment(?:Name|Location)NotFound")
"""What conda prints when a script calls it: the script goes on (`conda/exceptions.py`)."""
_SET_APART = re.compile(r"; | -+>? |, (?=\w{2,20}ing\b(?! is\b| are\b))|[;,.]? \((?=[^()]{1,80}\)$)")
"""What sets a program's words apart from the message of an error in front of them."""
_AGAIN = "During handling of the above exception"
_RERAISED = re.compile(r"Caught \w+ in (?:DataLoader worker|replica|pin memory|\w+ thread)\b")
"""How torch raises an error of a worker or thread again, above its traceback (`torch/_utils.py`)."""
_ORIGINAL = "Original Traceback (most recent call last):"


@record
class ExceptionRaised:
    """An exception at the end of a traceback, or in a line alone.

    `later`: raised while an earlier one was handled, or raised again in another process.
    `logged`: the program's own logger printed it as an error, so something had caught it. `in_thread`: it
    ended a thread, and not the process. `caught`: its stack begins in a function of the program, which
    therefore caught and printed it; the interpreter's own begins at the module.
    """

    type: str
    message: str
    frames: tuple[StackFrame, ...] = ()
    later: bool = False
    logged: bool = False
    in_thread: bool = False
    caught: bool = False


@record
class CutShort:
    """A traceback that the end of the log cut before its exception.

    `error` is the name of the exception where Ray gave it in front, and `echo` whether such an exception only
    reports the end of another process.
    """

    frames: tuple[StackFrame, ...] = ()
    error: str = ""
    echo: bool = False


_IGNORED = re.compile(r"Exception ignored in|Error in atexit|(?:-{3} )?Logging error -{3}$")
"""Errors of a cleanup, and of a logger that could not write (`logging.Handler.handleError`): Python shows
them and goes on."""
_IN_THREAD = re.compile(r"Exception in thread \S")
"""How `threading.excepthook` begins: the thread ends, and its process goes on."""
_LEFT_MAIN = re.compile(r"An error has been caught in function '<module>', process '")
"""loguru's `catch` (loguru/_logger.py) around what the program itself called: nothing of it is left."""
_SENTENCE = re.compile(r"(?:\w\S* ){2,}\w\S*:$")
"""Words of the program in front of a traceback in one line: Python itself begins a line with it."""
_WARNS = re.compile(r"\bwarn|\braise\b")
"""Source at which a traceback ends in a warning: with `-W error` Python raises them."""


def _announced_manner(line: Line | None, head: Line | None = None) -> Assertion:
    """The manner that a line announces for the traceback behind it, which `head` begins.

    Python goes on after `__del__` and a logged warning.
    """
    if line is None or line.severity or line.text == _ORIGINAL or _LEFT_MAIN.search(line.text):
        return "plain"  # a library of C++ says nothing of a traceback of Python
    if _IGNORED.match(line.text):
        return "handled"
    leads = line.text.endswith(":") or (line.level in ("W", "I", "D") and counts_tries(line.text))
    leads = leads or (head is not None and _is_one_record(line, head))
    if not leads and _FAILED.search(line.text) is None:
        return "plain"
    how = assertion_of(line, len(line.text), len(line.text))
    if how == "warning" or (how == "handled" and leads):
        return how
    caught = how == "handled" or line.level in ("W", "I", "D") or is_heading(line.text)
    return "retold" if caught else "plain"


def _is_one_record(line: Line, head: Line) -> bool:
    """True where a logger put a line and a traceback into one record, with its time and severity."""
    return bool(head.level) and (line.level, line.time) == (head.level, head.time)


def _is_in_message(before: Line | None, head: Line) -> bool:
    """True for a traceback that begins behind words of the program in the same line."""
    return before is not None and before.place == head.place and _SENTENCE.match(before.text) is not None


def _is_about(announcement: str, error: str) -> bool:
    """True unless a line names another kind of error than the one behind it."""
    return not names_error(announcement) or error.rpartition(".")[2] in announcement


def _lone_announcement(before: Line | None, error: str) -> Assertion:
    """The manner that a line announces for an exception behind it that has no stack."""
    if before is None or not _is_about(before.text, error):
        return "plain"
    how = _announced_manner(before)
    return how if how in ("handled", "retold") else "plain"


def _lone_manner(line: Line, end: int) -> Assertion:
    """The manner of an exception in a line without a stack.

    torch puts a rank in front of what the interpreter prints of an error that nothing caught: its message
    may tell of what is skipped, ignored or expected, and only what is set apart behind it is the program's.
    """
    if line.who.rank is not None and not line.level and line.time is None:
        aside = _SET_APART.search(line.text, end)
        line = replace(line, text=line.text[:end] + (line.text[aside.start() :] if aside else ""))
    how = assertion_of(line, 0, end)
    return how if how in ("handled", "warning", "retold") else "plain"


def _without_markup(text: str) -> str:
    """A line without the marks of an issue or a chat: `**### ValueError: x**`."""
    return text.strip("`*#").lstrip() if text[:1] in "`*#" else text.strip("`")


ANNOUNCED_LINES = 12
"""Lines behind the announcement of an ignored error in which its traceback may begin, among others. Ours."""
MOST_MANNERS = 4096
"""Exceptions whose manner is remembered."""


class TracebackReader:
    """Collects open tracebacks per process; hands out the exception when its line comes."""

    def __init__(self) -> None:
        self._open: dict[str, OpenTraceback] = {}
        self._chained: set[str] = set()
        self._signalled: set[str] = set()
        self._manners: dict[str, Assertion] = {}
        self._ignored: Counter[str] = Counter()
        """Errors in cleanups that were announced: of their tracebacks the heads may have been left out."""
        self._ignored_at: dict[str, int] = {}
        self._lines = 0
        self._before: dict[str, tuple[Line, int]] = {}
        """The last line of each process, and its number."""
        self._last: Line | None = None
        self._ended: dict[str, int] = {}
        """The number of the line with each process's last exception."""
        self._announced: dict[str, tuple[Assertion, str]] = {}
        """What was announced of each process's last traceback: of all that are chained to it, too."""
        self._thrown: dict[str, str] = {}
        self._steps = 0

    def read(self, line: Line, *, signalled: bool) -> Iterator[tuple[ExceptionRaised, Assertion]]:
        """Exceptions that this line completes, with their manner.

        `signalled`: the line says by itself that a signal came, which is then no exception.
        """
        self._lines += 1
        before = self._line_in_front(line)
        self._before[line.key] = line, self._lines
        self._last = line
        yield from self._read(line, before, signalled)

    def _line_in_front(self, line: Line) -> Line | None:
        """The line of the same process in front of a line, which may announce it.

        Lines without a process are of one only where they are next to each other, and a line that says how
        the program went on after one error announces no other. Loggers put their prefix in front of the first
        line of a message only.
        """
        before, number = self._before.get(line.key, (None, 0))
        if line.who == NOBODY and number < self._lines - 1 and self._last is not None:
            before, number = self._last, self._lines - 1
        if before is None or (number < self._lines - 1 and line.who == NOBODY):
            return None
        follows = number == self._ended.get(line.key, -1) + 1 and tells_what_is_next(before.text)
        leads = before.level in SERIOUS or before.text.endswith(":")
        return None if follows and not leads else before

    def _read(
        self, line: Line, before: Line | None, signalled: bool
    ) -> Iterator[tuple[ExceptionRaised, Assertion]]:
        text = line.text
        if (open_trace := self._open.get(line.key)) is not None:
            text = text.removeprefix(open_trace.indent)
        if thrown := _THROWN.match(text):
            self._thrown[line.key] = thrown[1]
        elif (cpp_what := _WHAT.match(text)) and line.key in self._thrown:
            yield ExceptionRaised(self._thrown.pop(line.key), cpp_what[1]), "plain"
            return
        if is_head(text):
            later = line.key in self._chained
            after_error = before is not None and before.level in SERIOUS and before.time is not None
            threaded = before is not None and _IN_THREAD.match(before.text) is not None
            ignored = self._is_ignored(line)
            announcement = before.text if before is not None and not ignored else ""
            manner: Assertion = "handled" if ignored else _announced_manner(before, line)
            if later and not ignored:
                manner, announcement = self._announced.get(line.key, (manner, announcement))
            self._announced[line.key] = manner, announcement
            self._open[line.key] = OpenTraceback(
                line,
                later=later,
                manner=manner,
                steps=self._steps,
                after_error=after_error,
                in_message=_is_in_message(before, line),
                in_thread=threaded,
                announcement=announcement,
            )
            self._chained.discard(line.key)
            return
        if _AGAIN in text:
            self._chained.add(line.key)
        if _IGNORED.match(text):
            self._ignored[line.key] += 1
            self._ignored_at[line.key] = self._lines
        current = self._open.get(line.key)
        if current is not None and current.append(text):
            current.steps = self._steps
            return
        raised = (
            RAISED.match(_without_markup(text)) if current is not None or not text.startswith(" ") else None
        )
        if raised and current is None and _CONDA_ERROR.match(raised[1]):
            return
        if current is None and (frame := FRAME.match(text)) and frame[3]:  # its head was cut off
            how = "handled" if self._ignored[line.key] else _announced_manner(before)
            current = self._open[line.key] = OpenTraceback(line, manner=how, steps=self._steps)
            current.append(text)
            return
        if raised is None and current is not None and current.frames:
            raised = _QUALIFIED.match(_without_markup(text))
            if raised and raised[1].endswith("Warning") and not _WARNS.search(current.frames[-1].source):
                return  # printed into the middle of it
        if raised is None:
            if current is not None and text and not text[0].isspace():
                del self._open[line.key]
            return
        self._open.pop(line.key, None)
        self._ended[line.key] = self._lines
        ignored = self._is_ignored(line)
        self._ignored[line.key] -= self._ignored[line.key] > 0
        if signalled or _SIGNAL_ERROR.match(text):
            self._signalled.add(line.key)
            return
        if line.key in self._signalled and current is not None and current.is_of_handler:
            return  # the handler of the signal came into the middle of it
        self._signalled.discard(line.key)
        frames, later = (tuple(current.frames), current.later) if current else ((), False)
        aside = is_beside_job(frames)
        how = "plain"
        if current is None:
            how = "handled" if ignored else _lone_announcement(before, raised[1])
        elif _is_about(current.announcement, raised[1]):
            tells = current.caught and tells_what_is_next(current.announcement)
            how = "handled" if tells else current.manner
        all_warnings = current is not None and current.first.level == line.level == "W"  # every line of it
        if current is not None and current.first.level in ("I", "D") and not line.level:
            how = "handled"  # its program's logger printed it, so it was caught
        if all_warnings or line.severity in ("W", "I", "D"):
            how = "warning"
        elif current is None and how == "plain":
            how = _lone_manner(line, raised.end(1))
        how = self._first_manner(line, text, "handled" if aside else how)
        logged = (
            current is not None
            and (current.after_error or current.in_message or current.first.level in SERIOUS)
            and line.level not in SERIOUS
        )
        threaded = current is not None and current.in_thread
        caught = current is not None and current.caught
        message = (raised[2] or "").strip("` ")
        later = later or _RERAISED.match(message) is not None
        yield ExceptionRaised(raised[1], message, frames, later, logged, threaded, caught), how

    def _is_ignored(self, line: Line) -> bool:
        """True soon after an announced ignored error, until its traceback ends."""
        return self._ignored[line.key] > 0 and self._lines - self._ignored_at[line.key] <= ANNOUNCED_LINES

    def _first_manner(self, line: Line, text: str, how: Assertion) -> Assertion:
        """The manner of the first of equal lines, which Ray may repeat."""
        if line.repeated:
            return self._manners.get(text, how)
        if len(self._manners) < MOST_MANNERS:
            self._manners.setdefault(text, how)
        return how

    def flush(self) -> Iterator[Event[CutShort]]:
        """The tracebacks that are still open when the log ends."""
        for current in self._open.values():
            line, how = current.first, current.manner
            if self._steps - current.steps < STEPS_BEHIND:
                what = CutShort(tuple(current.frames))
                yield Event.at(line, what, manner=how)
        self._open.clear()

    def holds(self, line: Line) -> bool:
        """True for a line of a stack, which is source and no message."""
        return line.key in self._open and line.text[:1].isspace()

    def count_step(self) -> None:
        """A counter of steps was printed."""
        self._steps += 1
