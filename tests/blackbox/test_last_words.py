"""The folder of a job holds what the job printed last, and is judged as the job was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import nodedoctor_forked

RUN = (sys.executable, "-m", "nodedoctor", "run")
FLOOD = "for n in range(40000): print('step', n, 'loss: 2.1', 'x' * 100)\n"
ENDS = {
    "an exception": "raise RuntimeError('last words')",
    "an exception behind a flood": FLOOD + "sys.stdout.flush(); raise RuntimeError('last words')",
    "memory of the GPU": "raise MemoryError('last words: CUDA out of memory. Tried to allocate 2 GiB')",
    "a code of its own": "print('error: last words', file=sys.stderr, flush=True); sys.exit(3)",
    "a good end": "print('last words')",
    "a kill": "print('last words', flush=True); os.kill(os.getpid(), 9)",
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_the_folder_is_judged_as_the_job_was(end: str, tmp_path: Path) -> None:
    program = f"import os, sys, time\nprint('step 1 loss: 2.0', flush=True)\ntime.sleep(0.5)\n{ENDS[end]}\n"
    argv = [*RUN, "--dir", str(tmp_path / "jobs"), "--", sys.executable, "-c", program]
    with open(tmp_path / "job.log", "w") as log:
        environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
        subprocess.run(argv, stdout=log, stderr=log, env=environ, timeout=90, check=False)
    (folder,) = (tmp_path / "jobs").iterdir()
    assert "last words" in "".join(path.read_text() for path in (folder / "logs").iterdir())
    found = json.loads(nodedoctor_forked("triage", "--json", "--no-node", str(folder)).stdout)
    if (folder / "triage.json").exists():
        told = json.loads((folder / "triage.json").read_text())
        assert (found["outcome"], found["cause"]) == (told["outcome"], told["cause"])


@pytest.mark.parametrize("with_end", [True, False], ids=["ended", "killed before its end"])
def test_our_own_hook_is_no_log(with_end: bool, tmp_path: Path) -> None:
    for name in ("fr", "hook", "logs", "nccl", "stacks"):
        (tmp_path / name).mkdir()
    (tmp_path / "env.txt").write_text("# set by nodedoctor for this job\n")
    if with_end:
        (tmp_path / "run.json").write_text("{}\n")
    (tmp_path / "hook/sitecustomize.py").write_text("raise RuntimeError('no log')\n")
    found = json.loads(nodedoctor_forked("triage", "--json", "--no-node", str(tmp_path)).stdout)
    assert (found["outcome"], found["coverage"]["files"]) == ("nothing", 0)
