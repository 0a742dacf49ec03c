"""What a look asks ranks for: dumps by pipe, NCCL's own view twice, and who may not be asked."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nodedoctor.blackbox import capture, live
from nodedoctor.blackbox.samples.sample import RankSample
from nodedoctor.fleet.model import Node
from nodedoctor.triage.live import judge, saved
from nodedoctor.triage.live.examine import judge_live
from nodedoctor.triage.live.running_job import LiveJob
from nodedoctor.triage.marks import Mark


def me(**more: object) -> RankSample:
    """This very process as rank 0."""
    return RankSample(os.getpid(), 1, 0, 2, state="S", **more)  # type: ignore[arg-type]


def look(rank: RankSample) -> capture.Capture:
    return asyncio.run(capture.look_twice([rank], host="gpu-1", twice=0.1))


@pytest.mark.slow
def test_only_a_pipe_that_a_rank_reads_is_written_to(tmp_path: Path) -> None:
    prefix = str(tmp_path / "fr-")
    os.mkfifo(f"{prefix}0.pipe")
    assert look(me(pipe=prefix)).dumps == 0  # nobody reads it
    reader = os.open(f"{prefix}0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert look(me(pipe=prefix)).dumps == 1
        assert os.read(reader, 8) == b"1"
    finally:
        os.close(reader)
    Path(f"{prefix}0.pipe").unlink()
    Path(f"{prefix}0.pipe").write_text("")
    assert look(me(pipe=prefix)).dumps == 0
    assert Path(f"{prefix}0.pipe").read_text() == ""


def test_counts_of_ras_that_stand_still_prove_no_life() -> None:
    """It is asked in both looks: one answer alone says nothing about movement."""
    said = "  4 ranks have launched up to operation 17\n"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                talk, _ = server.accept()
                with talk:
                    talk.recv(4096)
                    talk.sendall(said.encode())

        threading.Thread(target=serve, daemon=True).start()
        seen = look(me(ras=f"127.0.0.1:{server.getsockname()[1]}"))
    assert [said.strip() in answer for answer in seen.live.ras] == [True, True]
    assert Mark.RAS_RUNNING not in [event.what for event in judge.live_events(seen.live)]


@pytest.mark.slow
def test_nodes_are_judged_as_one_job_and_the_silent_are_named() -> None:
    here = look(me()).live
    noise = "Welcome!\n" + live.answer(here) + "bye\n"
    came = {"gpu-1": Node("gpu-1", "unreadable", raw=noise), "gpu-2": Node("gpu-2", "silent", note="cut off")}
    seen = live.together(("gpu-1", "gpu-2", "gpu-3"), came)
    assert [(process.rank, process.host) for process in seen.processes] == [(0, "gpu-1")]
    assert seen.silent == (("gpu-2", "cut off"), ("gpu-3", "no answer in time"))
    told = judge_live(seen).verdict
    assert told.headline.endswith("; gpu-2 and gpu-3 gave no answer")
    assert [standing.hosts for standing in told.standings] == [("gpu-1",)]
    nobody = judge_live(live.together(("gpu-2",), came)).verdict
    assert nobody.headline == "no rank was found, and nothing shows who holds it up; gpu-2 gave no answer"


def test_what_a_node_says_comes_back_as_it_was() -> None:
    seen = look(me(local_world=2, local=0, job="29500")).live
    again = saved.read_look(live.answer(seen).encode())
    assert again is not None
    for before, after in zip(seen.processes, again.processes, strict=True):
        assert (before.ticks, before.local_rank, before.job) == (after.ticks, after.local_rank, after.job)


@pytest.mark.slow
def test_several_jobs_on_a_node_are_kept_apart() -> None:
    both = (*look(me(job="1")).live.processes, *look(me(job="2")).live.processes)
    notes = judge_live(LiveJob("gpu-1", both)).verdict.coverage.notes
    assert any(note.startswith("another job runs there (1 process)") for note in notes)


FORBIDS = """
import sys
from nodedoctor.blackbox.samples.sample import RankSample
from nodedoctor.blackbox.stack_methods import forbids
print(forbids([RankSample(int(sys.argv[1]), 1)]))
"""
WITHOUT = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
"""As root in a container has it."""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_which_right_is_missing_and_how_a_container_gets_it() -> None:
    with subprocess.Popen(["setpriv", "--reuid=65534", "--clear-groups", "sleep", "60"]) as other:
        try:
            told = [
                subprocess.run(
                    [*limits, sys.executable, "-c", FORBIDS, str(other.pid)],
                    capture_output=True, text=True, check=True,
                ).stdout.strip()
                for limits in ((), WITHOUT)
            ]  # fmt: skip
        finally:
            other.kill()
    assert told[0] == ""
    assert "CAP_SYS_PTRACE" in told[1] and "--cap-add SYS_PTRACE" in told[1]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_with_fewer_capabilities_may_not_look_at_root_with_more() -> None:
    """A debug container beside a privileged one: all its attempts fail (ptrace(2), commoncap)."""
    for limits, words in (((), "has capabilities that this one lacks"), (WITHOUT, "")):
        with subprocess.Popen([*limits, "sleep", "60"]) as other:
            try:
                while Path(f"/proc/{other.pid}/comm").read_text() != "sleep\n":
                    time.sleep(0.01)
                argv = [*WITHOUT, sys.executable, "-c", FORBIDS, str(other.pid)]
                told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
            finally:
                other.kill()
        assert words in told and bool(words) == bool(told.strip()), told
