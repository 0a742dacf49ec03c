"""Secrets in the environment and in other processes' command lines reach no report and no recording."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from forked import nodedoctor_forked

REPOSITORY = Path(__file__).parents[2]
SECRET = "s3cr3t-f00d-cafe"


@pytest.mark.slow
def test_no_secret_leaves_the_node(tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "WANDB_API_KEY": SECRET,
        "RAY_AUTH_TOKEN": SECRET,
        "RAY_REDIS_PASSWORD": SECRET,
        "NCCL_SECRET_SAUCE": SECRET,
        "HTTPS_PROXY": f"http://user:{SECRET}@proxy.example:3128",
        "RAY_ADDRESS": f"https://user:{SECRET}@head.example:6379",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "NCCL_DEBUG": "WARN",
    }
    # A rank as the doctor looks for them, with a secret on its command line and in its environment.
    code = "import time; print('up', flush=True); time.sleep(60)"
    argv = [sys.executable, "-c", code, f"--api-key={SECRET}", "--token", SECRET]
    rank_environment = {**environment, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    with subprocess.Popen(argv, env=rank_environment, stdout=subprocess.PIPE) as rank:
        rank.stdout.readline()
        recording = tmp_path / "node.zip"
        done = nodedoctor_forked("--json", "--record", str(recording), env=environment, cwd="/")
        rank.kill()
    assert done.stderr == ""
    assert SECRET not in done.stdout
    with zipfile.ZipFile(recording) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert not [name for name, text in texts.items() if SECRET in text]
    # It did look: what may be shown is there.
    assert "NCCL_DEBUG" in texts["probes/env.txt"]
    assert str(rank.pid) in texts["probes/processes.txt"]
