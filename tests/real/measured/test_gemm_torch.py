"""Matrices multiplied by a real torch, on the processor where there is no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checks.measured.compute import gemm
from nodedoctor.facts.measured.gemm import GEMM, Gemm
from nodedoctor.model import Observation, Status, Unseen

pytestmark = pytest.mark.real

PROBES = Path(__file__).parents[3] / "nodedoctor" / "probes"
TORCH = os.environ.get("NODEDOCTOR_TORCH_PYTHON", "")


def run(*words, **env):
    """What the program prints in the Python that has torch."""
    if not TORCH:
        pytest.skip("no torch: set NODEDOCTOR_TORCH_PYTHON to a Python that has one")
    argv = [sys.executable, "-I", "-S", PROBES / "in_python.py", TORCH, "measured/gemm", *words]
    done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return Observation(GEMM, text=done.stdout)


def test_the_processor_gives_the_same_bits_again():
    seen = run("256", "cpu")
    (one,) = Gemm.parse(seen).gpus
    assert one.name == "cpu" and one.tflops and len(one.sums) == 1, one
    assert [finding.status for finding in gemm(Gemm.parse(seen))] == [Status.PASS]
    assert json.loads(run("256", "cpu").text)["gpus"][0]["sums"] == list(one.sums)


def test_a_torch_without_gpus_is_unknown():
    why = Gemm.parse(run(CUDA_VISIBLE_DEVICES=""))
    assert isinstance(why, Unseen) and why.applies and "sees no GPU" in why.note
