"""The engine's process tells the same of a recording, whether it is judged at once or bit by bit."""

from __future__ import annotations

import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from nodedoctor.demo import folder

SERVE = """
import socket, sys
from pathlib import Path
from nodedoctor.engine.session import Request
from nodedoctor.tui.process import engine
engine.AT_ONCE = float(sys.argv[1])
replay = Path(sys.argv[3]) if sys.argv[3] else None
engine.serve(lambda: Request(replay=replay, tags=("fast",)), socket.socket(fileno=int(sys.argv[2])))
"""


def told(at_once: float, replay: str) -> Iterator[tuple[Any, ...]]:
    """The messages of an engine, until the first run has ended."""
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    words = [sys.executable, "-c", SERVE, str(at_once), str(theirs.fileno()), replay]
    with ours, subprocess.Popen(words, pass_fds=[theirs.fileno()]) as engine:
        theirs.close()
        with ours.makefile("rb") as messages:
            while True:
                (length,) = struct.unpack("!I", messages.read(4))
                message = pickle.loads(messages.read(length))
                yield message
                if message[0] == "state" and not message[1].running:
                    break
        ours.shutdown(socket.SHUT_RDWR)
        assert engine.wait(30) == 0


@pytest.mark.slow
@pytest.mark.parametrize("demo", ["healthy", "nvlinks-down"])
def test_judged_at_once_or_bit_by_bit_it_is_the_same_report(demo: str) -> None:
    reports = []
    for at_once in (60.0, 0.0):
        kind, *_ = next(messages := told(at_once, str(folder(demo))))
        assert kind == "about"
        report: dict[str, Any] = {}
        states = [(state, news) for _, state, news, _ in messages]
        for _, news in states:
            report.update(news)
        assert len(states) == 1 or not at_once
        reports.append({key: value for key, value in report.items() if key not in ("seconds", "started")})
    assert reports[0] == reports[1]


@pytest.mark.slow
def test_of_a_live_node_the_first_state_says_what_will_be_asked() -> None:
    (kind, about), (_, first, news, _), *_, (_, last, _, _) = told(0.3, "")
    assert kind == "about"
    assert set(first.running) == set(about.checks) == {result["check"] for result in news["results"]}
    assert not last.running
