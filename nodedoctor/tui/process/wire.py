"""How the two processes of the terminal interface talk: pickles with their length in front.

Both ends are our own and forked from one another, so what comes is trusted.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from typing import Any

_LENGTH = struct.Struct("!I")


def packed(*message: Any) -> bytes:
    """A message as bytes."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


def refusal(begun: bytes) -> str:
    """What the first message says when it is a whole one that refuses the run; "" for any other."""
    if len(begun) < _LENGTH.size:
        return ""
    (length,) = _LENGTH.unpack_from(begun)
    if len(begun) < _LENGTH.size + length:
        return ""
    kind, *words = pickle.loads(begun[_LENGTH.size : _LENGTH.size + length])
    return str(words[0]) if kind == "refused" else ""


async def receive(reader: asyncio.StreamReader) -> tuple[Any, ...]:
    """The next message; IncompleteReadError or ConnectionError when the other end is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    message: tuple[Any, ...] = pickle.loads(await reader.readexactly(length))
    return message
