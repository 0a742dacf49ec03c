"""Logs of several ranks in one file, by tail, cat, more or a person, are read as in a folder."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.read.joined_files import split_joined

STEP = "2026-11-12 02:{minute:02}:{second:02},000 INFO rank={rank} step {step} loss 2.{step:03}\n"
CAUGHT = (
    "[rank{rank}]:[E1112 03:00:0{rank}.755962986 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=4411, OpType={op}, NumelIn=4096, NumelOut=4096,"
    " Timeout(ms)=600000) ran for 600017 milliseconds before timing out.\n"
)
Logs = Mapping[str, str]


def stepping(rank: int, steps: int, last: str = "") -> str:
    rows = (STEP.format(rank=rank, step=step, minute=step, second=rank) for step in range(steps))
    return "".join(rows) + last


JOBS: dict[str, tuple[Logs, str, list[int]]] = {
    "a rank in another collective": (
        {
            f"rank{rank}.log": stepping(rank, 40, CAUGHT.format(rank=rank, op=op))
            for rank, op in enumerate(["ALLREDUCE", "ALLREDUCE", "ALLGATHER", "ALLREDUCE"])
        },
        "collective_mismatch",
        [2],
    ),
    "a rank that raised, and those that waited": (
        {
            f"rank{rank}.log": stepping(rank, 40, CAUGHT.format(rank=rank, op="ALLREDUCE"))
            if rank != 1
            else stepping(
                1,
                30,
                'Traceback (most recent call last):\n  File "/job/train.py", line 41, in <module>\n'
                "    loss = step(batch)\nKeyError: 'labels'\n",
            )
            for rank in range(4)
        },
        "user_code_exception",
        [1],
    ),
    "a job that goes on": ({f"rank{rank}.log": stepping(rank, 50) for rank in range(4)}, "none", []),
}  # fmt: skip

WAYS: dict[str, Callable[[str, str], str]] = {
    "tail": lambda name, text: f"==> {name} <==\n{text}\n",
    "more": lambda name, text: f"{':' * 14}\n{name}\n{':' * 14}\n{text}",
    "a person": lambda name, text: f"=== {name} ===\n{text}\n",
    "a shell": lambda name, text: f"me@login:~/run$ tail -n 300 logs/{name}\n{text}",
    "cat": lambda _, text: text,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", JOBS)
def test_logs_in_one_file_are_judged_as_in_a_folder(name: str, how: str, tmp_path: Path) -> None:
    logs, cause, ranks = JOBS[name]
    folder, joined = tmp_path / "run", tmp_path / "all.log"
    folder.mkdir()
    for log, text in logs.items():
        (folder / log).write_text(text)
    joined.write_text("".join(WAYS[how](log, text) for log, text in logs.items()))
    for path in (folder, joined):
        result = examine_job([str(path)])
        assert (result.verdict.cause, [who.rank for who in result.verdict.culprits]) == (cause, ranks)
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.write(joined, "all.log")
    packed = examine_job([str(tmp_path / "logs.zip")])
    assert (packed.verdict.cause, [who.rank for who in packed.verdict.culprits]) == (cause, ranks)
    for event in result.verdict.evidence:
        number = result.lines.line_of(event)
        assert number is not None and event.text in joined.read_text().splitlines()[number - 1]


def test_a_clock_that_goes_back_for_the_same_rank_is_one_log() -> None:
    """Restarts, time zones and two ways to write the time are no other process's log."""
    first, second = stepping(0, 30), stepping(0, 20)
    assert split_joined((first + second).encode()) == ()
    mixed = "".join(
        STEP.format(rank=n % 4, step=n, minute=n % 60, second=0)
        + f"[rank{n % 4}]:[W1112 01:{n % 60:02}:00.1 x] note\n"
        for n in range(50)
    )
    assert split_joined(mixed.encode()) == ()


def test_one_heading_and_names_in_texts_split_nothing() -> None:
    text = stepping(0, 9) + "==> saved to out.log <==\n" + stepping(0, 9)
    assert split_joined(text.encode()) == ()
    attached = "Attached:\n## rank0.log\n## rank1.log\n- rank2.log\n- rank3.log\n"
    assert split_joined((attached + stepping(3, 9)).encode()) == ()
    names = "--- Logging error ---\n=== metrics.json ===\n$ python train.py\n$ nvidia-smi\n"
    assert split_joined((names + stepping(0, 3)).encode()) == ()


@given(
    st.lists(
        st.sampled_from(
            ["==> a.log <==", "==> b.log <==", "$ cat a.log", "$ cat b.err", "rank 1 2026-01-01 10:00:00"]
        )
        | st.text(max_size=30),
        max_size=30,
    )
)
def test_parts_lie_in_the_file_one_behind_the_other(lines: list[str]) -> None:
    data = "\n".join(lines).encode()
    position = 0
    for part in split_joined(data):
        assert position <= part.begin < part.end <= len(data)
        position = part.end
