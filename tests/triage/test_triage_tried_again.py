"""Runs that a script tries again, and work that nobody counts or that only Ray Tune does."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import elastic, judged, steps

ERROR = (
    "Traceback (most recent call last):\n"
    '  File "/job/fetch.py", line 34, in <module>\n'
    "    main()\n"
    "httpx.ReadTimeout: the server did not answer\n"
)
HEADINGS = ["=== export try {n}/7 ===", "Attempt {n} of 7", "[run.sh] retry #{n}", "--- Try {n} ---"]


@pytest.mark.parametrize("heading", HEADINGS)
@pytest.mark.parametrize("end", ["succeeded on try 3\n", "all jobs finished\n", steps(1, 9)])
def test_the_last_try_of_a_script_counts(heading: str, end: str, tmp_path: Path) -> None:
    tries = [heading.format(n=n) + "\nasking for the weights\n" for n in (1, 2, 3)]
    verdict = judged(tmp_path, ERROR.join(tries) + end).verdict
    assert (verdict.outcome, len(verdict.earlier)) == ("recovered", 2)
    assert judged(tmp_path, ERROR.join(tries) + ERROR).verdict.outcome == "failure"
    assert (
        judged(tmp_path, ERROR.join(tries[:2])).verdict.outcome == "failure"
    )  # nothing is known of the second


@pytest.mark.parametrize(
    "line",
    [
        "Attempt 3 of 7: the connection was refused",
        "[rank2]: Attempt 3 of 7",
        "try 3 more kernels of 7 nodes",
    ],
)
def test_who_only_speaks_of_a_try_begins_none(line: str, tmp_path: Path) -> None:
    text = f"{line.replace('3', '2')}\n{ERROR}{line}\n{steps(1, 2)}"
    assert judged(tmp_path, text).verdict.outcome == "failure"


def test_a_try_that_does_not_go_on_from_the_one_before_begins_none(tmp_path: Path) -> None:
    text = f"Attempt 1 of 7\n{ERROR}Attempt 1 of 7\n{steps(1, 2)}"
    assert judged(tmp_path, text).verdict.outcome == "failure"


def tune(iterations: int, status: str = "RUNNING", border: str = "|") -> str:
    """Ray Tune's table of one trial."""
    rows = [
        ("Trial name", "status", "loc", "iter", "total time (s)"),
        ("PPO_duel_00000", status, "10.4.0.17:4100", str(iterations), f"{31.5 * iterations}"),
    ]
    pad = " | " if border == "|" else "  "
    table = "".join(f"{border} {pad.join(f'{cell:16}' for cell in row)} {border}\n" for row in rows)
    return f"== Status ==\n{table}Number of trials: 1/1 (1 {status})\n\n"


@pytest.mark.parametrize("border", ["|", "│"])
def test_tunes_table_counts(border: str, tmp_path: Path) -> None:
    text = "".join(tune(n, border=border) for n in range(1, 9))
    verdict = judged(tmp_path, text).verdict
    assert (verdict.outcome, verdict.confidence) == ("clean", "high")
    still = tune(8, border=border) * 8
    assert judged(tmp_path, still).verdict.outcome == "undetermined"
    assert judged(tmp_path, text + elastic([(0, 1)], 0)).verdict.outcome != "clean"
    assert judged(tmp_path, still + tune(8, "TERMINATED", border)).verdict.outcome == "clean"


def test_trials_that_began_again_are_another_run(tmp_path: Path) -> None:
    run = "INFO loader.py:31 -- reading the maps\nINFO agent.py:70 -- two agents play\n"
    failed = ERROR.replace("httpx.ReadTimeout: the server did not answer", "RuntimeError: m1 is 16 x 4608")
    text = (
        run + "".join(tune(n) for n in range(1, 90)) + failed + run + "".join(tune(n) for n in range(1, 30))
    )
    assert judged(tmp_path, text).verdict.outcome == "recovered"


LOSSES = [
    "LR: 0.00{n}, Acc: 98.1, Loss: 0.{n}31",
    "train_loss=1.{n} seen",
    '{{"loss": "2.{n}", "ppl": "11.{n}"}}',
    "loss 0.{n} over all",
]


@pytest.mark.parametrize("form", LOSSES)
def test_a_loss_that_changes_is_work(form: str, tmp_path: Path) -> None:
    losses = "".join(form.format(n=n) + "\n" for n in range(11, 40))
    verdict = judged(tmp_path, losses).verdict
    assert (verdict.outcome, verdict.confidence) == ("clean", "medium")
    assert judged(tmp_path, (form.format(n=11) + "\n") * 40).verdict.outcome != "clean"
    assert judged(tmp_path, losses[: len(losses) // 5]).verdict.outcome != "clean"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("form", LOSSES)
@pytest.mark.parametrize(
    "end",
    [
        ERROR,
        elastic([(2, -9)], 2),
        "could not write the weights: the quota is exceeded\n",
        "Segmentation fault\n",
    ],
)
def test_a_loss_overcomes_nothing(form: str, end: str, tmp_path: Path) -> None:
    losses = "".join(form.format(n=n) + "\n" for n in range(11, 40))
    assert judged(tmp_path, losses + end).verdict.outcome not in ("clean", "recovered")
    assert judged(tmp_path, end + losses).verdict.outcome not in ("clean", "recovered")


SUBJECTS = ("trial fit_6ab02_00002", "shard part-00017", "request r9f2c1")
OUTCOMES = (
    "{} will be retried from its last checkpoint with all of its settings",
    "retrying {} in 30 s once a slot of the cluster is free",
    "{} was put back in the queue of the controller behind all others",
)
FAILED = (
    "Traceback (most recent call last):\n"
    '  File "/job/pool.py", line 110, in resolve\n    result = ray.get(future)\n'
    "ray.exceptions.RayTaskError(RuntimeError): ray::Fit.train() (pid=902, ip=10.0.0.7)\n"
    "RuntimeError: DataLoader worker (pid 913) exited unexpectedly with exit code 1\n"
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_what_failed_by_its_name_and_is_tried_again_decides_nothing(
    subject: str, outcome: str, tmp_path: Path
) -> None:
    announced = f"2026-11-07 10:41:25,002 ERROR controller.py:31 -- Work failed for {subject}\n"
    again = f"2026-11-07 10:41:25,010 INFO controller.py:74 -- {outcome}\n"
    verdict = judged(tmp_path, steps(1, 9) + announced + FAILED + again.format(subject)).verdict
    assert verdict.cause not in ("peer_died", "user_code_exception")
    for other in ("trial x_9", "shard p-4", "the last of them"):
        verdict = judged(tmp_path, steps(1, 9) + announced + FAILED + again.format(other)).verdict
        assert verdict.cause in ("peer_died", "user_code_exception")
