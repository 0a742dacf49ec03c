"""What failed in one way and worked in another one failed nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, raised, steps

ERRORS = {
    "make": "make[1]: *** [Makefile:9: all] Error 1\nmake: *** [Makefile:2: all] Error 2\n",
    "a logger": "2026-11-21 10:00:00,123 ERROR kernel.py:88 no wheel fits this compiler\n",
    "a tool": "error: the archive has no index\n",
}
TRIES = (
    "build failed, trying cmake ...",
    "could not build: trying the cmake instead",
    "failed with code 2, retrying with cmake",
    "build error - switching to cmake",
)
WORKED = ("llama.cpp built with cmake", "cmake succeeded", "Conversion by cmake completed! Output: out.gguf")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("worked", WORKED)
def test_another_way_that_worked_ends_well(error: str, tries: str, worked: str, tmp_path: Path) -> None:
    log = steps(1, 20) + ERRORS[error] + tries + "\n" + "-- Configuring\n" * 9 + worked + "\n"
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    "end",
    [
        "",
        TRIES[0] + "\n",
        TRIES[0] + "\nggml built with ninja\n",
        TRIES[0] + "\ncmake not completed\n",
        TRIES[0] + "\ncmake could not be completed: no compiler\n",
        "llama.cpp built with cmake\n",
    ],
)
def test_without_its_success_the_error_counts(error: str, end: str, tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 20) + ERRORS[error] + end).verdict.outcome != "clean"


@pytest.mark.parametrize("error", ["make", "a logger"])
def test_an_error_of_another_place_counts(error: str, tmp_path: Path) -> None:
    went_on = TRIES[0] + "\n" + WORKED[0] + "\n"
    for log in (went_on + ERRORS[error], ERRORS[error] + "loading shards\n" * 9 + went_on):
        assert judged(tmp_path, steps(1, 20) + log).verdict.outcome != "clean"


def test_what_was_raised_is_more_than_announced(tmp_path: Path) -> None:
    log = steps(1, 20) + raised(2, "ValueError: no kernel") + TRIES[0] + "\n" + WORKED[0] + "\n"
    assert judged(tmp_path, log).verdict.cause == "user_code_exception"
