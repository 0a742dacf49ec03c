"""The minimal distributed program on four real ranks (torch, gloo, no GPU): success and each way to fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checks.measured.collective import smoke
from nodedoctor.facts.measured.collective import SMOKE, Collective
from nodedoctor.model import Observation, Status, Unseen

pytestmark = pytest.mark.real

PROBES = Path(__file__).parents[3] / "nodedoctor" / "probes"
TORCH = os.environ.get("NODEDOCTOR_TORCH_PYTHON", "")


def job(*words, python=None):
    """The fact one run of the program gives."""
    python = python or TORCH
    if not python:
        pytest.skip("no torch: set NODEDOCTOR_TORCH_PYTHON to a Python that has one")
    argv = [
        sys.executable,
        "-I",
        "-S",
        PROBES / "in_python.py",
        python,
        "measured/collective",
        "--limit",
        "6",
        *words,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    return Collective.parse(Observation(SMOKE, text=done.stdout, note=done.stderr))


def test_four_ranks_compute_rightly():
    told = job("--ranks", "4", "--limit", "14")
    (run,) = told.runs
    assert run.ok, run
    assert {one.name for one in run.operations} == {"all_reduce", "all_gather", "reduce_scatter", "broadcast"}
    assert max(one.bytes for one in run.operations) == 16 << 20
    assert [finding.status for finding in smoke(told)] == [Status.PASS]


def test_a_rank_that_dies_is_named_before_those_it_took_along():
    (finding,) = smoke(job("--fault", "die:2"))
    assert finding.status is Status.FAIL
    assert "rank 2 killed by SIGKILL at all_reduce" in finding.summary


def test_a_rank_that_never_joins_is_named():
    (finding,) = smoke(job("--fault", "absent:3"))
    assert finding.status is Status.FAIL and "rank 3 never joined" in finding.summary
    assert any(said.text == "joining" for said in finding.evidence)


def test_wrong_data_is_told_and_drains_the_node():
    (finding,) = smoke(job("--fault", "corrupt:1"))
    assert finding.subject == "rank:1" and "wrong result of all_reduce" in finding.summary
    assert finding.fix.action == "drain"


def test_the_scale_at_which_it_breaks():
    (finding,) = smoke(job("--ladder", "2", "--fault", "die:3"))
    assert "fails with 4 or more ranks, works with 2" in finding.summary


def test_without_torch_it_is_unknown_and_says_what_to_do():
    why = job(python=sys.executable)
    assert isinstance(why, Unseen) and why.reason == "missing-tool"
    assert "--python" in why.way_out
