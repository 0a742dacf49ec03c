"""Textual's driver, which writes no row that is shown already, and knows an escape and the end at once."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import termios
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable
from itertools import chain, groupby
from select import select
from typing import Any

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

_PIECE = re.compile(
    r"\x1b\[(\d+);\d+H((?:\x1b\[[\d;]*m|\x1b\]8;[^\x07\x1b]*\x1b\\|[^\x00-\x1f\x7f])*)(?:\r?\n)?"
)
"""A place, then text in its styles and links, to the end of the row at most: what Textual draws with."""
_HARMLESS = re.compile(
    r"(?:\x1b\[\?(?!1049|47|1047|3h|3l|6h|6l|7h|7l)\d+[hl]|\x1b\](?:52|0|2);[^\x1b\x07]*\x07)+"
)
"""Modes that change no cell, the clipboard and the title."""


class ShownRows:
    """What was written last in each row of the terminal: Textual draws most rows of a new screen twice."""

    def __init__(self) -> None:
        self._rows: dict[str, str] = {}

    def forget(self) -> None:
        """Others may have written on the terminal: nothing is known of it."""
        self._rows.clear()

    def drop_repeats(self, data: str) -> str:
        """The data without what its rows show already; anything that is no drawing makes all rows unknown."""
        pieces = list(_PIECE.finditer(data))
        if "".join(piece[0] for piece in pieces) != data:
            if not _HARMLESS.fullmatch(data):
                self.forget()
            return data
        output = []
        for row, group in groupby(pieces, key=lambda piece: piece[1]):
            together = list(group)
            text = "".join(piece[0] for piece in together)
            if not any(piece[2] for piece in together):
                output.append(text)  # the cursor alone
            elif self._rows.get(row) != text:
                self._rows[row] = text
                output.append(text)
        return "".join(output)


class NodeDoctorDriver(LinuxDriver):
    """Textual's own driver, which repeats no row, tells escape at once and is not waited for at the end."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self._shown = ShownRows()
        self._shown_at = (0, 0)
        self.leaving = False

    def write(self, data: str) -> None:
        """Write to the terminal; one that has another size since cut or folded what it showed."""
        size = self._get_terminal_size()
        if size != self._shown_at:
            self.forget()
            self._shown_at = size
        if data := self._shown.drop_repeats(data):
            super().write(data)

    def forget(self) -> None:
        """Write the next picture as a whole."""
        self._shown.forget()

    def run_input_thread(self) -> None:
        """Read keys."""
        read_keys(self.fileno, self.exit_event.is_set, self.process_message, self._debug)

    def disable_input(self) -> None:
        """Read no more keys. On leaving the thread that reads them is not waited for: it notices late."""
        if not self.leaving:
            super().disable_input()
        elif not self.exit_event.is_set():
            signal.signal(signal.SIGWINCH, signal.SIG_DFL)
            self.exit_event.set()
            with contextlib.suppress(termios.error):
                termios.tcflush(self.fileno, termios.TCIFLUSH)


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
