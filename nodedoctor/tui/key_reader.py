"""Keys as a terminal sends them; an escape is told from the beginning of an arrow as soon as it can be."""

from __future__ import annotations

import contextlib
import os
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable
from itertools import chain
from select import select

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.message import Message

_LOOK = 0.1
"""Seconds after which it is looked whether to end; Textual's own."""
_TICK = 0.001
"""Seconds beyond the time of an escape, so that it is up."""
_MOST = 4096


def read_keys(
    file: int, is_leaving: Callable[[], bool], take: Callable[[Message], None], debug: bool = False
) -> None:
    """Read keys until it is time to leave, and what has come by then.

    Textual's own thread looks ten times a second whether the time of an escape is up, so that each one
    waits for 100 ms and more, whatever ESCDELAY says.
    """
    parser, decode = XTermParser(debug), getincrementaldecoder("utf-8")("replace").decode
    pending = leaving = False
    try:
        while not leaving:
            leaving, text = is_leaving(), ""
            if select([file], [], [], ESCAPE_DELAY + _TICK if pending else _LOOK)[0]:
                text = decode(os.read(file, _MOST))
            for event in chain(parser.feed(text) if text else (), parser.tick()):
                take(event)
            pending = text.endswith("\x1b")
    finally:
        with contextlib.suppress(EOFError, ParseError):
            deque(parser.feed(""), maxlen=0)
