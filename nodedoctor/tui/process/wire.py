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


async def receive(reader: asyncio.StreamReader) -> tuple[Any, ...]:
    """The next message; IncompleteReadError or ConnectionError when the other end is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    message: tuple[Any, ...] = pickle.loads(await reader.readexactly(length))
    return message
