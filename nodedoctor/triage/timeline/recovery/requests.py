"""What a server logs of one request: its others go on, and a client's fault is no failure of the server."""

from __future__ import annotations

from typing import Any

from nodedoctor.triage.marks import Mark, kind_of
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.counters import counter_owner
from nodedoctor.triage.patterns.progress import SettingMentioned
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.unclassified import UnclassifiedError


def drop_refused_requests(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without the errors of requests whose client the server answered to be at fault.

    Handlers log the exception and then answer; what uvicorn catches it logs behind the answer.
    """
    kept: list[Event[Any]] = []
    refused: dict[str, bool] = {}
    """Servers of which nothing came behind a refusal but, where True, the head of its exception."""
    for event in events:
        what, own = event.what, counter_owner(event.place, event.who)
        if own in refused and kind_of(what) in _LOGGED and not isinstance(what, SettingMentioned):
            told = refused.pop(own)
            if what is Mark.UNREAD_TROUBLE and _BEHIND_ANSWER in event.text:
                refused[own] = True
                continue
            if told:
                if not isinstance(what, ExceptionRaised):
                    refused[own] = True
                continue
        if what is Mark.REQUEST_REFUSED:
            begin = len(kept)
            while begin and kept[begin - 1].kind in _LOGGED and _is_server_line(kept[begin - 1], own):
                begin -= 1
            kept[begin:] = [other for other in kept[begin:] if isinstance(other.what, SettingMentioned)]
            refused[own] = False
        kept.append(event)
    return kept


_BEHIND_ANSWER = "Exception in ASGI application"
"""uvicorn's word for what a request's handler raised (`uvicorn/protocols/http/httptools_impl.py`)."""
_LOGGED = (Mark.UNREAD_TROUBLE, ExceptionRaised, UnclassifiedError, SettingMentioned)


def _is_server_line(event: Event[Any], name: str) -> bool:
    """True for what this process logs: the exception that ends one has neither a logger's mark nor a time."""
    bare = isinstance(event.what, ExceptionRaised) and not event.what.logged and event.time is None
    return counter_owner(event.place, event.who) == name and not bare


def of_a_request(event: Event[Any], series: str) -> bool:
    """True for what a server logs of one request: its others go on, which says nothing of other processes."""
    same = series.startswith(f"{counter_owner(event.place, event.who)}|")
    logged = event.what is Mark.UNREAD_TROUBLE or (
        isinstance(event.what, ExceptionRaised) and event.what.logged
    )
    return same and (event.who.pid is not None or logged)
