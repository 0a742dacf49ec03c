"""Who waits in a monitored barrier names the rank that did not come."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, judged, steps

PLACES = [(size, rank) for size in (2, 4, 8) for rank in range(1, size)]
SENT = (
    "RuntimeError: Rank 0 successfully reached monitoredBarrier, but received errors while waiting for"
    " send/recv from rank {}. Please check rank {} logs for faulty rank."
)
REASONS = {
    "none": ("", "cpu_stuck_or_slow_rank"),
    "a timeout": (
        "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 30000ms for recv"
        " operation to complete",
        "cpu_stuck_or_slow_rank",
    ),
    "a closed connection": (
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error [10.4.13.5]:51221: Connection reset"
        " by peer",
        "peer_died",
    ),
}


def missed(waiting: int, absent: int, reason: str, label: str) -> str:
    """The exception of a rank that waited in a barrier for another one."""
    lines = [SENT.format(absent, absent).replace("Rank 0", f"Rank {waiting}")]
    lines += [" Original exception: ", reason] if reason else []
    return "".join(f"{label.format(waiting)}{line}\n" for line in lines)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("label", ["", "[rank{}]: ", "[default{}]:"])
@pytest.mark.parametrize("reason", REASONS)
def test_the_rank_that_was_waited_for_is_named(reason: str, label: str, tmp_path: Path) -> None:
    text, cause = REASONS[reason]
    for size, rank in PLACES:
        log = f"world_size={size}\n" + steps(1, 5) + missed(0, rank, text, label)
        examined = judged(tmp_path, log)
        assert (examined.verdict.cause, culprits(examined)) == (cause, [rank]), (size, rank)


@pytest.mark.parametrize("reason", REASONS)
def test_rank_0_that_others_waited_for_may_be_a_victim(reason: str, tmp_path: Path) -> None:
    """It asks all ranks, and ends where one does not answer: its own log names that one."""
    text = "".join(missed(rank, 0, REASONS[reason][0], "[rank{}]: ") for rank in (1, 2, 4))
    assert culprits(judged(tmp_path, "world_size=5\n" + text)) == []
    own = "[rank0]: RuntimeError: Rank 3 failed to pass monitoredBarrier in 30000 ms\n"
    assert culprits(judged(tmp_path, "world_size=5\n" + text + own)) == [3]


def test_rank_0_is_no_culprit_of_a_barrier_in_which_it_waited(tmp_path: Path) -> None:
    """Its log is missing: the others are told to look at it, and one of them never says that it came."""
    arrived = (
        "[rank{rank}]: RuntimeError: Rank {rank} successfully reached monitoredBarrier, but received"
        " errors while"
        " waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"
        "[rank{rank}]:  Original exception:\n[rank{rank}]: [gloo/transport/tcp/pair.cc:535] Connection"
        " closed by peer"
        " [10.0.0.1]:4711\n"
    )
    alive = "".join(f"[rank{rank}] {step}\n" for rank in (1, 2, 3, 5) for step in steps(1, 9).splitlines())
    came = "".join(arrived.format(rank=rank) for rank in (1, 2, 3))
    saving = "[rank5]: saving checkpoint shard: 80% (330 of 412 GB)\n"
    examined = judged(tmp_path, "world_size=6\n" + alive + saving + came + arrived.format(rank=4))
    assert (examined.verdict.cause, culprits(examined)) == ("timeout_too_short_legit_work", [5])
    two_are_missing = judged(tmp_path, "world_size=6\n" + alive + saving + came)
    assert culprits(two_are_missing) == []


SAVES = (
    "Saving hf_model shard {n}/62 to /mnt/out/step_20/hf",
    "Saving optimizer of layer {n}",
    "Writing model part {n} of 62",
    "exporting weights {n}/62 to safetensors",
    "Dumping layer {n} to /mnt/out/checkpoints/20/layer.bin",
)


@pytest.mark.parametrize("words", SAVES)
@pytest.mark.parametrize("label", ["[rank0]: ", "(Worker pid=50) [Rank 0] "])
def test_who_saves_a_model_part_by_part_while_the_others_wait(words: str, label: str, tmp_path: Path) -> None:
    saves = "".join(
        f"{label}{words[:1].lower() if label.startswith('[') else words[:1]}{words[1:].format(n=n)}\n"
        for n in range(1, 30)
    )
    waits = "".join(caught(rank, numel=1) for rank in range(1, 8))
    examined = judged(tmp_path, steps(1, 9) + saves + waits)
    assert (examined.verdict.cause, culprits(examined)) == ("timeout_too_short_legit_work", [0])
