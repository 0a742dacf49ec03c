"""Which GPU computes wrongly or slowly."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from checks.measured.compute import gemm
from nodedoctor.facts.measured.gemm import GEMM, Gemm
from nodedoctor.model import Observation, Status, Unseen

PROGRAM = Path(__file__).parents[3] / "nodedoctor" / "probes" / "measured/gemm.py"
GOOD = {"name": "NVIDIA H100", "tflops": 700.0, "sums": [42]}


@pytest.mark.parametrize(
    ("odd", "status", "words"),
    [
        ({}, Status.PASS, "identical results"),
        ({"sums": [43]}, Status.FAIL, "differs from GPUs of the same model"),
        ({"sums": [42, 43]}, Status.FAIL, "differs between repeats"),
        ({"tflops": 500.0}, Status.WARN, "500 TFLOP/s"),
        ({"error": "RuntimeError: CUDA error"}, Status.FAIL, "CUDA error"),
    ],
)
def test_one_gpu_of_four(odd, status, words):
    gpus = [{"index": index, **GOOD, **(odd if index == 2 else {})} for index in range(4)]
    (finding,) = gemm(Gemm.parse(Observation(GEMM, text=json.dumps({"gpus": gpus}))))
    assert finding.status is status and words in finding.summary
    assert finding.subject == ("gpu:2" if odd else "")


def test_a_torch_that_sees_no_gpu_is_unknown_with_a_way_out():
    said = {"error": "no-gpu", "text": "torch 2.13.0+cpu, built for CUDA None, sees no GPU"}
    why = Gemm.parse(Observation(GEMM, text=json.dumps(said)))
    assert isinstance(why, Unseen) and why.applies and "built for CUDA None" in why.note
    assert "nodedoctor stack" in why.way_out


@pytest.mark.parametrize("words", [["much"], ["0"], ["-3"], ["64", "tpu"], ["64", "cpu", "now"]])
def test_words_that_make_no_sense_are_refused(words):
    done = subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "gemm.py [SIZE [cpu]]" in done.stderr and not done.stdout


def test_a_python_without_torch_is_told():
    done = subprocess.run([sys.executable, "-I", "-S", PROGRAM], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["error"] == "no-torch" and not done.stderr


def test_missing_torch_is_unknown_with_a_way_out():
    why = Gemm.parse(Observation(GEMM, text='{"error": "no-torch", "text": "no module named torch"}'))
    assert isinstance(why, Unseen) and "--python" in why.way_out
