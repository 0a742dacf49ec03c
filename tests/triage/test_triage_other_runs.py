"""Runs beside the judged one: earlier launches, what people write of them, documents in their folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, judged

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.verdict.result import TriageResult

STEPS = "".join(f"step {n} loss {2 - n / 100}\n" for n in range(30))
DONE = "{'train_runtime': 1022.1, 'train_samples_per_second': 3.2, 'train_loss': 1.6, 'epoch': 1.0}\n"
XID = "`NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus`"
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB.\n"


def judged_folder(folder: Path, logs: dict[str, str]) -> TriageResult:
    for name, text in logs.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return examine_job([str(folder)])


def launch(pid: int) -> str:
    return "".join(
        f"n1:{pid + rank}:{pid + 90 + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank}"
        f" nranks 4 cudaDev {rank} busId {rank + 1}b000 commId 0xbf - Init COMPLETE\n"
        for rank in range(4)
    )


@pytest.mark.parametrize("names", [("run_0800.log", "run_0815.log"), ("try-1.txt", "try-2.txt")])
def test_a_rank_with_another_process_is_of_another_launch(names: tuple[str, str], tmp_path: Path) -> None:
    failed = launch(80) + STEPS + f"[rank3]: {FULL}"
    ended = launch(180) + STEPS + "[after training is done] datetime: 2026-01-30 09:12:10\n"
    examined = judged_folder(tmp_path / "a", dict(zip(names, (failed, ended), strict=True)))
    assert examined.verdict.outcome == "clean"
    examined = judged_folder(tmp_path / "b", dict(zip(names, (ended, failed), strict=True)))
    assert (examined.verdict.cause, culprits(examined)) == ("peer_cuda_oom", [3])


@pytest.mark.parametrize("before", ["last week's run-7 died from", "for reference, run-7 died from"])
def test_an_error_of_another_run_is_no_error_of_this_one(before: str, tmp_path: Path) -> None:
    assert (
        judged(tmp_path, f"ina  09:00\n({before} {XID}, that node is drained)\n{STEPS}").verdict.outcome
        == "clean"
    )
    examined = judged(tmp_path, f"ina  09:00\n(our run died from {XID})\n{STEPS}")
    assert examined.verdict.cause == "gpu_hardware_xid"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("README.md", "CUDA out of memory -> lower batch\n"),
        ("notes.txt", "* CUDA out of memory? use --micro-batch 1\nToo many open files -> ulimit -n 65536\n"),
        ("launch.sh", "#!/bin/bash\n# torch.OutOfMemoryError: CUDA out of memory.\ntorchrun train.py\n"),
        ("config.yaml", "# KeyError: 'answer' -> regenerate the dataset\nlr: 0.1\n"),
    ],
)
def test_a_document_beside_a_job_that_ended_decides_nothing(name: str, words: str, tmp_path: Path) -> None:
    assert judged_folder(tmp_path / "a", {"job.log": STEPS + DONE, name: words}).verdict.outcome == "clean"
    failed = {"job.log": STEPS + FULL, name: words}
    assert judged_folder(tmp_path / "b", failed).verdict.cause == "peer_cuda_oom"


@pytest.mark.parametrize("folder", ["rank3-crash", "rank3", "debug_rank_3"])
def test_a_folder_of_all_files_is_no_rank(folder: str, tmp_path: Path) -> None:
    text = "srun: error: gpu-b07: task 9: Out Of Memory\n"
    examined = judged_folder(tmp_path / folder, {"slurm.out": STEPS + text, "other.log": STEPS})
    assert culprits(examined) == [9]


def test_numbers_of_nodes_are_no_ranks(tmp_path: Path) -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB. GPU 5 has 79.11 GiB\n"
    logs = {f"node{n}.log": STEPS + (error if n == 2 else "") for n in range(4)}
    assert culprits(judged_folder(tmp_path / "nodes", logs)) in ([], [None])
    logs = {f"node{n}.log": f"world_size=4\n{STEPS}" + (error if n == 2 else "") for n in range(4)}
    assert culprits(judged_folder(tmp_path / "ranks", logs)) == [2]


@pytest.mark.parametrize(
    "words",
    [
        "Hi, my job 99120 (16 GPUs) shows no new output since yesterday 18:40.",
        "The run is stuck. Please help.",
        "it has been hanging for 14 hours",
        "Subject: job hangs",
    ],
)
def test_what_a_person_says_of_a_hang_is_heard_in_front_of_the_log(words: str, tmp_path: Path) -> None:
    log = "".join(
        f"[rank0]:[titan] 2026-06-03 18:20:{n:02d},522 - root - INFO - step: {n} loss: {2 - n / 60:.2f}\n"
        for n in range(40)
    )
    assert judged(tmp_path, f"{words}\n\n{log}").verdict.outcome == "undetermined"
    assert judged(tmp_path, f"Is it always that slow?\n\n{log}").verdict.outcome == "clean"
    assert judged(tmp_path, f"{words}\n\n{log}{DONE}").verdict.outcome == "clean"


ELASTIC = """\
I0311 09:59:51.1 77 torch/distributed/elastic/agent/server/api.py:525] [default] Rendezvous complete for\
 workers. Result:
  group_rank={rank}
  group_world_size={size}
  global_ranks=[{rank}]
"""
LOST = """\
ng{rank}:80:199 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer ng2<41290>
W0311 10:06:45.1 77 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 80 closing signal\
 SIGTERM
I0311 10:06:52.1 77 torch/distributed/elastic/agent/server/api.py:677] [default] Rendezvous'ing worker group
"""
FINISHED = "I0311 10:16:40.1 77 torch/x/api.py:864] [default] worker group successfully finished.\n"


def test_an_elastic_job_that_lost_a_node_and_came_to_its_end_recovered(tmp_path: Path) -> None:
    again = "".join(f"step {n} loss 1.2{n}\n" for n in range(20, 90))
    logs = {f"ng{rank}/agent.log": ELASTIC.format(rank=rank, size=3) + STEPS for rank in range(3)}
    for rank in (0, 1):
        lost = LOST.format(rank=rank) + ELASTIC.format(rank=rank, size=2) + again + FINISHED
        logs[f"ng{rank}/agent.log"] += lost
    assert judged_folder(tmp_path / "on", logs).verdict.outcome == "recovered"
    logs = {name: text.partition("I0311 10:06:52")[0] for name, text in logs.items()}
    assert judged_folder(tmp_path / "off", logs).verdict.outcome == "failure"
