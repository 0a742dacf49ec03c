"""What the kernel alone says of a job: a sleep names nobody for sure, what it calls abnormal decides."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.blackbox import capture
from nodedoctor.blackbox.samples.sample import RankSample
from nodedoctor.cli.exit_codes import Exit, outcome_code
from nodedoctor.probes.job.alive import start_of
from nodedoctor.triage.live.activity import IDLE_TICKS
from nodedoctor.triage.live.examine import judge_live
from nodedoctor.triage.live.running_job import LiveJob, PythonThread, RankProcess
from nodedoctor.triage.model import Verdict
from nodedoctor.triage.patterns.stacks import StackFrame

SLEEPS = ("futex_do_wait", "hrtimer_nanosleep", "do_sys_poll", "ep_poll", "pipe_read", "sk_wait_data", "")
CODE = """
import fcntl, os, sys, time
file = open(sys.argv[2], "r+")
if sys.argv[1] == "lock":
    os.write(1, b"up\\n")
    fcntl.lockf(file, fcntl.LOCK_EX)
if sys.argv[1] == "hold":
    fcntl.lockf(file, fcntl.LOCK_EX)
os.write(1, b"up\\n")
time.sleep(600)
"""


def judged(*processes: RankProcess) -> Verdict:
    return judge_live(LiveJob("node-1", processes)).verdict


def bare(number: int, wchan: str = "hrtimer_nanosleep", state: str = "S", size: int = 4) -> RankProcess:
    """A rank of which only the kernel's view is known."""
    return RankProcess(100 + number, number, size, size, (state, state), wchan, local_rank=number)


@given(
    st.lists(st.tuples(st.sampled_from(SLEEPS), st.sampled_from("SR")), min_size=2, max_size=8),
    st.integers(0, 9),
)
def test_where_ranks_sleep_decides_nothing(places: list[tuple[str, str]], ticks: int) -> None:
    """Whatever calls and channels they are in: no cause, no rank above low, exit 3."""
    size = len(places)
    ranks = [replace(bare(n, wchan, state, size), ticks=ticks) for n, (wchan, state) in enumerate(places)]
    verdict = judged(*ranks)
    assert (verdict.outcome, verdict.cause, verdict.confidence) == ("undetermined", "undetermined", "low")
    assert outcome_code(verdict.outcome) == Exit.UNKNOWN
    assert len(verdict.culprits) <= 1


def test_who_sleeps_elsewhere_is_named_as_a_suspicion() -> None:
    verdict = judged(*(bare(n) for n in (0, 1, 3)), bare(2, "futex_do_wait"))
    assert [who.rank for who in verdict.culprits] == [2]
    assert verdict.headline.endswith("a suspicion, nothing else shows who holds the job up")


@pytest.mark.parametrize("state", ["T", "t", "D", "Z", "gone"])
@pytest.mark.parametrize("wchan", SLEEPS)
def test_a_state_that_the_kernel_calls_abnormal_decides(state: str, wchan: str) -> None:
    verdict = judged(*(bare(n, wchan) for n in (0, 1, 3)), bare(2, wchan, state))
    assert ([who.rank for who in verdict.culprits], verdict.confidence) == ([2], "high")
    assert outcome_code(verdict.outcome) == Exit.FAIL
    once = judged(*(bare(n, wchan) for n in (0, 1, 3)), replace(bare(2, wchan), states=("S", state)))
    assert outcome_code(once.outcome) == Exit.UNKNOWN  # in one look only


def test_ranks_that_are_not_there_are_dead_only_where_somebody_waits_for_them() -> None:
    """At the end of a job one after another comes to its end."""
    assert outcome_code(judged(*(bare(n) for n in (0, 3))).outcome) == Exit.UNKNOWN
    main = PythonThread(
        (StackFrame("/v/torch/distributed/distributed_c10d.py", 10, "all_reduce"),), active=True
    )
    waiting = judged(*(replace(bare(n), threads=(main,)) for n in (0, 3)))
    assert (waiting.cause, [who.rank for who in waiting.culprits]) == ("peer_died", [1, 2])
    saves = PythonThread((StackFrame("/job/train.py", 10, "push_results"),), active=True)
    dead = [replace(bare(n), states=("gone", "gone")) for n in (1, 2)]
    assert judged(*(replace(bare(n), threads=(saves,)) for n in (0, 3)), *dead).outcome == "undetermined"
    assert judged(*(replace(bare(n), threads=(main,)) for n in (0, 3)), *dead).cause == "peer_died"


@pytest.mark.parametrize(("ticks", "outcome"), [(0, "failure"), (180, "undetermined")])
def test_a_rank_that_computes_while_the_others_wait_is_only_suspected(ticks: int, outcome: str) -> None:
    """A long batch of a healthy job looks the same in two looks as an endless loop."""
    wait = PythonThread(
        (StackFrame("/v/torch/distributed/distributed_c10d.py", 10, "all_reduce"),), active=True
    )
    long_batch = PythonThread((StackFrame("/job/train.py", 10, "crunch"),), active=True)
    ranks = [replace(bare(n), threads=(wait,)) for n in (0, 1, 3)]
    verdict = judged(*ranks, replace(bare(2), threads=(long_batch,), ticks=ticks))
    assert (verdict.outcome, [who.rank for who in verdict.culprits]) == (outcome, [2])


@contextmanager
def started(how: str, file: Path) -> Iterator[RankSample]:
    """A real process that sleeps, has a lock, or waits for one."""
    argv = [sys.executable, "-c", CODE, how, str(file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"up\n"
            yield RankSample(child.pid, start_of(child.pid) or 0, state="S")
        finally:
            child.kill()


def seen(*ranks: RankSample) -> LiveJob:
    numbered = [replace(rank, rank=n, world=len(ranks)) for n, rank in enumerate(ranks)]
    return asyncio.run(capture.look_twice(numbered, host="n", twice=0.3)).live


@pytest.mark.slow
def test_a_lock_whose_holder_the_kernel_lists(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.write_text("")
    with ExitStack() as stack:
        other, holder, waiter = (stack.enter_context(started(how, file)) for how in ("", "hold", "lock"))
        time.sleep(0.3)
        verdict = judge_live(seen(other, holder, waiter)).verdict
    assert ([who.rank for who in verdict.culprits], verdict.confidence) == ([2], "medium")
    assert f"lock on {file} that process {holder.pid} (" in verdict.headline


WAITS = """
import os, socket, sys
os.write(1, b"up\\n")
if sys.argv[1] == "FIFO":
    with open(sys.argv[2], "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
if sys.argv[1] == "socket":
    socket.create_connection(("127.0.0.1", int(sys.argv[2]))).recv(1)
os.read(os.pipe()[0], 1)
"""


def waits(how: str, where: object) -> tuple[int, str]:
    """A real process that waits, and what is said that it waits for."""
    with subprocess.Popen([sys.executable, "-c", WAITS, how, str(where)], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"up\n"
            time.sleep(0.5)
            (process,) = seen(RankSample(child.pid, start_of(child.pid) or 0, state="S")).processes
            return child.pid, process.awaited
        finally:
            child.kill()


@pytest.mark.slow
def test_who_has_the_other_end_of_a_fifo(tmp_path: Path) -> None:
    fifo = tmp_path / "upload"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _, told = waits("FIFO", fifo)
    finally:
        os.close(reader)
    assert told == f"the other end of {fifo}, which process {os.getpid()} ({comm(os.getpid())}) has open"


@pytest.mark.slow
def test_the_peer_of_a_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        accepting = threading.Thread(target=lambda: connections.append(server.accept()[0]))
        connections: list[socket.socket] = []
        accepting.start()
        _, told = waits("socket", port)
        accepting.join()
        connections[0].close()
    assert told.startswith(f"data from 127.0.0.1:{port}, which process {os.getpid()} (")


@pytest.mark.slow
def test_a_pipe_that_nobody_else_has() -> None:
    _, told = waits("pipe", "")
    assert told == "the other end of a pipe, which no other process here has open"


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.mark.slow
def test_a_frozen_control_group(frozen_cgroup: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with ExitStack() as stack:
        ranks = [stack.enter_context(started("", file)) for _ in range(3)]
        (frozen_cgroup / "cgroup.procs").write_text(str(ranks[1].pid))
        freeze(frozen_cgroup, True)
        try:
            verdict = judge_live(seen(*ranks)).verdict
        finally:
            freeze(frozen_cgroup, False)
    assert ([who.rank for who in verdict.culprits], verdict.confidence) == ([1], "high")
    assert "is frozen with its control group" in verdict.headline


def freeze(group: Path, frozen: bool) -> None:
    if (group / "freezer.state").exists():
        (group / "freezer.state").write_text("FROZEN" if frozen else "THAWED")
    else:
        (group / "cgroup.freeze").write_text("1" if frozen else "0")
    time.sleep(0.3)


@pytest.fixture(params=["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"])
def frozen_cgroup(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty control group that can be frozen; removed behind the test."""
    parent = Path(request.param)
    group = parent / f"nodedoctor-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as refused:
        pytest.skip(f"no control group here: {refused}")
    if not any((group / name).exists() for name in ("freezer.state", "cgroup.freeze")):
        group.rmdir()
        pytest.skip("no freezer here")
    yield group
    ends = time.monotonic() + 30
    while group.exists():
        assert time.monotonic() < ends
        try:
            group.rmdir()
        except OSError:  # busy until the last task in it is reaped
            time.sleep(0.1)


@pytest.mark.slow
def test_a_rank_that_ends_between_the_looks_is_not_called_dead(tmp_path: Path) -> None:
    """Nor are those that had ended before: the job comes to its end."""
    file = tmp_path / "file"
    file.write_text("")
    with started("", file) as rank:

        async def look() -> LiveJob:
            one = replace(rank, rank=0, world=3, local_world=3, local=0)
            looking = asyncio.ensure_future(capture.look_twice([one], host="n", twice=1.5))
            await asyncio.sleep(1)
            subprocess.run(["kill", "-KILL", str(rank.pid)], check=True)
            os.waitpid(rank.pid, 0)
            return (await looking).live

        live = asyncio.run(look())
    assert live.processes[0].states == ("S", "gone")
    verdict = judge_live(live).verdict
    assert (verdict.outcome, verdict.culprits) == ("undetermined", ())


def actor(number: int, function: str, file: str, ticks: int = 0, **more: bool) -> RankProcess:
    main = PythonThread(
        (
            StackFrame(file, 10, function),
            StackFrame("/v/ray/_private/workers/default_worker.py", 9, "<module>"),
        )
    )
    return RankProcess(100 + number, states=("S", "S"), threads=(main,), ticks=ticks, **more)


IDLE = [actor(n, "main_loop", "/v/ray/_private/worker.py") for n in (0, 2)]


def test_the_only_actor_that_runs_a_method_is_suspected() -> None:
    verdict = judged(*IDLE, actor(1, "env_reset", "/job/env.py"))
    assert ([who.pid for who in verdict.culprits], verdict.confidence) == ([101], "low")
    assert "env_reset" in verdict.headline and verdict.headline.endswith("2 actors have nothing to do")


@pytest.mark.parametrize(
    "busy",
    [
        actor(1, "env_reset", "/job/env.py", ticks=90),
        actor(1, "env_reset", "/job/env.py", moved=True),
        actor(1, "generate", "/job/policy.py"),
    ],
    ids=["computes", "moves", "takes long"],
)
def test_an_actor_at_work_is_not(busy: RankProcess) -> None:
    assert judged(*IDLE, busy).culprits == ()


@given(st.integers(2, 8), st.integers(0, 7), st.integers(IDLE_TICKS + 1, 200))
def test_a_rank_that_uses_the_processor_does_not_hang_in_the_kernel(size: int, who: int, ticks: int) -> None:
    """What loads libraries or creates a CUDA context is in state D at every look."""
    ranks = [bare(number, size=size) for number in range(size)]
    ranks[who % size] = replace(ranks[who % size], states=("D", "D"), ticks=ticks)
    assert judged(*ranks).cause == "undetermined"
    ranks[who % size] = replace(ranks[who % size], ticks=0)
    assert [culprit.rank for culprit in judged(*ranks).culprits] == [who % size]
