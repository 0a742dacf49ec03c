"""What monitors say of ranks that hang, jobs ended while they hung, and runs that stop themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, judged, status, steps

RANKS = (
    "rank 3",
    "rank=3",
    "rank:3",
    "global rank 3",
    "rank-0003",
    "rank_3",
    "rank[3]",
    "R3",
    "<r3>",
    "ranks [3]",
)
SAYS = (
    "heartbeat monitor: {} missed 10 heartbeats, declaring job hung",
    "no heartbeat from {} for 600 s",
    "{} stopped sending heartbeats",
    "heartbeat from {} lost",
    "{} has made no progress for 612 s",
    "hang detected on {}",
    "barrier() timed out waiting for {}",
)
CANCEL = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-21T10:45:12 ***\n"
WORDS = (
    "[monitor] ERROR hang detected at step 19",
    "watchdog: main thread made no progress for 1800 s",
    "# job is stuck again",
    "all_gather at step 19 not completed after 600 s",
    "training appears stuck",
    "2026-11-21 10:20:00 WARNING monitor: HANG DETECTED, look at the stacks",
    "2026-11-21 10:20:00 WARNING monitor: no iteration completed for 600 s",
)


def stamped(first: int, count: int, every: int = 15) -> str:
    times = ((n, *divmod(n * every, 60)) for n in range(first, first + count))
    return "".join(
        f"[2026-11-21 10:{minute:02d}:{second:02d}] step {n} loss 2.{n}\n" for n, minute, second in times
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("say", SAYS)
def test_a_monitor_names_a_rank_in_any_form(rank: str, say: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, stamped(0, 20) + f"monitor: {say.format(rank)}\n" + CANCEL)
    cause = "peer_died" if "stopped sending" in say else "cpu_stuck_or_slow_rank"
    assert (examined.verdict.cause, culprits(examined)) == (cause, [3])


@pytest.mark.parametrize("words", WORDS)
def test_a_job_that_hung_when_it_was_ended_is_not_clean(words: str, tmp_path: Path) -> None:
    assert judged(tmp_path, stamped(0, 20) + words + "\n" + CANCEL).verdict.outcome != "clean"
    went_on = judged(tmp_path, stamped(0, 20) + words.lstrip("# ") + "\n" + stamped(20, 40) + CANCEL)
    assert went_on.verdict.outcome == "clean"


@pytest.mark.parametrize("words", ["[monitor] no hang detected", "# no deadlock suspected in this run"])
def test_a_monitor_that_found_no_hang_changes_nothing(words: str, tmp_path: Path) -> None:
    assert judged(tmp_path, stamped(0, 20) + words + "\n" + CANCEL).verdict.outcome == "clean"


@pytest.mark.parametrize(("minutes", "outcome"), [(5, "clean"), (40, "undetermined")])
def test_a_long_silence_before_the_end_may_be_a_hang(minutes: int, outcome: str, tmp_path: Path) -> None:
    end = f"[2026-11-21 10:{5 + minutes:02d}:00] ^C\n[2026-11-21 10:{5 + minutes:02d}:00] KeyboardInterrupt\n"
    assert judged(tmp_path, stamped(0, 20) + end).verdict.outcome == outcome


@pytest.mark.parametrize(
    "stop",
    [
        "job stopped by health controller: persistent straggler (exit 75)",
        "Stopping training due to straggler detection",
        "job stopped: node n2 unhealthy",
        "training terminated early due to hardware degradation",
    ],
)
def test_a_run_that_stops_itself_of_its_health_failed(stop: str, tmp_path: Path) -> None:
    straggler = "[monitor] Straggler identified: rank 9, score 0.31\n"
    assert judged(tmp_path, stamped(0, 20) + straggler).verdict.outcome == "clean"
    examined = judged(tmp_path, stamped(0, 20) + straggler + stop + "\n")
    assert examined.verdict.outcome != "clean" and culprits(examined) in ([9], [])


@pytest.mark.parametrize(
    "stop", ["Stopping training: max_steps reached", "Stopping run because early stopping"]
)
def test_a_run_that_stops_as_planned_did_not_fail(stop: str, tmp_path: Path) -> None:
    assert judged(tmp_path, stamped(0, 20) + stop + "\n").verdict.outcome == "clean"


@pytest.mark.parametrize("odd", [0, 1, 3])
@pytest.mark.parametrize("silent", ["none", "the odd one", "all"])
def test_a_line_without_its_group_is_of_the_only_group(odd: int, silent: str, tmp_path: Path) -> None:
    waits = "".join(caught(rank, op="BROADCAST" if rank == odd else "ALLREDUCE") for rank in range(4))
    lines = [
        status(rank, 7, 7, 6)
        for rank in range(4)
        if silent == "none" or (silent == "the odd one" and rank != odd)
    ]
    examined = judged(tmp_path, waits + "".join(lines))
    assert (examined.verdict.cause, culprits(examined)) == ("collective_mismatch", [odd])


@pytest.mark.parametrize(
    "words",
    [
        "no new line for 40 minutes",
        "no steps since 10:14",
        "no new output for an hour",
        "no progress since 10:14",
        'the run "abc" stands still since 10:14',
        "(and then nothing more)",
    ],
)
def test_what_a_person_says_of_silence_behind_the_last_step_is_not_clean(words: str, tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 30) + words + "\n").verdict.outcome == "undetermined"
    assert judged(tmp_path, words + "\n" + steps(1, 30)).verdict.outcome == "clean"


def test_a_hang_in_a_quoted_answer_is_none(tmp_path: Path) -> None:
    answers = 'sample 3 completion="The job hung because rank 3 hit CUDA out of memory." score=0.4\n'
    assert judged(tmp_path, steps(1, 30) + answers).verdict.outcome == "clean"
    words = "The job hung because rank 3 is slow.\n"
    assert judged(tmp_path, steps(1, 30) + words).verdict.outcome != "clean"


def onlooking(minutes: range, text: str) -> str:
    return "".join(f"[2026-11-21 10:{minute:02d}:00] {text.format(n=minute)}\n" for minute in minutes)


ONLOOKERS = (
    "[sidecar] util 100 %, power {n} W",
    "node-3 {n} pods Running",
    "[health] ok, load {n}\n[2026-11-21 10:{n:02d}:30] [sidecar] alive\n[2026-11-21 10:{n:02d}:40] nvlink up",
)


@pytest.mark.parametrize("onlooker", ONLOOKERS)
def test_a_job_is_not_in_progress_while_only_a_monitor_writes(onlooker: str, tmp_path: Path) -> None:
    log = stamped(0, 20)
    alone = judged(tmp_path, log + onlooking(range(6, 40), onlooker)).verdict
    assert alone.outcome == "undetermined" and "no step came" in alone.headline
    soon = judged(tmp_path, log + onlooking(range(6, 12), onlooker)).verdict
    went_on = judged(tmp_path, log + onlooking(range(6, 40), onlooker) + stamped(160, 20)).verdict
    works = judged(
        tmp_path, log + onlooking(range(6, 40), "eval shard {n}") + "[2026-11-21 10:41:00] saved\n"
    )
    assert [soon.outcome, went_on.outcome, works.verdict.outcome] == ["clean"] * 3


PARTS = ("upload: {n} % ({n}.1/412.0 GiB)", "saved shard {n}/64", "epoch 1 eval {n}/64")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_grows_is_work(part: str, tmp_path: Path) -> None:
    watched = onlooking(range(6, 40), "[health] node ok, load 3")
    uploads = "".join(f"[2026-11-21 10:{minute:02d}:30] {part.format(n=minute)}\n" for minute in range(6, 40))
    assert judged(tmp_path, stamped(0, 20) + uploads).verdict.outcome == "clean"
    loads = "".join(
        f"[2026-11-21 10:{minute:02d}:00] [health] gpu load {90 + minute % 3} %\n" for minute in range(6, 40)
    )
    assert judged(tmp_path, stamped(0, 20) + loads).verdict.outcome == "undetermined"
    assert judged(tmp_path, stamped(0, 20) + watched).verdict.outcome == "undetermined"


@pytest.mark.parametrize(
    "said", ["eval started, this may take a while", "Running validation", "Saving checkpoint"]
)
def test_announced_work_may_take_longer(said: str, tmp_path: Path) -> None:
    watched = onlooking(range(6, 40), "[health] node ok, load 3")
    assert (
        judged(tmp_path, stamped(0, 20) + f"[2026-11-21 10:05:00] {said}\n" + watched).verdict.outcome
        == "clean"
    )
    for_hours = "".join(f"[2026-11-21 {hour}:00:00] [health] node ok, load 3\n" for hour in range(11, 18))
    hung = judged(tmp_path, stamped(0, 20) + f"[2026-11-21 10:05:00] {said}\n" + for_hours).verdict
    assert hung.outcome == "undetermined"
