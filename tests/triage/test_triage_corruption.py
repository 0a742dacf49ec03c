"""Suspected silent data corruption: who differs from its peers is named; what all have is the program's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from say import as_document, caught, culprits, elastic, judged, raised, steps

from nodedoctor.triage.verdict.result import TriageResult

HASHES = "AssertionError: Parameter hashes not matching across DP replicas"
REPLAY = (
    "torchtitan.observability.sdc_replayer.SDCReplayMismatch: SDC replay mismatch: step=12, local_step=1,"
    " replay=1, rank={}, signature='gradient:0:layers.3.wq.weight'"
)
NANS: dict[str, Callable[[int], str]] = {
    "the old check of the loss": lambda rank: (
        f"AssertionError: Rank {rank}: found NaN in local forward loss calculation. Device: 1, node: gpu-b"
    ),
    "the old check of gradients": lambda rank: (
        f"AssertionError: Rank {rank}: found NaN in local grad norm in backward pass before data-parallel"
        " communication collective. Device: 1, node: gpu-b"
    ),
    "the check of today": lambda rank: (
        f"RuntimeError: Rank {rank}, node gpu-b, device 1, iteration 4711: Unexpected result nan (message="
        "'found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication')"
    ),
    "a program's own": lambda _: "ValueError: the gradient norm is nan at step 4711",
}
SILENT = {
    "wait": lambda ranks: "".join(caught(rank) for rank in ranks),
    "lose it": lambda ranks: "".join(
        raised(rank, "RuntimeError: [/w/gloo/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:29596.")
        for rank in ranks
    ),
    "are ended": lambda ranks: elastic([(2, 1), *((rank, -15) for rank in ranks)], 2),
}
OTHERS = (0, 1, 3)


def finite(ranks: Iterable[int], step: int = 4711) -> str:
    """A number of each rank for the step in which another one had none."""
    return "".join(f"[rank{rank}]: step {step} loss: 2.31\n" for rank in ranks)


def print_numbers(then: Callable[[Iterable[int]], str]) -> Callable[[Iterable[int]], str]:
    """Peers that print a number, and what becomes of them then."""
    return lambda ranks: finite(ranks) + then(ranks)


PEERS = {f"print a number and {name}": print_numbers(then) for name, then in SILENT.items()}
"""The first shows what a rank's peers computed, the second only that they were ended."""


def odd_hash(rank: int, name: str = "decoder.layers.3.mlp.weight") -> str:
    """What Megatron logs of a rank whose parameters are not those of its first replica."""
    return (
        f"[rank{rank}]: INFO:megatron.core.utils:[Rank {rank}] Hash not matching for {name} in model chunk0\n"
    )


def found(examined: TriageResult) -> tuple[str, list[int | None], list[int | None]]:
    """Cause, culprits and parties."""
    return examined.verdict.cause, culprits(examined), [who.rank for who in examined.verdict.parties]


@pytest.mark.parametrize("peers", PEERS)
@pytest.mark.parametrize("name", NANS)
def test_a_nan_of_one_rank_beside_clean_peers(name: str, peers: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 5) + raised(2, NANS[name](2)) + PEERS[peers](OTHERS))
    assert (examined.verdict.cause, culprits(examined)) == ("gpu_hardware_xid", [2])
    assert examined.verdict.confidence in ("medium", "low")
    if "gpu-b" in NANS[name](2):
        assert examined.verdict.culprits[0].host in ("gpu-b", "node-1")
    told = str(as_document(examined)["fixes"])
    assert all(
        word in told for word in ("another node", "nodedoctor compute.gemm", "dcgmi diag", "checkpoint")
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("silent", SILENT)
@pytest.mark.parametrize("name", NANS)
def test_peers_that_print_no_number_show_none(name: str, silent: str, tmp_path: Path) -> None:
    """Who waits, lost a connection or was ended may have had a NaN, too; what was printed before is older."""
    for before in ("", finite(OTHERS, 4710)):
        text = steps(1, 5) + before + raised(2, NANS[name](2)) + SILENT[silent](OTHERS)
        examined = judged(tmp_path, text)
        assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [2])


@pytest.mark.parametrize("name", ["the check of today", "a program's own"])
def test_a_number_of_an_earlier_step_is_none(name: str, tmp_path: Path) -> None:
    """A slower peer may print it behind the NaN."""
    for step, cause in (
        (4710, "user_code_exception"),
        (4711, "gpu_hardware_xid"),
        (4712, "gpu_hardware_xid"),
    ):
        text = steps(1, 5) + raised(2, NANS[name](2)) + finite(OTHERS, step)
        assert judged(tmp_path, text).verdict.cause == cause


@pytest.mark.parametrize("name", NANS)
def test_a_nan_of_all_ranks_or_of_one_without_peers_is_the_programs(name: str, tmp_path: Path) -> None:
    everyone = "".join(raised(rank, NANS[name](rank)) for rank in range(4))
    for text in (everyone, raised(2, NANS[name](2)), everyone + elastic([(r, 1) for r in range(4)], 0)):
        assert judged(tmp_path, steps(1, 5) + text).verdict.cause == "user_code_exception"


def test_what_all_print_or_rank_0_says_alone_may_be_of_all(tmp_path: Path) -> None:
    waits = PEERS["print a number and wait"]((1, 2, 3))
    examined = judged(tmp_path, steps(1, 5) + raised(0, "ValueError: loss is nan") + waits)
    assert found(examined)[:2] == ("user_code_exception", [0])
    shown = "".join(f"[rank{rank}]: step 6 loss: nan\n" for rank in range(4))
    one = raised(2, NANS["a program's own"](2)) + PEERS["print a number and wait"](OTHERS)
    assert found(judged(tmp_path, steps(1, 5) + shown + one))[:2] == ("user_code_exception", [2])
    assert found(judged(tmp_path, steps(1, 5) + one))[:2] == ("gpu_hardware_xid", [2])
    local = raised(0, NANS["the old check of gradients"](0))
    assert found(judged(tmp_path, steps(1, 5) + local + waits))[:2] == ("gpu_hardware_xid", [0])


def curve(losses: list[float], norms: list[float]) -> str:
    """Steps with a loss and a gradient norm."""
    pairs = enumerate(zip(losses, norms, strict=True))
    return "".join(f"step {step} | loss: {loss} | grad_norm: {norm}\n" for step, (loss, norm) in pairs)


FLAT, RISES = [2.9] * 20, [2.9] * 12 + [3.1, 3.6, 4.2, 4.9, 5.8, 6.8, 8.1, 9.4]
NORM, JUMPS = [0.8] * 20, [0.8] * 17 + [4.1, 12.3, 41.0]
CURVES = {
    "flat": (curve(FLAT, NORM), False),
    "one outlier": (curve([*FLAT[:15], 9.9, *FLAT[16:]], NORM), False),
    "falls": (curve(RISES[::-1], JUMPS[::-1]), False),
    "the loss rises": (curve(RISES, NORM), True),
    "the norm rises": (curve(FLAT, JUMPS), True),
    "rose and came back": (curve(RISES + FLAT * 2, NORM * 3), False),
}
"""What a run printed before a NaN, and whether it diverged."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NANS)
@pytest.mark.parametrize("before", CURVES)
def test_a_run_that_diverges_has_its_nan_on_some_rank_first(before: str, name: str, tmp_path: Path) -> None:
    text, diverged = CURVES[before]
    examined = judged(
        tmp_path, text + raised(2, NANS[name](2)) + PEERS["print a number and are ended"](OTHERS)
    )
    cause = "user_code_exception" if diverged else "gpu_hardware_xid"
    assert (examined.verdict.cause, culprits(examined)) == (cause, [2])


@pytest.mark.parametrize("name", NANS)
def test_a_trainers_own_check_alone_suspects_no_gpu(name: str, tmp_path: Path) -> None:
    examined = judged(
        tmp_path, "world_size=4\n" + raised(2, NANS[name](2)) + PEERS["print a number and are ended"](OTHERS)
    )
    cause = "user_code_exception" if name == "a program's own" else "gpu_hardware_xid"
    assert (examined.verdict.cause, culprits(examined)) == (cause, [2])


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("could not convert string to float: 'NaN?' in shard 17", "user_code_exception"),
        ("cannot convert float NaN to integer", "user_code_exception"),
        ("Input contains NaN, infinity or a value too large for dtype('float32').", "user_code_exception"),
        ("unknown option nan_policy", "user_code_exception"),
        ("Function 'MulBackward0' returned nan values in its 0th output.", "gpu_hardware_xid"),
        ("Loss is nan, stopping training", "gpu_hardware_xid"),
        ("NaN detected in the gradients of layer 3", "gpu_hardware_xid"),
        ("loss=nan at step 47", "gpu_hardware_xid"),
    ],
)
def test_data_and_texts_with_such_a_word_are_no_number(said: str, cause: str, tmp_path: Path) -> None:
    waits = PEERS["print a number and wait"](OTHERS)
    examined = judged(tmp_path, steps(1, 5) + raised(2, f"ValueError: {said}") + waits)
    assert (examined.verdict.cause, culprits(examined)) == (cause, [2])


def test_a_scale_of_the_loss_is_of_all_ranks(tmp_path: Path) -> None:
    said = (
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. nan. Exiting run."
    )
    examined = judged(tmp_path, steps(1, 5) + raised(2, said) + PEERS["print a number and are ended"](OTHERS))
    assert examined.verdict.cause == "user_code_exception"


def test_a_group_of_ranks_is_suspected_together(tmp_path: Path) -> None:
    """Ranks of tensor parallelism share every activation."""
    said = "".join(raised(rank, NANS["the check of today"](rank)) for rank in (4, 5))
    waits = PEERS["print a number and wait"]((0, 1, 2, 3, 6, 7))
    assert found(judged(tmp_path, steps(1, 5) + said + waits)) == ("gpu_hardware_xid", [], [4, 5])


@pytest.mark.parametrize(
    ("all_of", "odd", "named", "parties"),
    [
        (range(4), (2,), [2], []),
        (range(4), (1, 2, 3), [0], []),
        (range(4), (), [], [0, 1, 2, 3]),
        ((0, 1), (1,), [], [0, 1]),
        ((3,), (3,), [], [3]),
        (range(4), (2, 3), [], [0, 1, 2, 3]),
    ],
)
def test_replicas_that_differ(
    all_of: range, odd: tuple[int, ...], named: list[int], parties: list[int], tmp_path: Path
) -> None:
    text = "".join(map(odd_hash, odd)) + "".join(raised(rank, HASHES) for rank in all_of)
    examined = judged(tmp_path, steps(1, 5) + text)
    assert found(examined) == ("gpu_hardware_xid", named, parties)
    assert examined.verdict.confidence == ("medium" if named else "low")


def _ray(text: str) -> str:
    return "".join(f"(RayTrainWorker pid=77, ip=10.0.0.3) {line}\n" for line in text.splitlines())


def _stamped(text: str) -> str:
    return "".join(f"2026-11-21 10:20:{n % 60:02d},120 {line}\n" for n, line in enumerate(text.splitlines()))


def _torchrun(text: str) -> str:
    return "".join(f"[default3]:{line}\n" for line in text.splitlines())


@pytest.mark.parametrize("frame", [str, _ray, _stamped, _torchrun])
@pytest.mark.parametrize("error", [HASHES, REPLAY.format(5)])
def test_frames_of_logs_change_nothing(frame: Callable[[str], str], error: str, tmp_path: Path) -> None:
    text = f'Traceback (most recent call last):\n  File "/w/t.py", line 9, in train\n    check()\n{error}\n'
    examined = judged(tmp_path, frame(text))
    assert examined.verdict.cause == "gpu_hardware_xid"
    assert culprits(examined) == ([5] if "rank=5" in error else [])


def test_a_replay_names_the_first_rank_that_differs(tmp_path: Path) -> None:
    """All ranks raise it; of the lowest rank it may be that all of them differ."""
    for rank, sure in ((5, "medium"), (0, "low")):
        examined = judged(tmp_path, "".join(raised(n, REPLAY.format(rank)) for n in range(8)))
        assert (found(examined)[:2], examined.verdict.confidence) == (("gpu_hardware_xid", [rank]), sure)


RERUN = "ERROR:megatron.core.rerun_state_machine:"
FIRST = f"{RERUN}Unexpected result nan on rank 5 at iteration #47 invocation #1 (message='found NaN')\n"


def test_megatrons_reruns(tmp_path: Path) -> None:
    told = f"{RERUN}Rank 5, node gpu-b, device 3, iteration #47: "
    again = told + "First rerun: unexpected result is not reproducible within the tolerance (2.1 != nan)!\n"
    examined = judged(tmp_path, FIRST + again + told + "Possible transient error!!\n")
    assert found(examined)[:2] == ("gpu_hardware_xid", [5])
    assert (examined.verdict.culprits[0].host, examined.verdict.confidence) == ("gpu-b", "medium")
    other = f"{RERUN}Second rerun: unexpected result is not reproducible on a different GPU, therefore it"
    elsewhere = f"{RERUN}Rank 5, node gpu-c, device 0, iteration #47: Possible persistent error!!\n"
    examined = judged(tmp_path, f"{other} was likely incorrect (2.1 != nan)\n" + elsewhere)
    assert "gpu-c" not in str(examined.verdict.culprits)  # there it came out right
    again = f"{RERUN}Rank 5, node gpu-c, device 0, iteration #47: "
    same = again + "Correct result (but possible Application error) (x)!\n"
    text = FIRST + same + "".join(f"[rank{rank}]: ready\n" for rank in range(8))
    assert (
        judged(tmp_path, text + elastic([(rank, 17) for rank in range(8)], 0)).verdict.cause
        != "gpu_hardware_xid"
    )


def test_a_line_that_is_wrapped_says_the_same(tmp_path: Path) -> None:
    line = raised(1, HASHES)
    for text in (line, line.replace("matching across", "matching\n[rank1]:  across")):
        assert judged(tmp_path, text).verdict.cause == "gpu_hardware_xid"


ERRORS = st.sampled_from([*(made for made in NANS.values()), lambda _: HASHES, lambda _: REPLAY.format(1)])


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    error=ERRORS,
    said=st.sets(st.integers(0, 7), min_size=1),
    waits=st.sets(st.integers(0, 7)),
    clean=st.sets(st.integers(0, 7)),
    odd=st.sets(st.integers(0, 7)),
    shown=st.booleans(),
    backwards=st.booleans(),
)
def test_never_sure_and_never_what_all_have(
    tmp_path: Path,
    error: Callable[[int], str],
    said: set[int],
    waits: set[int],
    clean: set[int],
    odd: set[int],
    shown: bool,
    backwards: bool,
) -> None:
    """Whatever is said by whom: never high, and a NaN of all, or of one without a peer, is never hardware."""
    pieces = [raised(rank, error(rank)) for rank in sorted(said)]
    pieces += [odd_hash(rank) for rank in sorted(odd)] if error(0) == HASHES else []
    pieces += [finite(clean - said), *(caught(rank) for rank in sorted(waits - said))]
    pieces += [f"[rank{rank}]: step 6 loss: nan\n" for rank in range(8) if shown]
    text = "world_size=8\n" + "".join(reversed(pieces) if backwards else pieces)
    verdict = judged(tmp_path, text).verdict
    if verdict.cause == "gpu_hardware_xid":
        assert verdict.confidence != "high"
        assert {who.rank for who in verdict.culprits} <= said | odd | {1}
    nan = re.search(r"\bnan\b", error(0), re.IGNORECASE) is not None
    if nan and (said == set(range(8)) or shown or not clean - said):
        assert verdict.cause != "gpu_hardware_xid"
