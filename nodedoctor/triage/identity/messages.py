"""Messages of several lines, of which only one names the process that they are about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event, Identity
from nodedoctor.triage.patterns.cuda import GpuFull
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.ray import TaskFailed
from nodedoctor.triage.patterns.secondary_errors import is_secondary
from nodedoctor.triage.patterns.trace import CutShort, ExceptionRaised

CODE = 400
"""Bytes from a line that names a process that ended to the one with its code; MPICH has one between."""
MESSAGE = 200
"""Bytes between the parts of one message that was broken into lines, at most."""


def join_exit_codes(events: Iterable[Event[Any]]) -> list[Event[Any]]:
    """Give an exit the code that its launcher prints in a later line."""
    exits_without_code: dict[str, Event[Any]] = {}
    new_events = []
    for event in events:
        if isinstance(event.what, ProcessExit):
            before = exits_without_code.get(event.place.source)
            if not event.what.has_code:
                exits_without_code[event.place.source] = event
            elif before is not None and _is_anonymous(event.who) and not event.what.tasks:
                if event.place.offset - before.place.offset < CODE:
                    event = replace(event, who=before.who, what=replace(event.what, tasks=before.what.tasks))
                del exits_without_code[event.place.source]
        new_events.append(event)
    return new_events


def _is_anonymous(who: Identity) -> bool:
    """True where the identity names no process."""
    return who.rank is None and who.pid is None and who.local_rank is None


def join_full_gpus(events: Iterable[Event[Any]]) -> list[Event[Any]]:
    """Give a full GPU its number, where the message was broken in front of it."""
    new_events: list[Event[Any]] = []
    full: dict[str, int] = {}
    for event in events:
        source, at = event.place.source, full.get(event.place.source)
        if isinstance(event.what, GpuFull):
            full[source] = len(new_events)
        elif event.what is Mark.OF_GPU and at is not None and new_events[at].who.gpu is None:
            near = event.place.offset - new_events[at].place.offset < MESSAGE
            gpu = event.who.gpu if near else None
            new_events[at] = replace(new_events[at], who=replace(new_events[at].who, gpu=gpu))
        new_events.append(event)
    return new_events


def join_ray_tasks(events: Iterable[Event[Any]]) -> list[Event[Any]]:
    """Give the exception of a Ray task its process, which an earlier line names."""
    tasks: dict[str, Event[Any]] = {}
    printers: dict[str, int | None] = {}
    new_events = []
    for event in events:
        source, task = event.place.source, tasks.get(event.place.source)
        if isinstance(event.what, TaskFailed):
            tasks[source] = event
        elif task is not None and isinstance(event.what, (ExceptionRaised, GpuFull, CutShort)):
            same_line = event.place.offset == task.place.offset
            itself = _is_other_process(event.who, printers.get(source), task.what.printer)
            if same_line and not isinstance(event.what, CutShort):
                printers[source] = event.who.pid
            elif not itself:
                who = replace(event.who, pid=task.who.pid, host=task.who.host or event.who.host)
                event = replace(event, who=who, what=_with_task_error(event.what, task.what.error))
            if isinstance(event.what, ExceptionRaised) and not same_line:
                del tasks[source]
        new_events.append(event)
    return new_events


def _is_other_process(who: Identity, printer: int | None, reporter: int | None) -> bool:
    """True for a known process that passes on no exception of a task."""
    return who.rank is not None or who.pid not in (None, printer, reporter)


def _with_task_error(what: Any, error: str) -> Any:
    """A cut traceback with the exception that Ray named in front of it."""
    if not isinstance(what, CutShort) or not error:
        return what
    return replace(what, error=error, echo=is_secondary(ExceptionRaised(error, "")))
