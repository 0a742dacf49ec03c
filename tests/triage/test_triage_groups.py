"""Who waits for whom over several groups, and what is said when every rank came."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import as_document, caught, culprits, judged, raised, status, steps


def test_a_cycle_between_two_groups(tmp_path: Path) -> None:
    text = "".join(
        caught(rank, seq=700, op="_ALLGATHER_BASE", numel=1024, out=4096)
        + status(rank, 700, 702, 699, "1(fsdp)")
        for rank in (0, 2)
    ) + "".join(
        caught(rank, seq=88, op="ALLTOALL_BASE", numel=512) + status(rank, 88, 90, 87, "5(ep)")
        for rank in (1, 3)
    )
    examined = judged(tmp_path, text)
    verdict = examined.verdict
    assert (verdict.cause, culprits(examined), verdict.owner) == ("collective_mismatch", [], "CODE")
    assert [who.rank for who in verdict.parties] == [0, 1, 2, 3]
    assert "fsdp" in verdict.headline and "ep" in verdict.headline
    assert "same order on all ranks" in verdict.fixes[0].text


def test_all_entered_and_none_left(tmp_path: Path) -> None:
    sizes = {"op": "_ALLGATHER_BASE", "numel": 1024, "out": 4096}
    text = "".join(caught(rank, seq=9, **sizes) for rank in range(4))  # type: ignore[arg-type]
    verdict = judged(tmp_path, text).verdict
    assert verdict.cause == "undetermined"
    assert "all 4 ranks entered" in verdict.headline and "not in these logs" not in verdict.headline


def test_a_timeout_in_the_wrong_unit(tmp_path: Path) -> None:
    verdict = judged(tmp_path, caught(0, ms=1) + caught(1, ms=1)).verdict
    assert (verdict.cause, verdict.owner) == ("timeout_too_short_legit_work", "CONFIG")


def test_every_rank_has_its_row(tmp_path: Path) -> None:
    text = "world_size=4\n" + steps(1, 9) + raised(1, "ValueError: bad shard") + caught(0) + caught(3)
    rows = as_document(judged(tmp_path, text))["ranks"]
    assert [(row["rank"], row["state"]) for row in rows] == [
        (0, "waited"),
        (1, "died"),
        (2, "missing"),
        (3, "waited"),
    ]


def test_no_credential_is_quoted(tmp_path: Path) -> None:
    text = raised(0, "ValueError: cannot fetch s3://me:hunter2secret@host/bucket")
    document = as_document(judged(tmp_path, text))
    assert document["evidence"] and "hunter2secret" not in str(document)


def test_a_page_about_a_failure_is_no_log(tmp_path: Path) -> None:
    sentence = (
        "In part {} the author explains why the job of the team stopped and what they did to repair it.\n"
    )
    told = "".join(sentence.format(number) for number in range(20))
    quoted = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    verdict = judged(tmp_path, told + quoted + told.replace("part", "chapter")).verdict
    assert (verdict.cause, verdict.confidence, verdict.culprits) == ("undetermined", "low", ())
    assert "page" in verdict.headline
    passed_on = "".join(f"gpu017: {line}\n\ngpu017:\n" for line in (told + quoted + told).splitlines())
    assert judged(tmp_path, passed_on).verdict.cause == "undetermined"
    assert judged(tmp_path, steps(1, 9) + quoted).verdict.cause == "peer_died"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("cut", [100, 115, 125, 140, 150, 170, 200])
@pytest.mark.parametrize("between", [steps(6, 1), caught(1), steps(6, 3)])
def test_a_line_that_another_one_tears_is_put_together(cut: int, between: str, tmp_path: Path) -> None:
    """What stands behind the tear is no other collective."""
    torn = caught(0)[:cut] + "\n" + between + caught(0)[cut:]
    rest = "".join(caught(rank) for rank in (1, 3) if caught(rank) != between)
    whole = judged(tmp_path, steps(1, 5) + caught(0) + between + rest)
    examined = judged(tmp_path, steps(1, 5) + torn + rest)
    assert (examined.verdict.cause, culprits(examined)) == (whole.verdict.cause, culprits(whole))


@pytest.mark.parametrize("cut", [100, 115, 125, 140, 150, 170, 200])
def test_a_line_that_breaks_off_differs_from_none(cut: int, tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 5) + caught(0)[:cut] + "\n" + caught(1) + caught(3))
    assert examined.verdict.cause != "collective_mismatch"


@pytest.mark.parametrize(("number", "compared"), [(87, True), (90, True), (1211, False), (4000, False)])
@pytest.mark.parametrize("op", ["ALLREDUCE", "BROADCAST"])
def test_numbers_far_apart_are_no_calls_of_the_same_moment(
    number: int, compared: bool, op: str, tmp_path: Path
) -> None:
    """Who waits in a broadcast that the others got long ago called nothing else than they."""
    text = "".join(caught(rank, seq=88, op="BROADCAST") for rank in (0, 2, 3))
    verdict = judged(tmp_path, text + caught(1, seq=number, op=op)).verdict
    assert (verdict.cause == "collective_mismatch") == compared
    assert compared or not verdict.culprits


def test_a_group_that_trainer_and_engine_share(tmp_path: Path) -> None:
    """Ray's prefix gives the trainer a world of its own; the group's own name joins both."""
    trainer = caught(0, seq=88, op="BROADCAST") + status(0, 88, 90, 87, "weight_sync")
    trainer = "".join(f"(FSDPPolicyWorker pid=607) {line}\n" for line in trainer.splitlines())
    engine = caught(1, seq=88, op="ALLREDUCE", numel=1) + status(1, 88, 89, 87, "weight_sync")
    verdict = judged(tmp_path, trainer + engine).verdict
    assert verdict.cause == "collective_mismatch"
    assert [who.rank for who in verdict.parties] == [0, 1]


@pytest.mark.parametrize("op", ["ALLTOALL", "ALLTOALL_BASE", "GATHER", "SCATTER"])
def test_ranks_may_exchange_as_much_as_they_like(op: str, tmp_path: Path) -> None:
    text = "".join(caught(rank, op=op, numel=1000 + rank) for rank in range(4))
    assert judged(tmp_path, steps(1, 9) + text).verdict.cause != "collective_mismatch"
    same = "".join(caught(rank, op="ALLREDUCE", numel=1000 + (rank == 2)) for rank in range(4))
    assert judged(tmp_path, steps(1, 9) + same).verdict.cause == "collective_mismatch"


def test_a_group_that_one_rank_alone_names_is_that_of_all(tmp_path: Path) -> None:
    text = caught(1, seq=413, op="_ALLGATHER_BASE") + caught(0, seq=415) + status(0, 415, 416, 414)
    verdict = judged(tmp_path, steps(1, 9) + text).verdict
    assert verdict.cause == "collective_mismatch"


@pytest.mark.parametrize("waiting", [(0, 2), (1, 2)])
def test_two_that_waited_name_no_third(waiting: tuple[int, int], tmp_path: Path) -> None:
    """Their log may have been cut before the third one's line."""
    verdict = judged(tmp_path, steps(1, 9) + "".join(map(caught, waiting))).verdict
    assert (verdict.cause, verdict.culprits) == ("undetermined", ())
    known = judged(tmp_path, "[rank0]: world_size=3\n" + "".join(map(caught, waiting))).verdict
    assert [who.rank for who in known.culprits] == [({0, 1, 2} - set(waiting)).pop()]
