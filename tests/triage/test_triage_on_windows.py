"""How processes end on Windows, in the words of launchers, subprocess and PyCharm."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, judged, steps

CODES = {0xC0000005: "SIGSEGV", 0xC00000FD: "SIGSEGV", 0xC0000409: "SIGABRT", 0xC0000374: "SIGABRT"}
TELLERS = {
    "torchrun": "torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {}) local_rank: 0"
    " (pid: 4711) of binary: D:\\py\\python.exe",
    "subprocess": "subprocess.CalledProcessError: Command '['D:\\\\py\\\\python.exe', 'train.py']' returned"
    " non-zero exit status {}.",
    "PyCharm": "Process finished with exit code {}",
    "a launcher": "Process 7 exited with code {}",
    "DeepSpeed": "['python', '-u', 'train.py', '--local_rank=0'] exits with return code = {}",
}
UNSIGNED = ("subprocess",)
"""Tellers that never write a code as the negative number that C makes of it."""
TOLD = [(name, signed) for name in TELLERS for signed in (False, True) if not signed or name not in UNSIGNED]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("teller", "signed"), TOLD)
@pytest.mark.parametrize("code", CODES, ids=hex)
def test_the_codes_of_windows_are_faults(code: int, teller: str, signed: bool, tmp_path: Path) -> None:
    told = TELLERS[teller].format(code - (1 << 32) if signed else code)
    verdict = judged(tmp_path, steps(1, 9) + told + "\n").verdict
    assert verdict.cause == "peer_died"
    assert CODES[code] in verdict.headline


@pytest.mark.parametrize("code", [1, 2, 3, 255, -1, 100000])
def test_a_program_that_pycharm_saw_fail_is_not_going_on(code: int, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 9) + f"\nProcess finished with exit code {code}\n").verdict
    assert (verdict.outcome, verdict.cause) == ("undetermined", "undetermined")


@pytest.mark.parametrize("code", ["130 (interrupted by signal 2: SIGINT)", "-1073741510 (0xC000013A)"])
def test_one_that_was_interrupted_was_stopped_by_a_person(code: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 9) + f"\nProcess finished with exit code {code}\n").verdict
    assert (verdict.outcome, verdict.cause) == ("clean", "none")


def test_one_that_ended_well_is_done(tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 9) + "\nProcess finished with exit code 0\n").verdict
    assert (verdict.outcome, verdict.cause) == ("clean", "none")


@pytest.mark.parametrize(
    "said",
    [
        "OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading"
        ' "D:\\py\\torch\\lib\\cublas64.dll" or one of its dependencies.',
        "(raylet) [2026-01-07 11:20:11,003 C 210 210] (raylet.exe) dlmalloc.cc:129:  Check failed: p !="
        " nullptr CreateFileMapping() failed. GetLastError() = 1455",
    ],
)
def test_no_memory_to_promise_is_memory(said: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 9) + said + "\n").verdict
    assert verdict.cause == "peer_host_oom"
    assert "Windows" in verdict.headline


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: Distributed package doesn't have NCCL built in",
        "RuntimeError: Distributed package doesn't have MPI built in",
        "torch.distributed.DistStoreError: use_libuv was requested but PyTorch was built without libuv"
        " support, run with USE_LIBUV=0 to disable it.",
    ],
)
def test_what_this_torch_was_built_without(error: str, rank: int, tmp_path: Path) -> None:
    trace = (
        f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "D:\\job\\x.py", line 7\n'
    )
    examined = judged(tmp_path, f"{trace}[rank{rank}]: {error}\n")
    assert (examined.verdict.cause, culprits(examined)) == ("version_mismatch", [rank])
    assert any("gloo" in fix.text for fix in examined.verdict.fixes)
