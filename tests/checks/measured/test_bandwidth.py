"""Measured copies, end to end: a fake driver copies real bytes at the speed it is told, faults are judged."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from asking import judge
from fakes import build_cuda, write_config
from fakes.tree import nvidia_tree
from forked import nodedoctor_forked
from hypothesis import given
from hypothesis import strategies as st

from checks.measured.culprits import Culprits, culprits
from nodedoctor.declare.registry import skipped
from nodedoctor.engine.plugins import discover
from nodedoctor.facts.measured.bandwidth import DEEP, QUICK, Bandwidth
from nodedoctor.model import Observation, Outcome, Status, Unseen

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def cuda_folder(tmp_path_factory):
    return build_cuda(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def node(tmp_path, fake_nvml, cuda_folder):
    """Say what NVML and CUDA shall tell; get what to start, with which environment."""

    def make(cuda=None, nvml=None, gpus=4):
        tree = tmp_path / "tree"
        if not tree.exists():
            nvidia_tree(tree, gpus=gpus)
        told = fake_nvml({"gpus": gpus, **(nvml or {})})
        config = write_config(tmp_path / "cuda.conf", {"devices": gpus, **(cuda or {})})
        libraries = f"{told['LD_LIBRARY_PATH']}{os.pathsep}{cuda_folder}"
        env = {**os.environ, **told, "LD_LIBRARY_PATH": libraries, "NODEDOCTOR_FAKE_CUDA": str(config)}
        argv = [sys.executable, "-m", "nodedoctor", "--json", "--preview", "--root", str(tree)]
        return argv, {**env, "PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}

    return make


@pytest.fixture
def diagnose(node):
    def run(cuda=None, nvml=None, gpus=4, words=("bandwidth",)):
        argv, env = node(cuda, nvml, gpus)
        done = nodedoctor_forked(*argv[3:], *words, env=env, cwd="/", timeout=90)
        assert done.stderr == ""
        report = json.loads(done.stdout)
        return {result["check"]: result for result in report["results"]}, report

    return run


def only(result, status):
    """The one finding of that status."""
    found = [finding for finding in result["findings"] if finding["status"] == status]
    assert len(found) == 1, result["findings"]
    return found[0]


@pytest.mark.slow
def test_eight_healthy_gpus(diagnose):
    results, report = diagnose(gpus=8)
    assert results["bandwidth.p2p"]["status"] == "pass", results["bandwidth.p2p"]
    assert "56 ordered pairs" in results["bandwidth.p2p"]["findings"][0]["summary"]
    assert results["bandwidth.host"]["status"] == "pass", results["bandwidth.host"]
    pairs = report["facts"]["bandwidth"]["pairs"]
    assert {(p["source"], p["target"]) for p in pairs} == {
        (a, b) for a in range(8) for b in range(8) if a != b
    }
    assert all(340 < p["read_gbytes_s"] < 400 for p in pairs)
    assert all(700 < p["both_gbytes_s"] < 800 for p in pairs if p["source"] < p["target"])


@pytest.mark.slow
def test_one_slow_pair_is_a_link(diagnose):
    results, _ = diagnose({"speed.1-2": 120, "speed.2-1": 120})
    assert only(results["bandwidth.p2p"], "fail")["subject"] == "pair:1-2"


@pytest.mark.slow
def test_one_slow_gpu_is_named(diagnose):
    results, _ = diagnose({"gpu3.speed": 120})
    assert only(results["bandwidth.p2p"], "fail")["subject"] == "gpu:3"


@pytest.mark.slow
def test_everything_slow_is_the_system(diagnose):
    results, _ = diagnose({"speed": 25})
    finding = only(results["bandwidth.p2p"], "fail")
    assert not finding["subject"] and "ACS" in finding["fix"]["text"]


@pytest.mark.slow
def test_confidential_computing_is_slow_by_design(diagnose):
    slow = {"host": 10, "speed": 120}
    (results, _) = diagnose(slow, {"confidential_compute": 1})
    assert results["bandwidth.host"]["status"] == results["bandwidth.p2p"]["status"] == "pass"
    assert "confidential computing" in str(results["bandwidth.host"]["findings"])
    (results, _) = diagnose(slow)
    assert results["bandwidth.host"]["status"] == results["bandwidth.p2p"]["status"] == "fail"
    (results, _) = diagnose({**slow, "gpu2.host": 3}, {"confidential_compute": 1})
    assert [f["subject"] for f in results["bandwidth.host"]["findings"] if f["status"] == "fail"] == ["gpu:2"]


@pytest.mark.slow
def test_peer_access_denied_on_an_nvlink_board(diagnose):
    results, _ = diagnose({"access": 0, "speed": 20})
    assert "no peer access between any GPUs despite NVLink" in json.dumps(results["bandwidth.p2p"])
    assert results["bandwidth.p2p"]["status"] == "fail"


@pytest.mark.slow
def test_peer_access_denied_on_l4_is_normal(diagnose):
    l4 = {"name": "NVIDIA L4", "links": 0, "pci_device_id": 0x27B810DE, "pcie_width_max": 0}
    results, _ = diagnose({"access": 0, "speed": 12}, l4)
    assert results["bandwidth.p2p"]["status"] == "pass", results["bandwidth.p2p"]
    assert "through host memory" in results["bandwidth.p2p"]["findings"][0]["summary"]


@pytest.mark.slow
def test_wrong_data_at_full_speed(diagnose):
    results, _ = diagnose({"wrong.0-2": 1})
    finding = only(results["bandwidth.p2p"], "fail")
    assert finding["subject"] == "pair:0-2" and finding["fix"]["action"] == "drain"


@pytest.mark.slow
def test_a_copy_that_never_ends_is_named_and_the_run_ends(diagnose):
    began = time.monotonic()
    results, _ = diagnose({"hang.2-1": 1}, words=("--deadline", "9", "bandwidth.p2p"))
    assert time.monotonic() - began < 30
    finding = next(f for f in results["bandwidth.p2p"]["findings"] if "never finished" in f["summary"])
    assert finding["status"] == "fail" and finding["subject"] == "pair:1-2"
    assert "from GPU 2 to GPU 1" in finding["summary"]


def test_what_was_merely_late_is_not_said_to_hang():
    steps = [
        '{"step": "gpu", "index": 0, "at": 1.0},',
        '{"step": "begin", "what": "host", "index": 1, "at": 8.0},',
    ]
    late = Observation(DEEP, Outcome.TIMEOUT, "\n".join(steps), seconds=10.0, note="no answer in 10 s")
    told = Bandwidth.parse(skipped(QUICK, "measured with --deep"), late)
    assert told.deep and not told.hung and told.cut_short == "no answer in 10 s"
    assert {finding.status for finding in judge("bandwidth.p2p", told)} == {Status.UNKNOWN}
    assert {finding.status for finding in judge("bandwidth.host", told)} == {Status.UNKNOWN}
    assert {finding.status for finding in judge("bandwidth.memory", told)} == {Status.UNKNOWN}
    hangs = Bandwidth.parse(skipped(QUICK, ""), replace(late, seconds=60.0))
    assert "GPU 1" in hangs.hung and hangs.hung_gpus == (1,) and not hangs.cut_short


def test_measuring_is_given_up_when_it_was_promised():
    probes = discover().probes
    assert (probes[QUICK].timeout, probes[DEEP].timeout) == (20, 60)


@pytest.mark.slow
def test_no_memory_left(diagnose):
    results, _ = diagnose({"gpu1.error.alloc": 2})
    finding = only(results["bandwidth.p2p"], "unknown")
    assert finding["subject"] == "gpu:1" and "OUT_OF_MEMORY" in finding["summary"]
    assert results["bandwidth.host"]["status"] == "pass", "the others are measured"


@pytest.mark.slow
def test_a_busy_gpu_is_left_alone_and_its_user_named(diagnose, tmp_path):
    trace = tmp_path / "contexts"
    busy = {"gpu1.processes": "4242:1024", "program.4242": "/usr/bin/python3 train.py"}
    results, _ = diagnose({"trace": trace}, busy)
    finding = only(results["bandwidth.p2p"], "skip")
    assert finding["subject"] == "gpu:1" and "python3 (pid 4242)" in finding["summary"]
    assert "context 1" not in trace.read_text().splitlines()
    assert "context 0" in trace.read_text().splitlines()


def test_all_gpus_busy_is_a_skip(diagnose, tmp_path):
    results, _ = diagnose({"trace": tmp_path / "contexts"}, {"utilization": 97})
    assert results["bandwidth.p2p"]["status"] == "skip"
    assert "97% utilised" in results["bandwidth.p2p"]["findings"][0]["summary"]
    assert not (tmp_path / "contexts").exists()


def test_passive_starts_none_of_it(diagnose, tmp_path):
    results, _ = diagnose({"trace": tmp_path / "contexts"}, words=("--passive", "bandwidth"))
    assert {result["status"] for result in results.values()} == {"skip"}
    assert "--passive" in results["bandwidth.p2p"]["findings"][0]["summary"]
    assert not (tmp_path / "contexts").exists()


def test_memory_is_measured_only_with_deep():
    steps = '{"step": "begin", "what": "cuInit"},\n{"step": "memory", "index": 0, "gbytes_s": 2600},\n'
    bandwidth = Bandwidth.parse(skipped(QUICK, "with --deep"), Observation(DEEP, text=steps))
    assert isinstance(bandwidth, Bandwidth) and bandwidth.deep
    assert bandwidth.memory_gbytes_s == {0: 2600.0}


@pytest.mark.slow
def test_cuda_does_not_start(diagnose):
    results, _ = diagnose({"error.init": 802})
    assert "SYSTEM_NOT_READY" in only(results["bandwidth.p2p"], "fail")["summary"]


def test_no_driver_library_is_unknown_with_a_way_out():
    text = '{"steps": [\n{"step": "init", "error": "NO_LIBRARY", "text": "libcuda.so.1: not there"}\n]}'
    why = Bandwidth.parse(Observation(QUICK, text=text), skipped(DEEP, "only with --deep"))
    assert isinstance(why, Unseen) and why.reason == "missing-tool" and why.way_out


@pytest.mark.slow
def test_an_interrupted_run_leaves_no_child(node):
    argv, env = node({"hang.0-1": 1})
    with subprocess.Popen(
        [*argv, "bandwidth"], env=env, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        child = wait_for(lambda: children_named(run.pid, "bandwidth.py"))
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=20)
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in child))


def children_named(parent, name):
    """Child processes with a word in their command line."""
    found = []
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has ended by now
            if name in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(int(pid))
    return found


def wait_for(condition):
    end = time.monotonic() + 30
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


ALL = {(a, b) for a in range(4) for b in range(4) if a != b}


def test_who_is_to_blame():
    assert culprits({(0, 1), (1, 0)}, ALL) == Culprits(pairs=((0, 1),))
    assert culprits({pair for pair in ALL if 2 in pair}, ALL) == Culprits(gpus=(2,))
    assert culprits({pair for pair in ALL if pair[0] == 2}, ALL) == Culprits(gpus=(2,))
    assert culprits(ALL, ALL) == Culprits(everything=True)
    assert culprits({(0, 1), (1, 0)}, {(0, 1), (1, 0)}) == Culprits(pairs=((0, 1),))
    assert culprits((), ALL) == Culprits()


@given(st.sets(st.sampled_from(sorted(ALL))))
def test_every_bad_pair_is_somebodys_fault(bad):
    found = culprits(bad, ALL)
    for one, other in bad:
        told = (min(one, other), max(one, other)) in found.pairs
        assert found.everything or one in found.gpus or other in found.gpus or told


@given(st.text() | st.sampled_from(['{"step": "pair"}', '{"step": "pair", "source": -1, "target": []},']))
def test_any_text_is_read(text):
    for outcome in (Outcome.OK, Outcome.TIMEOUT):
        seen = Bandwidth.parse(Observation(QUICK, outcome, text), skipped(DEEP, "only with --deep"))
        assert isinstance(seen, (Bandwidth, Unseen))
