"""The engine's process: it loads checks and starts probes while the other one imports Textual.

On two cores that takes a third off the time to the first line on the screen, and whatever reading and judging
costs, the keys never wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

from nodedoctor.engine.session import Request, Session
from nodedoctor.errors import NodeDoctorError
from nodedoctor.model import Observation
from nodedoctor.start_up import STARTED_S, collect_from_now
from nodedoctor.tui.process.wire import packed, receive
from nodedoctor.tui.run_history import RunHistory
from nodedoctor.tui.state import State, empty_report

_EMPTY = empty_report()


def serve(make_request: Callable[[], Request], line: socket.socket) -> NoReturn:
    """The life of this process. It has no terminal: what it prints would land between the lines."""
    try:
        os.setsid()  # a terminal that hangs up must not end us before our children
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        asyncio.run(_answer(Session(make_request()), line))
    except NodeDoctorError as error:
        line.sendall(packed("refused", str(error)))
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # nobody listens any more
    except BaseException:
        with contextlib.suppress(OSError):
            line.sendall(packed("crashed", traceback.format_exc()))
    os._exit(0)


async def _answer(session: Session, line: socket.socket) -> None:
    """Run the checks, tell every state, do what is asked, until the line is closed."""
    asyncio.get_running_loop().call_later(STARTED_S, collect_from_now)
    rounds = RunHistory(session)
    rounds.start()
    reader, writer = await asyncio.open_unix_connection(sock=line)
    writer.write(packed("about", rounds.about))
    tasks = {
        asyncio.create_task(_tell(rounds.states(), writer)),
        asyncio.create_task(_obey(rounds, reader, writer)),
    }
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await rounds.close()


async def _tell(states: AsyncIterator[State], writer: asyncio.StreamWriter) -> None:
    """Send every state, without what was sent before: observations can be megabytes."""
    told: dict[str, Observation] = {}
    last: dict[str, Any] = {}
    async for state in states:
        fresh = {name: seen for name, seen in state.answers.items() if told.get(name) is not seen}
        told.update(fresh)
        news = {key: value for key, value in state.report.items() if key not in last or last[key] != value}
        last = dict(state.report) if state.running else {}  # facts are megabytes, and no more will come
        writer.write(packed("state", State(_EMPTY, state.running, state.asking), news, fresh))
        await writer.drain()


async def _obey(rounds: RunHistory, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        kind, *words = await receive(reader)
        if kind == "again":
            rounds.again(*words)
        else:
            writer.write(packed("recording", await rounds.recording()))
