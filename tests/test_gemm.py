"""Which GPU computes wrongly or slowly."""

import json

import pytest

from checks.compute import gemm
from nodedoctor.facts.gemm import GEMM, Gemm
from nodedoctor.model import Observation, Status, Unseen

GOOD = {"name": "NVIDIA H100", "tflops": 700.0, "sums": [42]}


@pytest.mark.parametrize(
    ("odd", "status", "words"),
    [
        ({}, Status.PASS, "equal bits"),
        ({"sums": [43]}, Status.FAIL, "differs from that of equal GPUs"),
        ({"sums": [42, 43]}, Status.FAIL, "one repeat to the next"),
        ({"tflops": 500.0}, Status.WARN, "500 TFLOP/s"),
        ({"error": "RuntimeError: CUDA error"}, Status.FAIL, "CUDA error"),
    ],
)
def test_one_gpu_of_four(odd, status, words):
    gpus = [{"index": index, **GOOD, **(odd if index == 2 else {})} for index in range(4)]
    (finding,) = gemm(Gemm.parse(Observation(GEMM, text=json.dumps({"gpus": gpus}))))
    assert finding.status is status and words in finding.summary
    assert finding.subject == ("gpu:2" if odd else "")


def test_missing_torch_is_unknown_with_a_way_out():
    why = Gemm.parse(Observation(GEMM, text='{"error": "no-torch", "text": "no module named torch"}'))
    assert isinstance(why, Unseen) and "--python" in why.way_out
