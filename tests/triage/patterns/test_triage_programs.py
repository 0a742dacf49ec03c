"""What JAX, inference engines, HCCL, AMD's driver, NCCL's last error and kept stacks say of a failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from say import as_document, culprits, judged
from say_programs import SAID

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.model import Identity


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SAID)
def test_what_is_said(name: str, tmp_path: Path) -> None:
    text, cause, named = SAID[name]
    examined = judged(tmp_path, text)
    people = [who.host if who.rank is None else who.rank for who in examined.verdict.culprits]
    assert (examined.verdict.cause, people) == (cause, named)
    assert examined.verdict.outcome in ("failure", "undetermined")


def test_three_of_three_logs_name_who_did_not_come(tmp_path: Path) -> None:
    line = "[rank{}]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. "
    examined = judged(tmp_path, *(line.format(rank) + "3/4 clients joined.\n" for rank in (0, 1, 3)))
    assert culprits(examined) == [2]
    assert "1 of 4 processes never joined" in examined.verdict.headline


@pytest.mark.parametrize(
    "said", ["Cuda failure 719 'unspecified launch failure'", "NET/Plugin: bad handshake 17"]
)
def test_the_line_behind_last_error_is_read(said: str, tmp_path: Path) -> None:
    head = "DistBackendError: NCCL error in: x.cpp:1, unhandled cuda error, NCCL 2.27.5\n"
    document = as_document(
        judged(tmp_path, f"{head}ncclInternalError: Internal check failed.\nLast error:\n{said}\n")
    )
    assert said in str(document["headline"]) + str([line["text"] for line in document["evidence"]])


def test_error_files_of_torchelastic_name_their_rank(tmp_path: Path) -> None:
    for rank, said in ((0, "RuntimeError: NCCL communicator was aborted"), (1, "ValueError: bad shard 17")):
        folder = tmp_path / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        trace = f'Traceback (most recent call last):\n  File "x.py", line 3, in main\n    load()\n{said}\n'
        message = {"message": said, "extraInfo": {"py_callstack": trace, "timestamp": f"179524030{rank}"}}
        (folder / "error.json").write_text(json.dumps({"message": message}))
    examined = examine_job([str(tmp_path)])
    assert examined.verdict.cause == "user_code_exception" and culprits(examined) == [1]


def stack(pid: int, *frames: str) -> str:
    """A dump of py-spy."""
    head = f"Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {pid} (active)"
    idle = 'Thread 77 (idle): "Thread-1"\n    wait (threading.py:331)\n'
    return head + ': "MainThread"\n' + "".join(f"    {frame}\n" for frame in frames) + idle


WAITS = ("all_reduce (torch/distributed/distributed_c10d.py:2501)", "step (train.py:40)")
READS = ("read (ssl.py:1103)", "load (train.py:12)")


def test_kept_stacks_show_who_is_elsewhere(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"rank{rank}.txt").write_text(stack(4000 + rank, *(READS if rank == 2 else WAITS)))
    examined = examine_job([str(tmp_path)])
    assert examined.verdict.cause == "cpu_stuck_or_slow_rank" and culprits(examined) == [2]
    assert "read (ssl.py:1103)" in examined.verdict.headline


NOTES = (
    ("# rank {}\n", ""), ("=== rank {} ===\n", ""), ("rank {}:\n", ""), ("", "   # rank {}"),
    ("node-1$ py-spy dump --pid {pid}  # Rank {}\n", ""), ("**rank={}** (node-1, local rank 7)\n", ""),
)  # fmt: skip


@pytest.mark.parametrize("note", NOTES)
def test_a_note_beside_a_kept_stack_says_whose_it_is(note: tuple[str, str], tmp_path: Path) -> None:
    above, behind = note
    text = ""
    for rank in (5, 6):
        dump = stack(4000 + rank, *(READS if rank == 6 else WAITS))
        dump = dump.replace("python train.py", "python train.py" + behind.format(rank))
        text += above.format(rank, pid=4000 + rank) + dump + "\n"
    examined = judged(tmp_path, text)
    assert examined.verdict.cause == "cpu_stuck_or_slow_rank" and culprits(examined) == [6]


def test_a_sentence_about_several_ranks_is_no_note_of_one(tmp_path: Path) -> None:
    text = (
        "rank 0 waits for rank 1:\n" + stack(4005, *READS) + "\nall are like rank 0\n\n" + stack(4006, *WAITS)
    )
    assert culprits(judged(tmp_path, text)) == [None]


def test_one_kept_stack_accuses_nobody(tmp_path: Path) -> None:
    examined = judged(tmp_path, stack(4000, *READS))
    assert examined.verdict.outcome == "undetermined" and not culprits(examined)
    assert "ssl.py" in examined.verdict.evidence[0].text


@pytest.mark.parametrize(
    ("world", "role"),
    [
        ("PolicyModelActor", "policy"),
        ("RefWorker", "reference"),
        ("ReferenceModelActor", "reference"),
        ("ActorRolloutRefWorker", "policy"),
        ("CriticWorker", "critic"),
        ("RewardModelActor", "reward"),
        ("AsyncVLLMInferenceEngine", "rollout"),
        ("WorkerDict", ""),
        ("default", ""),
        ("Refinery", ""),
    ],
)
def test_roles_by_the_names_of_actors(world: str, role: str) -> None:
    assert Identity(world=world).role == role


def test_a_headline_says_the_role(tmp_path: Path) -> None:
    who = "(PolicyWorker pid=42) [rank3]: "
    text = f"{who}Traceback (most recent call last):\n{who}ValueError: x\n"
    document = as_document(judged(tmp_path, text))
    assert document["headline"].startswith("policy rank 3") and document["culprits"][0]["role"] == "policy"
