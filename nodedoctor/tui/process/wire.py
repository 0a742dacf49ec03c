"""How the two processes of the terminal interface talk: pickles with their length in front.

Both ends are our own and forked from one another, so what comes is trusted.
"""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any

from nodedoctor.model import Observation
from nodedoctor.tui.state import State, empty_report

if TYPE_CHECKING:
    import asyncio

_LENGTH = struct.Struct("!I")


def packed(*message: Any) -> bytes:
    """A message as bytes."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


class Telling:
    """States as messages, each without what was sent before: observations can be megabytes."""

    def __init__(self) -> None:
        self.begun = False
        """Whether one was sent."""
        self._told: dict[str, Observation] = {}
        self._last: dict[str, Any] = {}
        self._empty = empty_report()

    def of(self, state: State) -> bytes:
        """The message for the next state."""
        self.begun = True
        fresh = {
            name: observation
            for name, observation in state.answers.items()
            if self._told.get(name) is not observation
        }
        self._told.update(fresh)
        last = self._last
        news = {key: value for key, value in state.report.items() if key not in last or last[key] != value}
        self._last = dict(state.report) if state.running else {}  # facts are megabytes, and no more will come
        return packed("state", State(self._empty, state.running, state.asking), news, fresh)


def refusal(message: bytes) -> str:
    """What the first message says when it is a whole one that refuses the run; "" for any other."""
    if len(message) < _LENGTH.size:
        return ""
    (length,) = _LENGTH.unpack_from(message)
    if len(message) < _LENGTH.size + length:
        return ""
    kind, *words = pickle.loads(message[_LENGTH.size : _LENGTH.size + length])
    return str(words[0]) if kind == "refused" else ""


async def receive(reader: asyncio.StreamReader) -> tuple[Any, ...]:
    """The next message; IncompleteReadError or ConnectionError when the other end is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    message: tuple[Any, ...] = pickle.loads(await reader.readexactly(length))
    return message
