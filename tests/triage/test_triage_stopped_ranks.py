"""Who did not come, where few ranks report the timeout: what each printed last tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, elastic, judged

RANKS = 8
WORDS = (
    ("{} loading extension module rope", "{} built rope in 2{} s"),
    ("{} device to host copy done, writing __{}_0.distcp", "{} wrote __{}_0.distcp"),
    ("{} opening shard {} of the corpus", "{} index of shard {} is ready"),
)
"""What all ranks print, and what the one that is stuck does not."""
FRONTS = ("[rank {}]", "2026-11-21 10:10:{:02d},123 [INFO] [rank 0{}]", "[10:10:0{} r{}]", "rank={}")


def printed(front: str, words: tuple[str, ...], silent: int, more: str = "") -> str:
    """The lines of all ranks, in turns; one rank does not print the last."""
    lines = ""
    for number, form in enumerate(words):
        for rank in range(RANKS):
            own = front.format(*[rank] * front.count("{"))
            if rank != silent or number + 1 < len(words):
                lines += form.format(own, *[rank] * 2) + "\n"
            elif more:
                lines += f"{own} {more}\n"
    return lines


def timeouts(*ranks: int) -> str:
    return "".join(map(caught, ranks))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("silent", [0, 3, 7])
def test_a_rank_that_printed_less_did_not_come(
    front: str, words: tuple[str, str], silent: int, tmp_path: Path
) -> None:
    others = [rank for rank in range(RANKS) if rank != silent][1:4]
    examined = judged(tmp_path, printed(front, words, silent) + timeouts(*others))
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [silent])


@pytest.mark.parametrize("words", WORDS)
def test_a_rank_that_gave_up_is_none_that_did_not_come(words: tuple[str, str], tmp_path: Path) -> None:
    examined = judged(tmp_path, printed("[rank {}]", words, 3) + timeouts(1, 3, 5))
    assert culprits(examined) == []


@pytest.mark.parametrize("words", WORDS)
def test_what_only_some_print_is_their_part(words: tuple[str, str], tmp_path: Path) -> None:
    half = "".join(
        line
        for line in printed("[rank {}]", words, 3).splitlines(keepends=True)
        if not any(line.startswith(f"[rank {rank}] {words[1][3:8]}") for rank in (4, 5, 6))
    )
    assert culprits(judged(tmp_path, half + timeouts(0, 1))) == []


@pytest.mark.parametrize(
    "more", ["still waiting for file baton /tmp/ext/lock", "waits on the lock of the cache"]
)
def test_a_rank_that_waits_for_something_else_did_not_come(more: str, tmp_path: Path) -> None:
    log = printed("[rank {}]", WORDS[0], 3, more) + timeouts(0, 1, 6)
    examined = judged(tmp_path, log)
    assert culprits(examined) == [3] and more in examined.verdict.headline


@pytest.mark.parametrize("more", ["waiting for rank 2 to finish", "waiting for the other ranks"])
def test_a_rank_that_waits_for_others_names_nobody(more: str, tmp_path: Path) -> None:
    assert (
        culprits(
            judged(
                tmp_path,
                printed("[rank {}]", (*WORDS[0][:1], "{} x"), 9) + f"[rank 3] {more}\n" + timeouts(0, 1),
            )
        )
        == []
    )


@pytest.mark.parametrize(
    "end",
    [
        "loader exhausted after 1203 batches",
        "token budget reached, leaving training loop",
        "no more batches",
        "done, exiting with code 0",
        "early stopping at step 1203",
    ],
)
def test_a_rank_that_was_done_left_the_others(end: str, tmp_path: Path) -> None:
    steps = "".join(f"[rank {r}] batch {n} loss 2.{n}\n" for n in range(1200, 1203) for r in range(4))
    log = steps + f"[rank 2] {end}\n" + timeouts(0, 1, 3)
    examined = judged(tmp_path, log)
    assert (examined.verdict.cause, culprits(examined)) == ("collective_mismatch", [2])
    assert any(end in event.text for event in examined.verdict.evidence)


def test_a_run_before_the_last_tells_nothing_of_it(tmp_path: Path) -> None:
    earlier = printed("[rank {}]", WORDS[0], 3) + elastic([(3, 1)], 3)
    again = "[default] Rendezvous'ing worker group\n" + printed("[rank {}]", WORDS[0], 9)
    assert culprits(judged(tmp_path, earlier + again + timeouts(0, 1))) == []


@pytest.mark.parametrize(
    "words",
    [
        "checkpoint: write to /lustre/ck hangs for 400 s",
        "dataloader stalled: reading shard-0412.tar for 640 s",
        "still writing the index, 10 minutes so far",
        "waiting for s3fs read of shard-0412 for 640 s",
    ],
)
def test_a_rank_that_says_for_how_long_it_is_held_up_did_not_come(words: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, f"[rank12] {words}\n" + timeouts(0, 1, 5))
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [12])
    two = judged(tmp_path, f"[rank12] {words}\n[rank13] {words}\n" + timeouts(0, 1, 5))
    assert culprits(two) == []


@pytest.mark.parametrize(
    "words", ["still waiting for ranks 1-7 for 400 s", "stalled for 2 s", "stuck in all_reduce for 400 s"]
)
def test_a_rank_that_waits_a_moment_or_for_others_names_nobody(words: str, tmp_path: Path) -> None:
    assert culprits(judged(tmp_path, f"[rank12] {words}\n" + timeouts(0, 1, 5))) == []
