"""A file that no job printed, beside its logs, changes nothing of what these say."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, raised, steps

from nodedoctor.triage.job import examine_job

AUGUST = "[Fri Aug  1 03:11:20 2025] "
XID = f"{AUGUST}NVRM: Xid (PCI:0000:4c:00): 79, pid=811, name=python, GPU has fallen off the bus.\n"
OOM = f"{AUGUST}Out of memory: Killed process 5511 (jupyter-lab) total-vm:913371140kB\n"
BESIDE = {
    "RUNBOOK.md": f"# Runbook for nodes\n\n## Xid 79\n\n```\n{XID}```\nDrain the node.\n\n"
    f"## Memory\n\n```\n{OOM}```\nAsk for more.\n\n"
    f"## Hangs\n\n```\n{caught(3)}```\nRead the log of rank 3.\n",
    "job.sbatch": "#!/bin/bash\n#SBATCH -N2\n# exit code 137 = Out of memory: Killed process 5511\n"
    "srun python train.py\n",
    "train.py": "try:\n    step()\nexcept torch.OutOfMemoryError:\n"
    "    raise RuntimeError('NCCL error: unhandled system error')\n",
    "requirements.txt": "torch==2.5.1\nnvidia-nccl-cu12==2.21.5\n",
    "config.yaml": "trainer:\n  world_size: 64\n  on_error: 'RuntimeError: CUDA error: out of memory'\n",
    "mail.eml": f"From: a@x.example\nSubject: the job\n\nHi, last week we had this:\n> {XID}"
    "Is it the same, or the OOM killer?\n",
}
RANKS = range(4)
BROKEN = raised(2, "KeyError: 'labels'")
JOBS = {
    "raised": {f"rank{rank}.log": steps(1, 20) + (BROKEN if rank == 2 else "") for rank in RANKS},
    "hung": {f"rank{rank}.log": steps(1, 20) + (caught(rank) if rank != 2 else "") for rank in RANKS},
    "ended": {f"rank{rank}.log": steps(1, 20) + "Training completed, exit code 0\n" for rank in RANKS},
}


def verdict_of(folder: Path) -> tuple[object, ...]:
    verdict = examine_job([str(folder)]).verdict
    return verdict.outcome, verdict.cause, [who.rank for who in verdict.culprits], verdict.headline


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("job", JOBS)
def test_what_lies_beside_the_logs_changes_no_verdict(job: str, tmp_path: Path) -> None:
    alone = verdict_of(write(tmp_path / "alone", JOBS[job]))
    for name, text in BESIDE.items():
        assert verdict_of(write(tmp_path / name, {**JOBS[job], name: text})) == alone, name
    assert verdict_of(write(tmp_path / "all", JOBS[job] | BESIDE)) == alone


def test_a_letter_with_the_only_log_is_read(tmp_path: Path) -> None:
    letter = "Hi, it died again:\n\n" + steps(1, 20) + BROKEN + "\nAny idea?\n"
    folder = write(tmp_path / "run", {"mail.eml": letter, "requirements.txt": BESIDE["requirements.txt"]})
    assert verdict_of(folder)[:3] == ("failure", "user_code_exception", [2])


@pytest.mark.parametrize(
    "name", ["message.log", "chat-7b.log", "thread-dump.txt", "messages", "messages-20251101", "notebook.out"]
)
def test_a_log_of_any_name_is_none_of_a_persons_letters(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "run", {"rank0.log": steps(1, 20) + caught(0), name: steps(1, 20) + BROKEN})
    assert verdict_of(folder)[:3] == ("failure", "user_code_exception", [2])
