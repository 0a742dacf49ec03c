"""What speaks for and against a cause, and what a job's pace says about a wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import as_document, caught, culprits, elastic, judged, raised, status, steps

FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."


def test_what_a_stream_shows_behind_a_timeout_is_a_consequence(tmp_path: Path) -> None:
    """Ranks take turns in this log, so that a line without a time stands where it was printed."""
    text = caught(1, at="10:20:30.1") + status(1, 7, 7, 6) + caught(0, at="10:20:30.2") + raised(2, FULL)
    text += status(1, 7, 7, 6) + status(0, 7, 7, 6)
    examined = judged(tmp_path, steps(1, 9) + text)
    assert examined.verdict.cause == "cpu_stuck_or_slow_rank"
    assert any("came only after rank 1 had given up" in why for _, why in examined.verdict.alternatives)
    before = judged(tmp_path, steps(1, 9) + raised(2, FULL) + text)
    assert (before.verdict.cause, culprits(before)) == ("peer_cuda_oom", [2])


def test_a_killed_process_outweighs_what_another_one_says_then(tmp_path: Path) -> None:
    killed = elastic([(0, 1), (1, -15), (2, -9), (3, -15)], 2)
    examined = judged(tmp_path, steps(1, 9) + raised(0, "ValueError: no batch") + killed)
    assert (examined.verdict.cause, culprits(examined)) == ("peer_died", [2])
    assert "its launcher saw end first" in as_document(examined)["weighed"]
    assert ("user_code_exception", True) in [
        (cause, "rank 2 had been killed by then" in why) for cause, why in examined.verdict.alternatives
    ]


AT_EXIT = (
    "[rank0]:[W1121 10:{0}:00.073974083 ProcessGroupNCCL.cpp:1538] Warning: WARNING: "
    "destroy_process_group() was not called before program exit, which can leak resources.\n"
)


def test_what_raised_long_before_any_process_ended_is_no_echo_of_one_that_was_killed(tmp_path: Path) -> None:
    killed = elastic([(0, -15), (1, -15), (2, -9), (3, -15)], 2)
    own = steps(1, 9) + raised(0, "NameError: name 'log' is not defined")
    examined = judged(tmp_path, own + AT_EXIT.format(26) + killed)
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [0])
    for soon in (own + AT_EXIT.format(30) + killed, own + killed):
        examined = judged(tmp_path, soon)
        assert (examined.verdict.cause, culprits(examined)) == ("peer_died", [2])


def test_who_waits_in_another_group_is_not_stuck(tmp_path: Path) -> None:
    gone = "RuntimeError: [/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:29596."
    text = "".join(caught(rank, seq=78) + status(rank, 78, 79, 77) for rank in (1, 2, 3))
    text += status(0, -1, 77, 77).replace("at work sequence id: -1", "") + raised(0, gone)
    examined = judged(tmp_path, steps(1, 9) + text)
    assert (examined.verdict.cause, culprits(examined)) == ("collective_mismatch", [0])


def test_a_watchdog_far_beyond_its_limit_stood_still(tmp_path: Path) -> None:
    verdict = judged(tmp_path, caught(0, ms=1800000, ran=25624887)).verdict
    assert verdict.cause == "cpu_stuck_or_slow_rank" and "6.6 h after its limit" in verdict.headline
    late = judged(tmp_path, caught(0, ms=1800000, ran=1990000)).verdict
    assert late.cause == "undetermined"


def test_bars_that_ended_on_one_rank_and_not_on_the_others(tmp_path: Path) -> None:
    bar = "[rank{}]: Train: {}%|###| {}/991 [33:04<00:10,  2.00s/it]\n"
    text = "".join(bar.format(0, 99, n) for n in (989, 990, 991))
    text += "".join(bar.format(rank, 98, 985 + rank) for rank in (1, 2)) + caught(1) + caught(2)
    examined = judged(tmp_path, text)
    assert (examined.verdict.cause, culprits(examined)) == ("collective_mismatch", [0])
    claims = [row["claim"] for row in as_document(examined)["not_the_cause"]]
    assert "a step that was merely slow" in claims


def test_a_silent_rank_is_not_blamed_beside_one_without_a_name(tmp_path: Path) -> None:
    unnamed = caught(1).partition("]:")[2].replace("[Rank 1] ", "")
    examined = judged(tmp_path, "world_size=4\n" + caught(0) + caught(2) + unnamed)
    assert culprits(examined) == []


def test_the_exception_of_a_ray_task_is_of_its_process(tmp_path: Path) -> None:
    text = (
        "(Worker pid=938) step done rank=0\n(Worker pid=937) step done rank=1\n"
        "Traceback (most recent call last):\n"
        '  File "/job/train.py", line 26, in <module>\n    ray.get(refs)\n'
        "ray.exceptions.RayTaskError(ValueError): ray::Worker.train() (pid=937, ip=10.0.0.2)\n"
        '  File "/job/train.py", line 18, in train\n    raise ValueError(shard)\n'
        "ValueError: bad shard 17\n"
    )
    examined = judged(tmp_path, text)
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [1])


CRASHED = {
    "its own words": "(Engine pid=70) Fatal Python error: Segmentation fault\n",
    "who started it": "(Engine pid=70) Child process unexpectedly failed with exitcode=-11. pid=71\n",
    "killed": "(Engine pid=70) Child process unexpectedly failed with exitcode=-9. pid=71\n",
}
LOST = (
    "httpx.ConnectError: All connection attempts failed",
    "httpx.ReadError",
    "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
    "http.client.RemoteDisconnected: Remote end closed connection without response",
    "RuntimeError: could not generate: [Errno 111] Connection refused",
)
CLIENT = (
    "Traceback (most recent call last):\n"
    '  File "/job/rollout.py", line 40, in generate\n    answer = client.post(url)\n{}\n'
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("crash", CRASHED)
@pytest.mark.parametrize("error", LOST)
def test_a_connection_lost_behind_a_crash_follows_from_it(crash: str, error: str, tmp_path: Path) -> None:
    behind = judged(tmp_path, steps(1, 9) + CRASHED[crash] + CLIENT.format(error)).verdict
    assert behind.cause == "peer_died" and "SIG" in behind.headline
    assert judged(tmp_path, steps(1, 9) + CLIENT.format(error)).verdict.cause != "peer_died"
    before = judged(tmp_path, steps(1, 9) + CLIENT.format(error) + CRASHED[crash]).verdict
    assert before.cause == "user_code_exception"


@pytest.mark.parametrize(
    "error",
    [
        "ValueError: no such shard",
        "RuntimeError: HTTPSConnectionPool(host='hub.example', port=443): connection refused",
    ],
)
def test_another_error_behind_a_crash_stays_a_programs_own(error: str, tmp_path: Path) -> None:
    text = steps(1, 9) + CRASHED["who started it"] + CLIENT.format(error)
    assert judged(tmp_path, text).verdict.cause == "user_code_exception"
