"""Tracebacks as rich draws them: the calls in the box are read like those that Python prints."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.traceback import Traceback
from say import culprits, judged, steps

PROGRAM = """\
def load(path):
    rows = open(path)
    return rows


def main():
    return load("/nowhere/data.json")


main()
"""


def boxed(tmp_path: Path, width: int, error: str = "", *, show_locals: bool = False) -> str:
    """What rich prints of a program that fails."""
    file = tmp_path / ("long" * 9) / "prog.py"  # rich breaks what is too long for a row
    file.parent.mkdir()
    file.write_text(PROGRAM.replace("open(path)", error or "open(path)"))
    try:
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "__main__"})
    except Exception as raised:
        trace = Traceback.from_exception(type(raised), raised, raised.__traceback__, show_locals=show_locals)
        console = Console(file=io.StringIO(), width=width, force_terminal=False, legacy_windows=False)
        console.print(trace)
        return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]
    raise AssertionError("the program did not fail")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("show_locals", [False, True])
@pytest.mark.parametrize("front", ["", "[rank3]: "])
def test_the_last_own_call_is_named(front: str, show_locals: bool, width: int, tmp_path: Path) -> None:
    text = "".join(
        f"{front}{line}\n" for line in boxed(tmp_path, width, show_locals=show_locals).splitlines()
    )
    examined = judged(tmp_path, steps(1, 20) + text)
    assert examined.verdict.cause == "user_code_exception"
    assert "FileNotFoundError" in examined.verdict.headline and "prog.py, line 2" in examined.verdict.headline
    assert culprits(examined) == ([3] if front else [])


def test_what_is_caught_and_drawn_is_survived(tmp_path: Path) -> None:
    log = steps(1, 20) + "ERROR sample 7 failed, skipping\n" + boxed(tmp_path, 100) + steps(21, 20)
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize("package", ["wandb", "mlflow", "boto3"])
def test_a_service_outside_of_the_job_is_no_peer(package: str, tmp_path: Path) -> None:
    """The exception is the rank's own; of torch it tells that a peer ended."""
    trace = (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/w/train.py", line 55, in log\n[rank0]:     send(table)\n'
        '[rank0]:   File "/opt/lib/python3.12/site-packages/{}/sdk/sock.py", line 125, in send\n'
        "[rank0]:     self._sock.send(data)\n[rank0]: BrokenPipeError: [Errno 32] Broken pipe\n"
    )
    examined = judged(tmp_path, steps(1, 20) + trace.format(package))
    assert examined.verdict.cause == "user_code_exception" and culprits(examined) == [0]
    assert judged(tmp_path, steps(1, 20) + trace.format("torch")).verdict.cause == "peer_died"


def test_ranks_with_different_versions_of_nccl_do_not_fit(tmp_path: Path) -> None:
    error = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, error, NCCL version {}"
    trace = '[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File "t.py", line 4, in <module>\n'
    trace += "[rank{0}]:     barrier()\n[rank{0}]: {1}\n"
    old, new = error.format("2.20.5"), error.format("2.21.5")
    differ = judged(tmp_path, trace.format(0, new) + trace.format(1, old) + trace.format(2, new)).verdict
    assert differ.cause == "version_mismatch"
    assert "2.20.5 on rank 1" in differ.headline and "2.21.5 on ranks 0 and 2" in differ.headline
    assert judged(tmp_path, trace.format(0, new) + trace.format(1, new)).verdict.cause != "version_mismatch"
