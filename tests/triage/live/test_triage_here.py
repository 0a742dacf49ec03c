"""This machine is looked at when the logs evidently come from it, and only then."""

from __future__ import annotations

import datetime
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from say import caught, elastic

from nodedoctor.triage.cli import parser
from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.lines.times import year_seconds
from nodedoctor.triage.live import this_machine
from nodedoctor.triage.model import Event, Identity, Place
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.timeline.build import build_timeline

OURS = short_host(socket.gethostname())
named = pytest.mark.skipif(OURS in ("", "localhost"), reason="this machine has no name of its own")
NOW = datetime.datetime.now(datetime.timezone.utc)


def ended(host: str | None, ago: float | None = 60.0) -> Event[Any]:
    """A process's end on a host, so many seconds before now."""
    then = NOW - datetime.timedelta(seconds=ago or 0)
    when = year_seconds(then.month, then.day, then.hour, then.minute, then.second, None)
    place = Place("train.log", 0)
    return Event(
        ProcessExit(-9), place, Identity(rank=1, host=host), when if ago is not None else None, "exitcode: -9"
    )


@named
def test_the_name_of_this_machine() -> None:
    assert (
        this_machine.evidence_for_machine(build_timeline([ended(OURS)]), []) == f"the logs name it ({OURS})"
    )


@pytest.mark.parametrize("host", ["node-7", "10.0.0.1", "localhost", None])
def test_other_names_and_none(host: str | None) -> None:
    assert this_machine.evidence_for_machine(build_timeline([ended(host)]), []) == ""


@named
def test_one_of_several_hosts() -> None:
    assert OURS in this_machine.evidence_for_machine(build_timeline([ended("node-7"), ended(OURS)]), [])


@named
def test_an_old_log_says_nothing_about_this_machine_now() -> None:
    assert this_machine.evidence_for_machine(build_timeline([ended(OURS, ago=9 * 86400.0)]), []) == ""


def test_a_file_that_a_process_here_writes(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    with log.open("wb") as out:
        writer = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=out)
    try:
        assert str(writer.pid) in this_machine.evidence_for_machine(build_timeline([ended(None)]), [str(log)])
        assert this_machine.evidence_for_machine(build_timeline([ended("node-7")]), [str(log)]) == ""
        old = time.time() - 9 * 86400
        os.utime(log, (old, old))
        assert this_machine.evidence_for_machine(build_timeline([ended(None, ago=None)]), [str(log)]) == ""
    finally:
        writer.communicate(b"\n", timeout=20)


def test_where_ray_writes() -> None:
    path = "/tmp/ray/session_2026-11-21_10-00-00_000000_1/logs/worker-1.err"
    assert path in this_machine.evidence_for_machine(build_timeline([ended(None)]), [path])
    assert this_machine.evidence_for_machine(build_timeline([ended("node-7")]), [path]) == ""


@named
def test_what_was_looked_at_is_said(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    text = elastic([(0, -6), (1, -9)], 1).replace("node-1", OURS)
    path.write_text(text.replace("2026-11-21", f"{NOW:%Y-%m-%d}").replace("E1121", f"E{NOW:%m%d}"))
    told = examine_job([str(path)], look_here=True).verdict
    assert any("this machine was also checked" in note for note in told.coverage.notes)
    assert examine_job([str(path)]).verdict.coverage.notes == ()


def test_a_log_from_elsewhere_starts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(caught(0) + elastic([(0, -6), (1, -15)], 0).replace("node-1", "node-7"))
    assert examine_job([str(path)], look_here=True).verdict.coverage.notes == ()


def test_it_can_be_switched_off() -> None:
    assert parser().parse_args(["x", "--no-node"]).no_node
