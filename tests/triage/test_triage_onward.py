"""A program that logs an error and goes on had caught it; who ends behind it had not."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import elastic, judged

from nodedoctor.triage.patterns.activity import ENOUGH_LINES
from nodedoctor.triage.patterns.unclassified import BYTES_BEHIND

ERROR = (
    "2026-11-07 16:57:00,627 - app - ERROR - the request failed: Error code: 400\n"
    'Traceback (most recent call last):\n  File "/job/client.py", line 34, in ask\n'
    "    raise self._of(response) from None\n"
    "openai.BadRequestError: Error code: 400 - the context is 8192 tokens long\n"
)


def ordinary(count: int) -> str:
    """Lines of the same logger."""
    return "".join(f"2026-11-07 17:04:{n:02d},678 - app - INFO - answer saved\n" for n in range(count))


@pytest.mark.parametrize("times", [1, 2])
def test_who_logs_on_had_caught_it(times: int, tmp_path: Path) -> None:
    assert judged(tmp_path, (ERROR + ordinary(3)) * times).verdict.cause == "user_code_exception"
    assert (
        judged(tmp_path, (ERROR + ordinary(3)) * times + ordinary(ENOUGH_LINES)).verdict.outcome != "failure"
    )


BARE = ERROR[ERROR.index("Traceback") :]


@pytest.mark.parametrize(
    "text",
    [
        BARE + ordinary(2 * ENOUGH_LINES),  # the interpreter's: another process goes on
        ordinary(9) + BARE + ordinary(2 * ENOUGH_LINES),
        "world size: 4\n" + ERROR + ordinary(2 * ENOUGH_LINES),
        ERROR + ordinary(2 * ENOUGH_LINES) + elastic([(0, 1)], 0),
        ERROR + ordinary(2 * ENOUGH_LINES).replace("2026", "[rank3]: 2026"),
        ordinary(2 * ENOUGH_LINES) + ERROR + ordinary(ENOUGH_LINES - 1),
    ],
)
def test_where_others_may_be_who_goes_on_it_counts(text: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, text).verdict
    assert (verdict.outcome, verdict.cause) == ("failure", "user_code_exception")


WORKS = "".join(
    f"{'abcdefgh'[n % 8]}{n}.cif is drawn as a graph of its neighbours\n" for n in range(BYTES_BEHIND // 40)
)
"""What one program says while it works, in words that nothing is read from."""
REFUSED = "usage: main.py [-h] [--optim ADAM]\nmain.py: error: unrecognized arguments: --optimizer adam\n"


@pytest.mark.parametrize("error", [REFUSED, BARE, ERROR])
def test_who_says_very_much_was_not_ended_by_an_error(error: str, tmp_path: Path) -> None:
    short = WORKS[: BYTES_BEHIND * 9 // 10]
    assert judged(tmp_path, error + short).verdict.cause == "user_code_exception"
    assert judged(tmp_path, error + WORKS).verdict.outcome != "failure"
    last = BARE.replace("BadRequestError", "RateLimitError")
    assert "RateLimitError" in judged(tmp_path, error + WORKS + last).verdict.headline


@pytest.mark.parametrize("error", ["", REFUSED, BARE])
def test_what_an_error_did_not_end_may_end_in_other_words(error: str, tmp_path: Path) -> None:
    """That there is much behind the error says nothing of a complaint that stands near the end."""
    ends = "gpu-3: bash: torchrun: command not found\n" + "the folder of the night is closed\n" * 20
    assert "torchrun" in judged(tmp_path, error + WORKS[: BYTES_BEHIND - 100] + "\n" + ends).verdict.headline


@pytest.mark.parametrize("others", ["world size: 4\n", "[rank3]: the loader is up\n", elastic([(0, 1)], 0)])
def test_very_much_of_others_is_no_sign_of_life(others: str, tmp_path: Path) -> None:
    assert judged(tmp_path, BARE + others + WORKS).verdict.cause == "user_code_exception"


@pytest.mark.parametrize(("count", "outcome"), [(4, "failure"), (30, "clean")])
def test_a_job_that_counts_behind_an_error_of_nobody_went_on(
    count: int, outcome: str, tmp_path: Path
) -> None:
    """Its counter goes on from a checkpoint, and was not there before the error; each line has its time."""
    counted = "".join(
        f"2026-11-21 10:{n:02d}:00,431 - INFO - step: {1200 + n} loss: 2.{n:03d}\n" for n in range(count)
    )
    assert judged(tmp_path, BARE + counted).verdict.outcome == outcome
