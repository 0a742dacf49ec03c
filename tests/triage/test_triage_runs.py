"""Runs appended to one log, and inputs that hold no job: the last run is judged, the others are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from say import as_document, caught, culprits, judged, raised, steps
from schemas import assert_fits_schema

from nodedoctor.report import html, job_text
from nodedoctor.triage.cli import main

BANNER = (
    "W1121 10:00:00.000000 3999 torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable"
    " for each process to be 1 in default, to avoid your system being overloaded\n"
)
DEAD = BANNER + steps(0, 5) + raised(2, "ValueError: bad shard") + caught(0) + caught(1) + caught(3)
WELL = BANNER + steps(0, 9) + "Training completed.\n"


def test_an_earlier_death_is_told_of_a_job_that_recovered(tmp_path: Path) -> None:
    document = as_document(judged(tmp_path, DEAD + BANNER + steps(3, 20) + "Training completed.\n"))
    assert document["outcome"] == "recovered"
    (run,) = document["earlier"]
    assert (run["outcome"], run["cause"]) == ("failure", "user_code_exception")
    assert [who["rank"] for who in run["culprits"]] == [2]
    assert run["evidence"][0]["line"] == DEAD.splitlines().index("[rank2]: ValueError: bad shard") + 1
    assert_fits_schema(document, "triage")
    for view in (job_text.render(document), html.render(document)):
        assert "Earlier runs in these logs" in view and "bad shard" in view


def test_a_run_that_ended_well_is_not_mixed_with_the_next(tmp_path: Path) -> None:
    examined = judged(tmp_path, WELL + DEAD)
    document = as_document(examined)
    assert document["cause"] == "user_code_exception" and culprits(examined) == [2]
    assert [run["outcome"] for run in document["earlier"]] == ["clean"]
    assert document["incidents"] == 1


def test_runs_are_in_their_order(tmp_path: Path) -> None:
    other = BANNER + steps(0, 5) + raised(1, "KeyError: 'tokens'") + caught(0) + caught(2) + caught(3)
    document = as_document(judged(tmp_path, DEAD + other + BANNER + steps(0, 30)))
    assert [run["culprits"][0]["rank"] for run in document["earlier"]] == [2, 1]


def test_attempts_of_several_logs_belong_together(tmp_path: Path) -> None:
    """Each rank has a log of its own, and each of them holds both attempts."""
    first = [raised(rank, "ValueError: bad shard") if rank == 2 else caught(rank) for rank in range(4)]
    second = [raised(rank, "KeyError: 'x'") if rank == 0 else caught(rank) for rank in range(4)]
    logs = [BANNER + a + BANNER + b for a, b in zip(first, second, strict=True)]
    logs[2] = BANNER + steps(0, 3) + first[2] + caught(2, seq=1) + BANNER + second[2]
    examined = judged(tmp_path, *logs)
    assert culprits(examined) == [0]
    assert [who.rank for who in examined.verdict.earlier[-1].culprits] == [2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("hello\nworld\n", "no line of a job"),
        ("# DeepSpeed examples\nInstall transformers first.\n", "no line of a job"),
    ],
)
def test_what_holds_no_job_is_said(text: str, said: str, tmp_path: Path) -> None:
    document = as_document(judged(tmp_path, text))
    assert (document["outcome"], document["cause"]) == ("nothing", "undetermined")
    assert said in document["headline"]
    assert_fits_schema(document, "triage")
    assert "confidence" not in job_text.render(document)


def test_an_empty_folder_holds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--json", "--no-node"]) == 3
    assert json.loads(capsys.readouterr().out)["outcome"] == "nothing"


def test_a_view_names_jobs_missing_ranks_and_what_was_not_read() -> None:
    document = {
        "schema": "nodedoctor.triage/1",
        "outcome": "undetermined",
        "cause": "undetermined",
        "confidence": "low",
        "headline": "a rank waited",
        "unread_lines": 17,
        "jobs": [
            {"id": "4711", "hosts": ["n1", "n2"], "world": 16, "first": "11-21 08:00:00.000", "judged": False,
             "last": "11-21 09:00:00.000", "outcome": "failure", "cause": "peer_died"},
            {"id": "4712", "hosts": [], "world": None, "first": None, "last": None, "judged": True,
             "outcome": "clean", "cause": "none"},
        ],
        "coverage": {"files": 2, "ranks_missing_spans": [[8, 15], [17, 17]], "ranks_expected": 18},
    }  # fmt: skip
    for view in (job_text.render(document), html.render(document)):
        for said in (
            "8-15, 17",
            "17 lines or files",
            "4711",
            "16 ranks",
            "11-21 08:00 to 11-21 09:00",
            "4712",
        ):
            assert said in view


def test_a_log_that_stops_in_the_set_up_is_no_empty_one(tmp_path: Path) -> None:
    document = as_document(judged(tmp_path, "NCCL version 2.21.5+cuda12.4\n"))
    assert document["outcome"] == "undetermined" and "set up" in document["headline"]


def _announced(agents: range, error: str) -> str:
    """What each agent of a job says where a rank of its own failed."""
    return "".join(
        f"[pod/ft-worker-{agent}/trainer] {line}\n"
        for agent in agents
        for line in (
            f"[rank{agent}]: {error}",
            "I1102 00:06:59.200000 1 torch/distributed/elastic/agent/server/api.py:914] [default] Worker"
            " group FAILED. 3/3 attempts left; will restart worker group",
        )
    )


def _worked(first: int) -> str:
    return "".join(f"[pod/ft-worker-0/trainer] {line}\n" for line in steps(first, 9).splitlines())


@pytest.mark.parametrize("agents", [range(1), range(2), range(4)])
@pytest.mark.parametrize("restarts", [1, 2])
def test_one_restart_that_several_agents_announce_is_one(
    agents: range, restarts: int, tmp_path: Path
) -> None:
    failed = _announced(agents, "torch.distributed.DistBackendError: NCCL error, remote process exited")
    log = "".join(_worked(1 + 9 * number) + failed for number in range(restarts))
    verdict = judged(tmp_path, log + _worked(28) + "Training completed.\n").verdict
    assert verdict.outcome == "recovered"
    assert f"after {restarts} run{'s' if restarts > 1 else ''} that failed" in verdict.headline


def test_an_agent_that_announces_again_and_again_restarts_as_often(tmp_path: Path) -> None:
    failed = _announced(range(2), "torch.distributed.DistBackendError: NCCL error, remote process exited")
    verdict = judged(tmp_path, _worked(1) + failed * 3 + _worked(28) + "Training completed.\n").verdict
    assert "after 3 runs that failed" in verdict.headline


@pytest.mark.parametrize("error", ["ERROR: sample 7 could not be read\n", raised(1, "KeyError: 7")])
def test_a_run_that_went_on_behind_its_errors_did_not_fail(error: str, tmp_path: Path) -> None:
    well = BANNER + steps(0, 9) + error + steps(9, 50) + "Training completed.\n"
    assert judged(tmp_path, well + WELL).verdict.outcome == "clean"
    assert judged(tmp_path, DEAD + well).verdict.outcome == "recovered"


@pytest.mark.parametrize("came_to", [12, 25])
def test_a_rank_that_counts_again_behind_what_it_raised_was_started_again(
    came_to: int, tmp_path: Path
) -> None:
    """From the last checkpoint, and further than before; until then nothing shows that it passes it."""
    again = "".join(f"step {n} loss: 2.{n} lr: 1e-4\n" for n in range(5, came_to))
    error = raised(3, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB.")
    verdict = judged(tmp_path, steps(1, 15) + error + again).verdict
    assert (verdict.outcome == "recovered") == (came_to > 16)
