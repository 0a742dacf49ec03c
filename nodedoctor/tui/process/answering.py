"""What the engine's process does once it has begun: it tells every state, and does what it is asked to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

from nodedoctor.engine.session import Session
from nodedoctor.start_up import STARTED_S, collect_from_now
from nodedoctor.tui.process.wire import Telling, packed, receive
from nodedoctor.tui.run_history import Begun, RunHistory
from nodedoctor.tui.state import State


def answer_all(session: Session, line: socket.socket, telling: Telling, started_run: Begun | None) -> None:
    """Run the checks, tell every state, do what is asked, until the line is closed: EOFError then."""
    asyncio.run(_answer_screen(session, line, telling, started_run))


async def _answer_screen(
    session: Session, line: socket.socket, telling: Telling, started_run: Begun | None
) -> None:
    asyncio.get_running_loop().call_later(STARTED_S, collect_from_now)
    rounds = RunHistory(session, started_run)
    rounds.start()
    reader, writer = await asyncio.open_unix_connection(sock=line)
    tasks = {
        asyncio.create_task(
            _send_states(
                rounds.states(is_reported=telling.begun and started_run is not None), writer, telling
            )
        ),
        asyncio.create_task(_obey_requests(rounds, reader, writer)),
    }
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await rounds.close()


async def _send_states(states: AsyncIterator[State], writer: asyncio.StreamWriter, telling: Telling) -> None:
    async for state in states:
        writer.write(telling.of(state))
        await writer.drain()


async def _obey_requests(
    rounds: RunHistory, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    while True:
        kind, *words = await receive(reader)
        if kind == "again":
            rounds.again(*words)
        elif kind == "recording":
            writer.write(packed("recording", await rounds.recording()))
