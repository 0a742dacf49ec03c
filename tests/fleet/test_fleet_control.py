"""Questions to a cluster's commands: answered, refused, not there, never answered."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nodedoctor
from nodedoctor.fleet.transports.control import CommandAnswer, ask


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(text: str) -> None:
        (tmp_path / "ask-it").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "ask-it").chmod(0o755)

    return write


def answer(*words: str, timeout: float = 20.0) -> CommandAnswer:
    return asyncio.run(ask("ask-it", *words, timeout=timeout))


def test_what_it_said_and_how_it_ended(script):
    script('echo "$@"; [ -t 1 ] && echo terminal; echo first >&2; echo why >&2; exit 3')
    said = answer("-p", "a b")
    assert (said.rc, said.text, said.complaint) == (3, "-p a b\n", "why")


def test_one_that_is_not_there_or_cannot_run(script, tmp_path):
    assert answer().complaint == "ask-it is not on PATH"
    script("exit 0")
    (tmp_path / "ask-it").chmod(0o644)
    assert answer().rc is None


def test_bytes_that_are_no_text_are_no_fault(script):
    script("printf '\\377\\n'")
    assert answer().text == "\ufffd\n"


def test_a_hang_costs_a_message_and_not_the_run(script):
    """Not even when it ignores being asked to end: the process that asked must be able to exit."""
    script("trap '' TERM INT; sleep 60 & wait; sleep 60")
    root = str(Path(nodedoctor.__file__).parent.parent)
    code = (
        f"import asyncio, sys; sys.path[:0] = [{root!r}];"
        "from nodedoctor.fleet.transports.control import ask;"
        "print(asyncio.run(ask('ask-it', timeout=0.5)).complaint)"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.stdout == "ask-it gave no answer within 0.5 s\n", done.stderr
    assert not done.stderr
    assert time.monotonic() - began < 30
