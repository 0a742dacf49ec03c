"""Credentials of live processes and of logs reach no output and no recording, also without --redact."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from forked import nodedoctor_forked
from test_secrets_replaced import SHAPES, VARIABLES, WORD

from nodedoctor.triage.cli import main

REPOSITORY = Path(__file__).parents[2]
SECRETS = (WORD, WORD.upper(), "0a" * 16)
CLEAN = [secret.replace("\n", " ") for secret in SHAPES]
FILES = ("html", "junit", "prometheus", "ticket", "debug-log")


def leaked(texts: dict[str, str]) -> list[str]:
    return [f"{name}: ...{text[max(0, text.index(secret) - 60) :][:160]}" for name, text in texts.items()
            for secret in SECRETS if secret in text]  # fmt: skip


def planted() -> dict[str, str]:
    """An environment with a secret under every name, and every shape under a name that we read."""
    named = {name: WORD for name in VARIABLES}
    shaped = {f"RAY_X{number}": secret for number, secret in enumerate(SHAPES)}
    shaped |= {f"NCCL_X{number}": secret for number, secret in enumerate(SHAPES)}
    known = {"NCCL_TOPO_FILE": CLEAN[0], "HTTPS_PROXY": f"http://u:{WORD}@proxy:3128", "NCCL_DEBUG": "WARN"}
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **named, **shaped, **known}


@pytest.mark.parametrize("form", ["--json", pytest.param("--text", marks=pytest.mark.slow)])
def test_no_secret_of_a_live_rank_is_in_any_output(tmp_path: Path, form: str) -> None:
    code = "import time; print('up', flush=True); time.sleep(200)"
    rank_argv = [sys.executable, "-c", code, *CLEAN, f"--redis-password={WORD}", "--token", WORD]
    rank_env = {**planted(), "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    with subprocess.Popen(rank_argv, env=rank_env, stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        rank.stdout.readline()
        files = [word for name in FILES for word in (f"--{name}", str(tmp_path / name))]
        recorded = ("--record", str(tmp_path / "node.zip"))
        done = nodedoctor_forked(form, *recorded, *files, env=planted(), cwd="/", timeout=300)
        rank.kill()
    texts = {"stdout": done.stdout, "stderr": done.stderr}
    texts |= {name: (tmp_path / name).read_text() for name in FILES}
    with zipfile.ZipFile(tmp_path / "node.zip") as archive:
        texts |= {name: archive.read(name).decode() for name in archive.namelist()}
    assert done.stdout and leaked(texts) == []
    assert str(rank.pid) in texts["probes/processes.txt"] and "NCCL_DEBUG" in texts["probes/env.txt"]


LOG = """\
[2026-11-21 06:11:00] gpu-1:10:10 [0] NCCL INFO rank 0 nranks 2 cudaDev 0 - Init COMPLETE
[2026-11-21 06:11:00] gpu-2:11:11 [0] NCCL INFO rank 1 nranks 2 cudaDev 0 - Init COMPLETE
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/train.py", line 3, in <module>
[rank1]:     fetch({secret!r})
[rank1]: RuntimeError: could not fetch with {secret}
gpu-2:11:20 [1] transport/net.cc:12 NCCL WARN proxy said {secret}
srun: error: gpu-2: task 1: Exited with exit code 1: {secret}
"""


@pytest.mark.parametrize("form", ["--json", pytest.param("--text", marks=pytest.mark.slow)])
def test_no_secret_of_a_log_is_in_any_output_of_triage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    texts: dict[str, str] = {}
    for number, secret in enumerate(CLEAN):
        log, page = tmp_path / f"job-{number}.out", tmp_path / "page.html"
        log.write_text(LOG.format(secret=secret))
        assert main([str(log), form, "--no-node", "--html", str(page)]) == 2
        shown = capsys.readouterr()
        texts |= {f"{number} {form}": shown.out + shown.err, f"{number} html": page.read_text()}
    assert leaked(texts) == []
