"""The engine's process: it loads checks and starts probes while the other one imports Textual.

On two cores that takes a third off the time to the first line on the screen, and whatever reading and judging
costs, the keys never wait for it. A recording is judged before anything else is imported here: its results
are the first picture; of a live node that is what will be asked.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
import traceback
from collections.abc import AsyncIterator, Callable
from typing import NoReturn

from nodedoctor.engine.pending import run_sync
from nodedoctor.engine.session import Request, Session
from nodedoctor.errors import NodeDoctorError
from nodedoctor.model import Result
from nodedoctor.record import replace
from nodedoctor.start_up import import_asyncio
from nodedoctor.tui.process.wire import Telling, packed
from nodedoctor.tui.state import EngineInfo, State, Waiting

CORES = 4
"""The screen, this process, the one that forks probes and the first probes are four: with fewer cores a third
of the time to the first picture was waiting for one."""
SHOWN_S = 0.3
"""Seconds that the first picture may take before probes are started in any case (chosen by us)."""
AT_ONCE = 0.3  # seconds that a recorded node may take before it is worth saying how far it is


def serve(make_request: Callable[[], Request], line: socket.socket) -> NoReturn:
    """The life of this process. It has no terminal: what it prints would land between the lines."""
    try:
        os.setsid()  # a terminal that hangs up must not end us before our children
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        _serve_request(make_request(), line)
    except NodeDoctorError as error:
        line.sendall(packed("refused", str(error)))
    except (ConnectionError, EOFError):
        pass  # the screen has ended
    except BaseException:
        with contextlib.suppress(OSError):
            line.sendall(packed("crashed", traceback.format_exc()))
    os._exit(0)


def _serve_request(request: Request, line: socket.socket) -> None:
    telling, started_run = Telling(), None
    session = Session(request)  # starts no fork server yet: the screen's imports want the other core
    line.sendall(packed("about", EngineInfo.of(session)))  # so it can be run: the screen waits for that
    if not request.replay:
        waiting = {check.id: Waiting() for check in session.checks}
        line.sendall(telling.of(replace(State.of(session.nothing_yet()), running=waiting)))
    else:
        diagnosis = session.diagnosis()
        started_run = diagnosis, diagnosis.results()
        if _judge_briefly(started_run[1]):
            line.sendall(telling.of(State.of(diagnosis.report())))
    import_asyncio()
    from nodedoctor.tui.process.answering import answer_all

    if not request.replay and len(os.sched_getaffinity(0)) < CORES:
        select.select([line], [], [], SHOWN_S)  # "shown", the first thing that it says
    answer_all(session, line, telling, started_run)


def _judge_briefly(results: AsyncIterator[Result]) -> bool:
    """Judge for as long as a person does not notice; whether that was all."""
    ends = time.monotonic() + AT_ONCE
    while time.monotonic() < ends:
        try:
            run_sync(results.__anext__())  # type: ignore[arg-type]  # of a generator it is a coroutine
        except StopAsyncIteration:
            return True
    return False
