"""The culprits of one kind of error are all ranks that report it, in whatever words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from say import culprits, elastic, judged, raised, steps

SPELLINGS = {
    "all alike": ("ValueError: loss is nan",) * 2,
    "torch's check of gradients": (
        "ValueError: loss is nan",
        "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
    ),
    "another exception": ("ValueError: loss is nan", "FloatingPointError: NaN in the gradients"),
}
RANKS = [(3,), (0, 5), (3, 5), (1, 2, 6), tuple(range(4, 8)), tuple(range(8))]
MEGATRON = (
    "ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank {} at iteration #3 invocation #2"
    " (message='found NaN in local grad norm for bucket #0 in backward pass before communication')\n"
)
HEARTBEAT = (
    "2026-11-21 10:20:{:02d}.140058: E external/xla/coordination_service.cc:954] "
    "/job:jax_worker/replica:0/task:{} has been set to ERROR in coordination service: UNAVAILABLE: Task "
    "/job:jax_worker/replica:0/task:{} heartbeat timeout. "
    "This indicates that the remote task has failed, got preempted, or crashed unexpectedly.{}\n"
)
SUFFIX = " [type.googleapis.com/tensorflow.CoordinationServiceError='']"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_all_ranks_that_raise_it_are_named(spelling: str, ranks: Sequence[int], tmp_path: Path) -> None:
    words = SPELLINGS[spelling]
    text = "".join(raised(rank, words[number % 2]) for number, rank in enumerate(ranks))
    examined = judged(tmp_path, "world_size=8\n" + steps(1, 5) + text)
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", list(ranks))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("before", ["world_size=8\n" + steps(1, 5), "world_size=8\n", ""])
@pytest.mark.parametrize("ended", [True, False])
def test_all_ranks_that_log_it_are_named(
    ended: bool, before: str, ranks: Sequence[int], tmp_path: Path
) -> None:
    text = "".join(MEGATRON.format(rank) for rank in ranks)
    text += elastic([(rank, 16) for rank in ranks], ranks[0]) if ended else ""
    examined = judged(tmp_path, before + text)
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", list(ranks))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("suffixes", [("", ""), (SUFFIX, ""), ("", SUFFIX), (SUFFIX, SUFFIX)])
def test_all_tasks_that_are_not_heard_any_more_are_named(
    suffixes: tuple[str, str], ranks: Sequence[int], tmp_path: Path
) -> None:
    lines = [HEARTBEAT.format(number, rank, rank, suffixes[number % 2]) for number, rank in enumerate(ranks)]
    examined = judged(tmp_path, steps(1, 5) + "".join(lines))
    assert (examined.verdict.cause, culprits(examined)) == ("peer_died", list(ranks))


def test_an_error_of_another_kind_or_time_has_its_own_ranks(tmp_path: Path) -> None:
    """What one rank raised is not what others raise in other words, or much later."""
    first = raised(3, "ValueError: loss is nan")
    text = steps(1, 5) + first + raised(5, "KeyError: 'labels'")
    assert culprits(judged(tmp_path, text)) == [3]
    stamps = ("10:20:30", "10:59:30")
    errors = (first, raised(5, "FloatingPointError: NaN in the gradients"))
    pairs = zip(stamps, errors, strict=True)
    text = "".join("".join(f"2026-11-21 {at} {line}\n" for line in error.splitlines()) for at, error in pairs)
    assert culprits(judged(tmp_path, text)) == [3]
