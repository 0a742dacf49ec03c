"""Which rank comes late: one that truly does is named, noise names nobody, less evidence never another."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.triage.live.lateness import BEYOND, FEWEST_STEPS, OF_STEP, Lateness, find_late_rank

STEP, NOISE = 0.5, 0.02
Arrivals = dict[int, dict[tuple[float, ...], float]]


def job(
    ranks: int, steps: int, seed: int, late: Mapping[int, float] | None = None, share: float = 1.0
) -> Arrivals:
    """Ranks that come to each step with noise; `late` ones so many seconds later, in a part of the steps."""
    drawn = random.Random(seed)
    arrivals: Arrivals = {rank: {} for rank in range(ranks)}
    for number in range(steps):
        for rank in range(ranks):
            behind = (late or {}).get(rank, 0.0) if number < share * steps else 0.0
            arrivals[rank][float(number),] = STEP * number + behind + drawn.uniform(0, NOISE)
    return arrivals


def named(arrivals: Arrivals, ranks: int) -> int | None:
    found = find_late_rank(arrivals, range(ranks), 0.001)
    return found[0] if found is not None else None


@given(
    ranks=st.integers(3, 16),
    steps=st.integers(FEWEST_STEPS, 90),
    seed=st.integers(),
    culprit=st.integers(0, 15),
)
def test_the_late_rank_is_named_with_its_numbers(ranks: int, steps: int, seed: int, culprit: int) -> None:
    culprit %= ranks
    found = find_late_rank(job(ranks, steps, seed, {culprit: 0.18}), range(ranks), 0.001)
    assert found is not None
    rank, late = found
    assert rank == culprit
    assert isinstance(late, Lateness)
    assert late.seconds == pytest.approx(0.18, abs=NOISE)
    assert (late.share, late.steps) == (1.0, steps)
    assert late.words == f"arrives {1000 * late.seconds:.0f} ms late in 100 % of steps"


@given(ranks=st.integers(2, 16), steps=st.integers(0, 90), seed=st.integers(), noise=st.floats(0.01, 50))
def test_noise_names_nobody(ranks: int, steps: int, seed: int, noise: float) -> None:
    arrivals = job(ranks, steps, seed)
    wider = {
        rank: {step: STEP * step[0] + noise * (moment - STEP * step[0]) for step, moment in moments.items()}
        for rank, moments in arrivals.items()
    }
    assert named(wider, ranks) is None


@given(ranks=st.integers(3, 12), seed=st.integers(), lateness=st.floats(0, 0.5), factor=st.floats(0.6, 1))
def test_who_is_within_the_spread_of_its_peers_is_never_named(
    ranks: int, seed: int, lateness: float, factor: float
) -> None:
    arrivals = job(ranks, 60, seed, {0: lateness, 1: factor * lateness})
    if BEYOND * factor >= 1:
        assert named(arrivals, ranks) is None


@pytest.mark.sampled(6)
@pytest.mark.parametrize("ranks", range(3, 17))
@pytest.mark.parametrize("apart", [0.03, 0.1, 0.4])
def test_the_stages_of_a_pipeline_are_no_stragglers(ranks: int, apart: float) -> None:
    for seed in range(5):
        assert named(job(ranks, 60, seed, {rank: apart * rank for rank in range(ranks)}), ranks) is None


@given(share=st.floats(0, 0.75), seed=st.integers())
def test_a_rank_that_is_late_now_and_then_is_not_named(share: float, seed: int) -> None:
    assert named(job(4, 80, seed, {2: 0.3}, share), 4) is None


def test_what_costs_nobody_anything_is_not_named() -> None:
    quiet = {
        rank: {(float(n),): 10.0 * n + (0.3 if rank == 1 else 0) for n in range(50)} for rank in range(4)
    }
    assert OF_STEP * 10 > 0.3
    assert named(quiet, 4) is None
    assert find_late_rank(job(4, 50, 1, {2: 0.18}), range(4), 0.1) is None, "within what can be seen"


@given(data=st.data(), seed=st.integers(), gone=st.floats(0, 0.9))
def test_less_evidence_never_names_another(data: st.DataObject, seed: int, gone: float) -> None:
    """Lines that are lost, of some ranks, of some steps, or all of a rank; the second one is late as well."""
    arrivals = job(5, 60, seed, {1: 0.4, 3: 0.1}, data.draw(st.sampled_from([0.85, 0.94, 1.0])))
    assert named(arrivals, 5) == 1
    drawn = random.Random(seed + 1)
    kept = {
        rank: {
            step: moment for step, moment in moments.items() if drawn.random() >= gone or step[0] in (0, 59)
        }
        for rank, moments in arrivals.items()
    }
    for rank in data.draw(st.sets(st.integers(0, 4), max_size=4)):
        kept[rank] = {}
    assert named(kept, 5) in (None, 1)


@given(seed=st.integers(), culprit=st.integers(0, 3))
def test_the_name_does_not_depend_on_the_order_or_the_epoch(seed: int, culprit: int) -> None:
    arrivals = job(4, 60, seed, {culprit: 0.2})
    turned = {rank: dict(reversed(list(arrivals[rank].items()))) for rank in (2, 0, 3, 1)}
    epochs = {
        rank: {(step[0] // 20, step[0] % 20): moment for step, moment in moments.items()}
        for rank, moments in arrivals.items()
    }
    assert named(turned, 4) == named(epochs, 4) == named(arrivals, 4) == culprit
