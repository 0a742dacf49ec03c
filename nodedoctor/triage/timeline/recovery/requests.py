"""Errors that a server logs of one request: the server itself goes on."""

from __future__ import annotations

from typing import Any

from nodedoctor.triage.marks import Mark, kind_of
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.progress import SettingMentioned
from nodedoctor.triage.patterns.step_counters import counter_owner
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.unclassified import UnclassifiedError


def drop_refused_requests(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without the errors of requests whose client the server answered to be at fault.

    Handlers log the exception and then answer; what uvicorn catches it logs behind the answer.
    """
    rest: list[Event[Any]] = []
    refused: dict[str, bool] = {}
    """Servers of which nothing came behind a refusal but, where True, the head of its exception."""
    for event in events:
        what, owner = event.what, counter_owner(event.place, event.who)
        if owner in refused and kind_of(what) in _LOGGED and not isinstance(what, SettingMentioned):
            head_seen = refused.pop(owner)
            if what is Mark.UNREAD_TROUBLE and _BEHIND_ANSWER in event.text:
                refused[owner] = True
                continue
            if head_seen:
                if not isinstance(what, ExceptionRaised):
                    refused[owner] = True
                continue
        if what is Mark.REQUEST_REFUSED:
            begin = len(rest)
            while begin and rest[begin - 1].kind in _LOGGED and _is_server_line(rest[begin - 1], owner):
                begin -= 1
            rest[begin:] = [setting for setting in rest[begin:] if isinstance(setting.what, SettingMentioned)]
            refused[owner] = False
        rest.append(event)
    return rest


_BEHIND_ANSWER = "Exception in ASGI application"
"""uvicorn's word for what a request's handler raised (`uvicorn/protocols/http/httptools_impl.py`)."""
_LOGGED = (Mark.UNREAD_TROUBLE, ExceptionRaised, UnclassifiedError, SettingMentioned)


def _is_server_line(event: Event[Any], name: str) -> bool:
    """True for what this process logs: with a logger's mark or a time."""
    bare = isinstance(event.what, ExceptionRaised) and not event.what.logged and event.time is None
    return counter_owner(event.place, event.who) == name and not bare


def is_of_request(event: Event[Any], series: str) -> bool:
    """True for what a server logs of one request: other processes are not concerned."""
    same_server = series.startswith(f"{counter_owner(event.place, event.who)}|")
    logged = event.what is Mark.UNREAD_TROUBLE or (
        isinstance(event.what, ExceptionRaised) and event.what.logged
    )
    return same_server and (event.who.pid is not None or logged)
