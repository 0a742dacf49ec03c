"""Messages of errors speak of what is skipped and expected; programs do behind them."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, judged, steps

MESSAGES = (
    "features have excessive nesting (inputs type `list` where type `int` is expected).",
    "sample 41 has no answer, and was ignored",
    "some rows will be skipped",
    "fallback tokenizer is not available",
    "attribute 'recovered' is missing",
    "a bytes-like object is expected",
    "max retries reached for sample 12",
)
SUITE = "tests/test_dist.py::test_timeout PASSED\n{}======== 41 passed, 2 skipped in 311.20s ========\n"


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("rank", [0, 3])
def test_a_message_handles_nothing(message: str, rank: int, tmp_path: Path) -> None:
    waits = "".join(caught(other) for other in range(4) if other != rank)
    examined = judged(tmp_path, steps(1, 20) + f"[rank{rank}]: ValueError: {message}\n" + waits)
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [rank])


@pytest.mark.parametrize("behind", ["; skipping sample 41", " -> retrying", ", skipping", " (ignored)"])
def test_a_program_handles_an_error_behind_its_message(behind: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 20) + f"[rank3]: ValueError: bad row 41{behind}\n" + steps(21, 20))
    assert examined.verdict.outcome in ("clean", "recovered")


@pytest.mark.parametrize("error", [caught(1, ms=100), "[rank1]: RuntimeError: wanted by the test\n"])
def test_what_passed_tests_print_is_no_failure(error: str, tmp_path: Path) -> None:
    assert judged(tmp_path, SUITE.format(error)).verdict.outcome == "clean"


@pytest.mark.parametrize("total", ["1 failed, 40 passed", "41 passed, 1 error"])
def test_tests_that_failed_pass_nothing(total: str, tmp_path: Path) -> None:
    log = SUITE.format(caught(1)).replace("41 passed, 2 skipped", total)
    assert judged(tmp_path, log).verdict.outcome != "clean"


def test_what_a_test_printed_is_no_event_of_a_job(tmp_path: Path) -> None:
    xid = "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."
    test = "tests/test_parser.py::test_xid[{n}] "
    log = "".join(f"{test}captured log: {xid}\n{test}PASSED\n".replace("{n}", str(n)) for n in range(9))
    assert judged(tmp_path, log).verdict.cause != "gpu_hardware_xid"
    assert judged(tmp_path, log.replace("tests/test_parser.py::", "")).verdict.cause == "gpu_hardware_xid"
