"""Keys from a terminal: none is lost, and an escape is known when its time is up."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import tuidriver  # noqa: F401  its settings come before Textual
from textual import events
from textual.constants import ESCAPE_DELAY
from textual.message import Message

from nodedoctor.tui.driver import read_keys


@contextmanager
def reading() -> Iterator[tuple[int, list[Message]]]:
    """Where to type, and what has been read."""
    end, typed = os.pipe()
    taken: list[Message] = []
    leave = threading.Event()
    thread = threading.Thread(target=read_keys, args=(end, leave.is_set, taken.append))
    thread.start()
    try:
        yield typed, taken
    finally:
        leave.set()
        thread.join(30)
        assert not thread.is_alive()
        os.close(typed)
        os.close(end)


def wait_for(taken: list[Message], count: int) -> list[str]:
    ends = time.monotonic() + 30
    while len(taken) < count:
        assert time.monotonic() < ends, taken
        time.sleep(0.001)
    return [event.key for event in taken if isinstance(event, events.Key)]


def test_an_escape_is_one_before_the_next_look_and_an_arrow_is_none():
    """The fastest of some: other work on the machine may delay each of them."""
    fastest = 60.0
    with reading() as (typed, taken):
        for number in range(1, 11):
            began = time.monotonic()
            os.write(typed, b"\x1b")
            assert wait_for(taken, number)[-1] == "escape"
            fastest = min(fastest, time.monotonic() - began)
        os.write(typed, b"\x1b[A\x1bOB")
        assert wait_for(taken, 12)[-2:] == ["up", "down"]
    assert ESCAPE_DELAY <= fastest < ESCAPE_DELAY + 0.07


@pytest.mark.parametrize("cut", range(1, 6))
def test_what_comes_in_pieces_is_whole(cut: int):
    said = "j\u6f22k".encode()
    with reading() as (typed, taken):
        for piece in (said[:cut], said[cut:]):
            os.write(typed, piece)
            time.sleep(0.01)
        assert len(wait_for(taken, 3)) == 3


def test_what_was_typed_before_leaving_is_read():
    end, typed = os.pipe()
    os.write(typed, b"q")
    taken: list[Message] = []
    read_keys(end, lambda: True, taken.append)
    assert [event.key for event in taken if isinstance(event, events.Key)] == ["q"]
    os.close(end)
    os.close(typed)
