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
    """Launchers say in one line who ended, and in one behind it with which code."""
    named: dict[str, Event[Any]] = {}
    joined = []
    for event in events:
        if isinstance(event.what, ProcessExit):
            before = named.get(event.place.source)
            if not event.what.told:
                named[event.place.source] = event
            elif before is not None and _is_anonymous(event.who) and not event.what.tasks:
                if event.place.offset - before.place.offset < CODE:
                    event = replace(event, who=before.who, what=replace(event.what, tasks=before.what.tasks))
                del named[event.place.source]
        joined.append(event)
    return joined


def _is_anonymous(who: Identity) -> bool:
    """True where nothing tells which process is meant."""
    return who.rank is None and who.pid is None and who.local_rank is None


def join_full_gpus(events: Iterable[Event[Any]]) -> list[Event[Any]]:
    """The message of a full GPU may be broken in front of the GPU that it names."""
    joined: list[Event[Any]] = []
    full: dict[str, int] = {}
    for event in events:
        source, at = event.place.source, full.get(event.place.source)
        if isinstance(event.what, GpuFull):
            full[source] = len(joined)
        elif event.what is Mark.OF_GPU and at is not None and joined[at].who.gpu is None:
            near = event.place.offset - joined[at].place.offset < MESSAGE
            gpu = event.who.gpu if near else None
            joined[at] = replace(joined[at], who=replace(joined[at].who, gpu=gpu))
        joined.append(event)
    return joined


def join_ray_tasks(events: Iterable[Event[Any]]) -> list[Event[Any]]:
    """Ray prints the exception of a task behind a line that names its process."""
    tasks: dict[str, Event[Any]] = {}
    printers: dict[str, int | None] = {}
    joined = []
    for event in events:
        source, task = event.place.source, tasks.get(event.place.source)
        if isinstance(event.what, TaskFailed):
            tasks[source] = event
        elif task is not None and isinstance(event.what, (ExceptionRaised, GpuFull, CutShort)):
            same_line = event.place.offset == task.place.offset
            itself = _speaks_for_itself(event.who, printers.get(source), task.what.teller)
            if same_line and not isinstance(event.what, CutShort):
                printers[source] = event.who.pid
            elif not itself:
                who = replace(event.who, pid=task.who.pid, host=task.who.host or event.who.host)
                event = replace(event, who=who, what=_with_task_error(event.what, task.what.error))
            if isinstance(event.what, ExceptionRaised) and not same_line:
                del tasks[source]
        joined.append(event)
    return joined


def _speaks_for_itself(who: Identity, printer: int | None, reporter: int | None) -> bool:
    """True for a process that is known, and is none of those that pass a task's exception on."""
    return who.rank is not None or who.pid not in (None, printer, reporter)


def _with_task_error(what: Any, error: str) -> Any:
    """A traceback that the log does not finish, of an exception that Ray names in front of it."""
    if not isinstance(what, CutShort) or not error:
        return what
    return replace(what, error=error, echo=is_secondary(ExceptionRaised(error, "")))
