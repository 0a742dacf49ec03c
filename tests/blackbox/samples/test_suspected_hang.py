"""Suspicion from samples alone: what is silent, what is not, and what may never be called a hang."""

from __future__ import annotations

from dataclasses import replace

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor.blackbox.samples.sample import OutputPart, RankSample, Sample
from nodedoctor.blackbox.samples.suspected_hang import GRACE, Progress, ProgressSettings

RANKS = tuple(RankSample(100 + n, 1, n, 4, state="S", syscall="202", wchan="futex_wait") for n in range(4))


def at(moment: float, ranks: tuple[RankSample, ...] = RANKS, text: str = "") -> Sample:
    output = (OutputPart("train.log", text),) if text else ()
    return Sample(moment, moment, (1,), ranks, output)


def test_steps_that_stop() -> None:
    progress = Progress()
    for number in range(20):
        progress.feed(at(number * 2.0, text=f"step {number} loss 1.0\n"))
    assert progress.median == 2.0
    assert progress.threshold == 60
    for moment in range(40, 98, 2):
        progress.feed(at(float(moment)))
        assert progress.suspicion() is None
    progress.feed(at(99.0))
    suspicion = progress.suspicion()
    assert suspicion is not None and suspicion.rule == 2 and suspicion.since == 38.0


def test_many_steps_between_two_looks() -> None:
    progress = Progress()
    for look in range(6):
        lines = "".join(f"step {100 * look + n} loss 1.0\n" for n in range(100))
        progress.feed(at(look * 10.0, text=lines))
    assert progress.median is not None and abs(progress.median - 0.1) < 1e-9


def test_slow_steps_have_more_time() -> None:
    progress = Progress()
    for number in range(10):
        progress.feed(at(number * 100.0, text=f"step {number}\n"))
    progress.feed(at(900.0 + 499))
    assert progress.suspicion() is None
    progress.feed(at(900.0 + 501))
    assert progress.suspicion() is not None


def test_a_bar_that_is_redrawn_is_no_progress() -> None:
    progress = Progress(ProgressSettings(hang_after=10))
    bar = "\rtrain:  10%|#   | 5/50 [00:05<00:45, 1.0it/s]"
    assert progress.feed(at(0.0, text=bar))
    for moment in range(1, 12):
        assert not progress.feed(at(float(moment), text=bar))
    assert progress.suspicion() is not None


def test_without_steps_a_job_may_start_for_half_an_hour() -> None:
    progress = Progress()
    progress.feed(at(0.0))
    progress.feed(at(GRACE - 1))
    assert progress.suspicion() is None
    progress.feed(at(GRACE + 1))
    suspicion = progress.suspicion()
    assert suspicion is not None and suspicion.rule == 3


def test_whoever_uses_cpu_is_not_still() -> None:
    progress = Progress(ProgressSettings(hang_after=20))
    for moment in range(0, 100, 5):
        busy = replace(RANKS[2], ticks=moment * 50)
        progress.feed(at(float(moment), (*RANKS[:2], busy, RANKS[3])))
        assert progress.suspicion() is None


def test_whoever_reads_data_is_not_still() -> None:
    progress = Progress(ProgressSettings(hang_after=20))
    for moment in range(0, 100, 5):
        loading = replace(RANKS[0], children=(7,), child_bytes=moment << 20)
        progress.feed(at(float(moment), (loading, *RANKS[1:])))
        assert progress.suspicion() is None


def test_a_stopped_rank_needs_no_grace() -> None:
    progress = Progress()
    stopped = (RANKS[0], replace(RANKS[1], state="T"), *RANKS[2:])
    for moment in range(0, 10, 2):
        progress.feed(at(float(moment), stopped))
        assert progress.suspicion() is None
    progress.feed(at(12.0, stopped))
    suspicion = progress.suspicion()
    assert suspicion is not None and suspicion.rule == 1 and "rank 1" in suspicion.why


def test_a_rank_without_process() -> None:
    progress = Progress()
    progress.feed(at(0.0))
    for moment in range(2, 16, 2):
        progress.feed(at(float(moment), (RANKS[0], *RANKS[2:])))
    suspicion = progress.suspicion()
    assert suspicion is not None and suspicion.rule == 1
    assert [rank.rank for rank in progress.missing] == [1]


def test_launchers_that_were_there_before_the_ranks_are_not_missed() -> None:
    progress = Progress()
    progress.feed(at(0.0, (RankSample(9, 1, title="torchrun", state="S"),)))
    for moment in range(2, 40, 2):
        progress.feed(at(float(moment)))
    assert progress.missing == ()
    assert progress.suspicion() is None


def test_what_had_the_environment_of_a_rank_that_lives_is_not_missed() -> None:
    """A command of the task's shell or prolog, and the process of a rank before it was restarted."""
    progress = Progress()
    early = replace(RANKS[1], pid=9, title="sleep")
    progress.feed(at(0.0, (RANKS[0], early)))
    for moment in range(2, 40, 2):
        progress.feed(at(float(moment)))
    assert progress.missing == ()
    assert progress.suspicion() is None


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.floats(0.5, 30), st.integers(0, 3)), min_size=3, max_size=60))
def test_a_job_that_steps_is_never_suspected(steps: list[tuple[float, int]]) -> None:
    """Whatever the pace: a step within the minute before means that nothing is suspected."""
    progress, moment = Progress(), 0.0
    for number, (seconds, _) in enumerate(steps):
        moment += seconds
        progress.feed(at(moment, text=f"epoch {number // 7} step {number}\n"))
        assert progress.suspicion() is None


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from(["S", "R", "D", "T", "Z", "gone"]), min_size=4, max_size=4), st.integers(1, 60)
)
def test_any_states_give_an_answer(states: list[str], looks: int) -> None:
    """No states at any pace make it fail, and a job without living ranks is never suspected."""
    progress = Progress()
    ranks = tuple(
        replace(rank, state=state, gone=state == "gone") for rank, state in zip(RANKS, states, strict=True)
    )
    for look in range(looks):
        progress.feed(at(look * 5.0, ranks))
        suspicion = progress.suspicion()
        assert suspicion is None or any(not rank.gone for rank in ranks)
