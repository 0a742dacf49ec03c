"""What nodes and running processes add: joined by host and time, judged by state and stack."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from say import caught, culprits, elastic

from nodedoctor.blackbox import capture
from nodedoctor.blackbox.samples.sample import RankSample
from nodedoctor.triage.flight.transfer_time import transfer_time
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.live import judge as live_judge
from nodedoctor.triage.live.gpu_use import GpuUse
from nodedoctor.triage.live.running_job import ChildProcess, LiveJob, PythonThread, RankProcess, parse_threads
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import CollectiveCall, Place
from nodedoctor.triage.patterns import ras
from nodedoctor.triage.patterns.stacks import StackFrame
from nodedoctor.triage.timeline.node_reports import NotANode, read_node

LOGS = Path(__file__).parents[1] / "logs"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4001, name=python, GPU has fallen off the bus."


def report(
    tmp_path: Path, check: str, summary: str, evidence: str, host: str = "node-1", status: str = "fail"
) -> str:
    """A node's report with one finding."""
    finding = {
        "status": status,
        "summary": summary,
        "waived": None,
        "evidence": [{"probe": "p", "text": evidence}],
    }
    document = {
        "schema": "nodedoctor.report/1",
        "node": {"hostname": host},
        "results": [{"check": check, "status": status, "findings": [finding]}],
    }
    path = tmp_path / f"{host}.json"
    path.write_text(json.dumps(document))
    return str(path)


def job(tmp_path: Path) -> str:
    """A job of which only one rank's wait is known."""
    path = tmp_path / "train.log"
    path.write_text(caught(0) + elastic([(0, -6), (1, -15)], 0))
    return str(path)


def test_the_raylets_open_files(tmp_path: Path) -> None:
    """The second half of the article: the log decides nothing, the node's limit is near."""
    node = report(
        tmp_path, "limits.nofile", "raylet may open 1024 files and has 1011 open", "Max open files 1024", "n"
    )
    verdict = examine_job([str(LOGS / "skyrl_policy_train.log")], [read_node(node)]).verdict
    assert (verdict.cause, verdict.confidence, verdict.culprits) == ("shm_or_limits", "medium", ())


def test_an_xid_is_joined_by_pid_and_time(tmp_path: Path) -> None:
    near = report(tmp_path, "kernel.xid", "Xid 79", f"Nov 21 10:12:00 node-1 kernel: {XID}")
    examined = examine_job([job(tmp_path)], [read_node(near)])
    assert (examined.verdict.cause, culprits(examined)) == ("gpu_hardware_xid", [1])


@pytest.mark.parametrize(("when", "host"), [("Nov 20 03:00:00", "node-1"), ("Nov 21 10:12:00", "node-7")])
def test_an_xid_of_another_time_or_node_is_left_out(when: str, host: str, tmp_path: Path) -> None:
    far = report(tmp_path, "kernel.xid", "Xid 79", f"{when} {host} kernel: {XID}", host)
    assert examine_job([job(tmp_path)], [read_node(far)]).verdict.cause != "gpu_hardware_xid"


def test_a_healthy_job_is_not_blamed_for_a_sick_node(tmp_path: Path) -> None:
    path = tmp_path / "ok.log"
    path.write_text("step 1 loss: 2\nstep 2 loss: 2\n")
    node = report(tmp_path, "limits.nofile", "few", "x")
    assert examine_job([str(path)], [read_node(node)]).verdict.outcome == "clean"


def test_a_recording_is_judged_by_the_checks() -> None:
    node = read_node(str(Path(__file__).parents[2] / "nodes" / "h100-off-the-bus"))
    assert any(type(event.what).__name__ in ("NodeFault", "Xid") for event in node.events)


def test_what_is_no_node(tmp_path: Path) -> None:
    for text in ("{}", "[1", "hello", '{"schema": "nodedoctor.report/1", "results": 7'):
        path = tmp_path / "x.json"
        path.write_text(text)
        with pytest.raises(NotANode):
            read_node(str(path))


def rank(
    number: int, function: str, file: str = "/v/torch/distributed/distributed_c10d.py", **more: Any
) -> RankProcess:
    """A process whose main thread is in one function, seen twice the same."""
    main = PythonThread(
        (StackFrame(file, 10, function), StackFrame("/job/train.py", 20, "main")),
        active=True,
        **more.pop("thread", {}),
    )
    return RankProcess(100 + number, number, 4, 4, more.pop("states", ("S", "S")), threads=(main,), **more)


def judged(*processes: RankProcess) -> tuple[str, list[int | None], str]:
    """The first candidate of a look at these processes."""
    found = live_judge.live_candidates(LiveJob("node-1", processes))
    return (
        (found[0].cause, [who.rank for who in found[0].culprits], found[0].headline)
        if found
        else ("", [], "")
    )


WAITING = [rank(number, "all_reduce") for number in (0, 1, 3)]


def test_the_rank_that_is_elsewhere() -> None:
    cause, who, headline = judged(*WAITING, rank(2, "sleep", "/job/data.py"))
    assert (cause, who) == ("cpu_stuck_or_slow_rank", [2]) and "/job/data.py:10" in headline


def test_the_rank_that_keeps_pythons_lock() -> None:
    assert (
        "keeps Python's lock" in judged(*WAITING, rank(2, "run", "/job/x.py", thread={"owns_gil": True}))[2]
    )


def test_the_rank_that_saves() -> None:
    cause, who, _ = judged(*WAITING, rank(2, "save_checkpoint", "/job/train.py"))
    assert (cause, who) == ("timeout_too_short_legit_work", [2])


def loader(pid: int, *frames: tuple[str, str]) -> ChildProcess:
    """A data loader's process, its innermost frame first."""
    loop = ("/v/torch/utils/data/_utils/worker.py", "_worker_loop")
    return ChildProcess(
        pid, (PythonThread(tuple(StackFrame(file, 7, name) for file, name in (*frames, loop))),)
    )


def test_the_data_loader_that_a_rank_waits_for() -> None:
    idle = loader(501, ("/usr/lib/python3.11/multiprocessing/connection.py", "poll"))
    busy = loader(502, ("/usr/lib/python3.11/gzip.py", "read"), ("/job/data.py", "__getitem__"))
    waits = rank(2, "poll", "/usr/lib/python3.11/multiprocessing/connection.py", workers=(idle, busy))
    cause, who, headline = judged(*WAITING, waits)
    assert (cause, who) == ("cpu_stuck_or_slow_rank", [2])
    assert "its data loader 502 is in __getitem__ (/job/data.py:7)" in headline


def test_how_busy_a_gpu_is_stands_with_its_rank() -> None:
    told = live_judge.live_events(LiveJob("n", (rank(1, "all_reduce", gpu=GpuUse(percent=100)),)))
    assert "GPU 100 % busy" in told[0].text


def test_a_stopped_process_needs_no_stack() -> None:
    bare = [RankProcess(100 + n, n, 4, 4, ("T", "T") if n == 1 else ("S", "S")) for n in range(4)]
    assert judged(*bare)[:2] == ("cpu_stuck_or_slow_rank", [1])


def test_all_stopped_hold_themselves_up_and_all_in_the_kernel_blame_nobody() -> None:
    cause, who, headline = judged(*[RankProcess(100 + n, n, 2, 2, ("T", "T")) for n in range(2)])
    assert (cause, who) == ("cpu_stuck_or_slow_rank", [0, 1])
    assert headline.endswith(" are stopped (SIGSTOP or a debugger)")
    assert judged(*[RankProcess(100 + n, n, 2, 2, ("D", "D")) for n in range(2)])[:2] == ("", [])


def test_a_rank_without_a_process() -> None:
    assert judged(*WAITING)[:2] == ("peer_died", [2])


def test_what_moves_is_not_stuck() -> None:
    assert judged(*WAITING, rank(2, "forward", "/job/train.py", moved=True))[0] == ""


def test_all_in_the_same_collective_blames_nobody() -> None:
    assert judged(*WAITING, rank(2, "all_reduce"))[0] == ""


def test_ranks_that_wait_in_different_collectives_disagree() -> None:
    other = rank(2, "broadcast")
    cause, who, headline = judged(*WAITING, other)
    assert (cause, who) == ("collective_mismatch", [2])
    assert "ranks 0, 1 and 3 in all_reduce and rank 2 on node-1 in broadcast" in headline
    tied = judged(*WAITING[:2], rank(2, "broadcast"), rank(3, "broadcast"))
    assert tied[:2] == ("collective_mismatch", [])  # either half may be the wrong one


AUTOGRAD = "/v/torch/autograd/graph.py"


def test_a_rank_that_left_the_loop_while_the_others_reduce_gradients() -> None:
    backward = [rank(number, "_engine_run_backward", AUTOGRAD) for number in (0, 1, 3)]
    cause, who, headline = judged(*backward, rank(2, "barrier"))
    assert (cause, who) == ("collective_mismatch", [2])
    assert "ranks 0, 1 and 3 in the backward pass and rank 2 on node-1 in barrier" in headline
    computes = [rank(number, "_engine_run_backward", AUTOGRAD, ticks=90) for number in (0, 1, 3)]
    assert judged(*computes, rank(2, "barrier"))[:2] == ("", [])
    two = [replace(p, world_size=2, local_world_size=2) for p in (*backward[:1], rank(1, "barrier"))]
    assert judged(*two)[:2] == ("collective_mismatch", [])  # either may be the wrong one


def calling(number: int, caller: str) -> RankProcess:
    """A rank in one and the same collective, which a function of the job calls."""
    call = StackFrame("/v/site-packages/torch/distributed/distributed_c10d.py", 10, "all_reduce")
    main = PythonThread((call, StackFrame("/job/own.py", number, caller)), active=True)
    return RankProcess(100 + number, number, 4, 4, ("S", "S"), threads=(main,))


def test_one_collective_of_two_groups_that_a_rank_calls_the_other_way_round() -> None:
    """Lines of a function may differ, as each rank goes its own way to the same call; functions tell."""
    world = [calling(number, "sync_gradients") for number in (0, 1, 3)]
    cause, who, headline = judged(*world, calling(2, "sync_tensors"))
    assert (cause, who) == ("collective_mismatch", [2]) and "called from sync_tensors" in headline
    assert judged(*world, calling(2, "sync_gradients")) == ("", [], "")
    (found,) = live_judge.live_candidates(LiveJob("n", (*world, calling(2, "sync_tensors"))))
    assert found.confidence == "low"


@pytest.mark.parametrize(
    "other",
    [
        rank(2, "broadcast", moved=True),
        rank(2, "synchronize", "/v/torch/cuda/__init__.py"),  # for some collective: it does not say which
        rank(5, "broadcast"),  # and rank 2 was not seen: it may be the one that all wait for
    ],
    ids=["moving", "gpu", "not-all-seen"],
)
def test_different_collectives_that_prove_no_disagreement(other: RankProcess) -> None:
    size = 8 if other.rank == 5 else 4
    processes = [replace(process, world_size=size, local_world_size=None) for process in (*WAITING, other)]
    assert judged(*processes)[0] == ""


def standing(number: int, function: str, line: int = 1, wchan: str = "", **more: Any) -> RankProcess:
    """A rank in a program's own code: no library that we know waits there."""
    main = PythonThread(
        (StackFrame("/job/own.py", line, function), StackFrame("/job/own.py", 90, "<module>"))
    )
    return RankProcess(100 + number, number, 4, 4, states=("S", "S"), threads=(main,), wchan=wchan, **more)


@pytest.mark.parametrize(
    ("crowd", "odd"),
    [
        (("exchange", 1), ("load", 1)),
        (("step", 7), ("step", 3)),
        (("step", 7, "sk_wait_data"), ("step", 7, "futex_wait_queue")),
    ],
    ids=["function", "line", "kernel"],
)
def test_the_odd_one_out_where_ranks_talk_by_unknown_means(crowd: Any, odd: Any) -> None:
    cause, who, _ = judged(*(standing(number, *crowd) for number in (0, 1, 3)), standing(2, *odd))
    assert (cause, who) == ("cpu_stuck_or_slow_rank", [2])
    assert judged(*(standing(number, *crowd) for number in range(4))) == ("", [], "")
    moving = standing(0, *crowd, moved=True)
    assert judged(moving, *(standing(n, *crowd) for n in (1, 3)), standing(2, *odd))[0] == ""


def test_two_halves_and_three_places_blame_nobody() -> None:
    halves = [standing(number, "a" if number < 2 else "b") for number in range(4)]
    three = [standing(number, "abc"[min(number, 2)]) for number in range(4)]
    assert judged(*halves) == judged(*three) == ("", [], "")


def test_counts_that_move_prove_life() -> None:
    first = "  4 ranks have launched up to operation 17\n"
    events = live_judge.live_events(LiveJob("n", (), (first, first.replace("17", "18"))))
    assert [event.what for event in events] == [Mark.RAS_RUNNING]
    assert live_judge.live_events(LiveJob("n", (), (first, first)))[0].what == ras.RasCount(4, 17)


@given(
    st.text(max_size=200) | st.recursive(st.none() | st.integers(), st.lists, max_leaves=5).map(json.dumps)
)
def test_any_answer_of_py_spy(text: str) -> None:
    assert isinstance(parse_threads(text), tuple)


def test_a_process_that_went_away_between_the_looks() -> None:
    """Nothing of it can be read, and in the second look it is gone."""
    child = subprocess.Popen(["true"])
    child.wait()
    gone = RankSample(child.pid, 1, 0, 2, state="S")
    (seen,) = asyncio.run(capture.look_twice([gone], host="n", twice=0.1)).live.processes
    assert (seen.pid, seen.states, seen.threads, seen.ticks) == (child.pid, ("S", "gone"), (), 0)


@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=3))
)
def test_any_ras_document(value: Any) -> None:
    for document in ({"communicators": value}, {"communicators": [{"missing_ranks": value, "size": value}]}):
        assert (
            list(ras.read_document(document, Place("ras", 0))) == []
        )  # nothing in it is laid out like an answer


@pytest.mark.parametrize(
    ("work", "ranks", "explains"),
    [
        (CollectiveCall("_ALLGATHER_BASE", 1, 68125120, 545000960, 600000), 8, False),
        (CollectiveCall("ALLREDUCE", 1, 1, 1, 600000), None, False),
        (CollectiveCall("ALLREDUCE", 1, 70_000_000_000, 70_000_000_000, 600000), None, True),
        (CollectiveCall("ALLREDUCE", 1, 4096, 4096), None, None),
        (CollectiveCall(), None, None),
    ],
)
def test_whether_size_explains_the_wait(
    work: CollectiveCall, ranks: int | None, explains: bool | None
) -> None:
    told = transfer_time(work)
    assert (told.implied_ranks, told.can_explain) == (ranks, explains)


def test_the_times_of_the_article() -> None:
    told = transfer_time(CollectiveCall("_ALLGATHER_BASE", 1, 68125120, 545000960, 600000))
    assert told.bytes_by_dtype == {"bf16": 1090001920, "fp32": 2180003840}
    assert told.expected_seconds["nvlink4"] == pytest.approx(0.0026, rel=0.02)
    assert told.expected_seconds["ethernet_10g"] == pytest.approx(0.87, rel=0.01)
    assert "1.59 MB/s" in told.sentence


@pytest.mark.parametrize("wchan", ["anon_pipe_write", "fifo_pipe_write", "pipe_write", "wait_for_partner"])
def test_who_waits_for_a_pipe_does_no_work(wchan: str) -> None:
    """A checkpoint that is written into a pipe which nobody reads never ends."""
    cause, who, headline = judged(*WAITING, rank(2, "save_checkpoint", "/job/train.py", wchan=wchan))
    assert (cause, who) == ("cpu_stuck_or_slow_rank", [2]) and wchan in headline
    for working in ("folio_wait_bit", "", "pipe_read", "futex_do_wait"):
        cause = judged(*WAITING, rank(2, "save_checkpoint", "/job/train.py", wchan=working))[0]
        assert cause == "timeout_too_short_legit_work"
