"""Exceptions that wait for the lines behind them: these tell whether the process handled them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nodedoctor.triage.model import SERIOUS, Event, Line
from nodedoctor.triage.patterns.assertion import is_warning, names_error
from nodedoctor.triage.patterns.handling import ENDS, tells_outcome, tells_what_is_next
from nodedoctor.triage.patterns.ray import ActorDied
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.watchdog import AT_EXIT

BEHIND = 2
"""Lines behind an exception in which its handler may say so."""

BRIEF = 3
"""Words of a line that says how the program went on and not after what: a longer one is of something else."""

_OUTCOME = re.compile(r"\W{0,3}-> [a-z]+ [a-z]")
"""An arrow and words: right behind an error a program says so what came of it."""
_WORD = re.compile(r"[A-Za-z]{4,}|[A-Z]?[a-z]{3,}|OOM\b")
_NAME = re.compile(r"[\w-]{4,}")
_OUT_OF_MEMORY = re.compile(r"(?i)out[ -]?of[ -]?memory(?:error)?")
_SMALL = frozenset((
    "error", "errors", "warning", "exception", "runtime", "failed", "failure", "main", "train", "file",
    "line", "this", "with", "from", "that", "have", "none", "could", "back", "falling", "retry", "retrying",
    "attempt", "entering", "loop", "using", "torch", "python", "site", "packages", "module", "true", "false",
    "after", "already", "been", "before", "errno", "has", "import", "imported", "new", "not", "status", "was",
    "the", "and", "for", "its", "next", "anyway", "now", "will", "then", "there", "task", "tasks", "retries",
    "retried", "retryable", "remaining", "left", "more", "still", "again", "tries", "succeeded",
))  # fmt: skip
"""Words of any message."""


class OpenErrors:
    """Exceptions that wait for the lines behind them: these tell whether the process handled them."""

    def __init__(self) -> None:
        self._events: list[Event[Any]] = []
        self._key = ""
        self._of_raylet = False
        self._lines_left = 0
        self._announced: tuple[str, str] = "", ""
        """Whose line said last that something failed, and its text: it may name what, as none behind does."""

    def hold(self, line: Line, events: list[Event[Any]]) -> None:
        """Hold the events of a line that ends a traceback, or tells of a task's end that Ray may repeat."""
        self._events, self._key, self._lines_left = events, line.key, BEHIND
        self._of_raylet = any(map(is_task_end, events))

    def read(self, line: Line) -> Iterator[Event[Any]]:
        """The held events, when this line decides about them."""
        if not self._events:
            if line.level in SERIOUS:
                self._announced = line.key, line.text
            return
        if line.key == self._key and line.time is not None and AT_EXIT in line.text:
            self._events = [
                event if event.time is not None else replace(event, time=line.time) for event in self._events
            ]
        if line.key == self._key and line.text.strip() and not line.text.startswith("Traceback (most recent"):
            self._events = [_with_message(event, line.text.strip()) for event in self._events]
        if (line.key == self._key or self._of_raylet) and self._is_handler(line.text):
            self._events = [replace(event, manner="handled") for event in self._events]
            self._lines_left = 0
        self._lines_left -= 1
        if self._lines_left <= 0 or line.text.startswith("Traceback (most recent"):
            yield from self.release()

    def _is_handler(self, text: str) -> bool:
        """True for a line that says how the program went on after the held exception."""
        if is_warning(text, len(text)):
            return False
        if self._lines_left == BEHIND and _OUTCOME.match(text) and not ENDS.search(text):
            return True
        caught = any(isinstance(event.what, ExceptionRaised) and event.what.caught for event in self._events)
        if caught and tells_what_is_next(text) and not names_error(text):
            return True
        if not tells_outcome(text):
            return False
        topic = _topic_words(text)
        if len(topic) <= BRIEF and not names_error(text) and not any(map(_is_of_interpreter, self._events)):
            return True
        key, announced = self._announced
        if key == self._key and not _numbered_names(text).isdisjoint(_numbered_names(announced)):
            return True
        return any(topic & _topic_words(_describe_exception(event)) for event in self._events)

    def release(self) -> Iterator[Event[Any]]:
        """All held events."""
        yield from self._events
        self._events = []


def _is_of_interpreter(event: Event[Any]) -> bool:
    """True for a stack from the program's first line on, as Python prints it of what nothing caught.

    A program may print such a one, too: then its next line is about the same.
    """
    what = event.what
    return isinstance(what, ExceptionRaised) and bool(what.frames) and what.frames[0].function == "<module>"


def is_task_end(event: Event[Any]) -> bool:
    """True for the end of one of Ray's workers, of which the driver says whether its task was run again."""
    return isinstance(event.what, ActorDied) and event.what.of_task


def _with_message(event: Event[Any], text: str) -> Event[Any]:
    """The event with this line as its message, where that begins behind a line break.

    Python puts a colon behind the name of an exception only where a message follows.
    """
    what = event.what
    waits = isinstance(what, ExceptionRaised) and not what.message and event.text.rstrip().endswith(":")
    return replace(event, what=replace(what, message=text)) if waits else event


def _describe_exception(event: Event[Any]) -> str:
    """An exception in its own words, and where it was raised."""
    if not isinstance(event.what, ExceptionRaised):
        return event.text
    frames = event.what.frames[-3:]
    places = (f"{frame.name.partition('.')[0]} {frame.function} {frame.source}" for frame in frames)
    return " ".join((event.what.type, event.what.message, *places))


def _numbered_names(text: str) -> set[str]:
    """The names in a text that have letters and numbers, as those of trials, tasks and requests."""
    names = _NAME.findall(text)
    return {name for name in names if re.search(r"\d", name) and re.search("[A-Za-z]", name)}


def _topic_words(text: str) -> set[str]:
    """The words of a text that tell what it is about."""
    text = _OUT_OF_MEMORY.sub(" OOM memory ", text)
    return {word.lower() for word in _WORD.findall(text)} - _SMALL
