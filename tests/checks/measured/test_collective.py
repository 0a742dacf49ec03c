"""The collective checks end to end with a stand-in for torch that fails unless one path is switched off."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from fakes.tree import nvidia_tree

from checks.measured.collective import DIAGNOSIS_ONLY
from nodedoctor.declare.registry import Command, Options
from nodedoctor.engine.session import DEADLINE, DEADLINE_DEEP, Request, Session
from nodedoctor.facts.driver.nvidia_presence import NONE_HERE
from nodedoctor.facts.measured.collective import read_log
from nodedoctor.facts.measured.collective import smoke as plan_smoke
from nodedoctor.model import Observation, Outcome
from nodedoctor.probes.measured import collective

REPOSITORY = Path(__file__).parents[3]

TENSOR = '''
class Tensor:
    """A ramp times `slope` plus `level`: enough to know every result without talking to anybody."""
    def __init__(self, count, slope=1, level=0): self.count, self.slope, self.level = count, slope, level
    def __mod__(self, _): return self
    def float(self): return self
    def numel(self): return self.count
    def contiguous(self): return self
    def __add__(self, number): return Tensor(self.count, self.slope, self.level + number)
    def __mul__(self, number): return Tensor(self.count, self.slope * number, self.level * number)
    def __getitem__(self, piece): return Tensor(piece.indices(self.count)[1], self.slope, self.level)
    def chunk(self, pieces): return [self] * pieces
def arange(count, device): return Tensor(count)
def empty_like(other): return Tensor(other.count, 0)
def cat(parts, out=None): return Tensor(0)
def equal(one, other): return True
__version__ = "2.7.0"
class cuda:
    set_device = synchronize = staticmethod(lambda *a: None)
'''
DISTRIBUTED = """
import os
def init_process_group(backend, rank, world_size, timeout):
    if os.environ.get("NCCL_SHM_DISABLE") != "1":
        print("node:7:9 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm", flush=True)
        raise RuntimeError("NCCL error: unhandled system error")
def all_reduce(tensor): pass
def all_gather(parts, tensor): pass
def broadcast(tensor, source): pass
def reduce_scatter(out, pieces): pass
def destroy_process_group(): pass
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An environment whose torch needs NCCL_SHM_DISABLE=1."""
    home = tmp_path_factory.mktemp("target")
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python3*/site-packages")
    (site / "torch" / "distributed").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text(TENSOR)
    (site / "torch" / "distributed" / "__init__.py").write_text(DISTRIBUTED)
    (site / "torch" / "version.py").write_text("__version__ = '2.7.0'\n")
    (site / "torch-2.7.0.dist-info").mkdir()
    (site / "torch-2.7.0.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.7.0\n")
    return home / "bin" / "python"


@pytest.fixture
def diagnose(tmp_path, fake_nvml, python):
    def run(*words, nvml=None):
        tree = nvidia_tree(tmp_path / "tree", gpus=4)
        env = {**os.environ, **fake_nvml({"gpus": 4, **(nvml or {})}), "PYTHONPATH": str(REPOSITORY)}
        argv = [
            sys.executable,
            "-m",
            "nodedoctor",
            "--json",
            "--preview",
            "--root",
            tree,
            "--python",
            python,
            *words,
        ]
        done = subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=90)
        assert done.stderr == ""
        report = json.loads(done.stdout)
        return {result["check"]: result for result in report["results"]}

    return run


@pytest.mark.slow
def test_the_path_that_carries_the_fault_is_found(diagnose):
    results = diagnose("collective")
    (smoke,) = results["collective.smoke"]["findings"]
    assert smoke["status"] == "fail" and "4 ranks on nccl" in smoke["summary"]
    assert "fails with 2 or more ranks" in smoke["summary"]
    assert "failed to extend /dev/shm" in json.dumps(smoke["evidence"])
    (isolated,) = results["collective.isolate"]["findings"]
    assert isolated["status"] == "fail" and isolated["subject"] == "path:NCCL_SHM_DISABLE"
    assert "shared memory" in isolated["summary"] and DIAGNOSIS_ONLY in isolated["fix"]["text"]


def test_gpus_in_use_are_left_alone(diagnose):
    results = diagnose("collective", nvml={"gpu2.processes": "4242:1024", "program.4242": "train"})
    assert results["collective.smoke"]["status"] == "skip"
    assert "pid 4242" in results["collective.smoke"]["findings"][0]["summary"]


@pytest.mark.slow
def test_gpus_that_nvml_cannot_read_are_not_replaced_by_processors(diagnose):
    results = diagnose("collective", nvml={"init_error": 18})
    (smoke,) = results["collective.smoke"]["findings"]
    assert smoke["status"] == "unknown" and smoke["reason"] == "not-visible-here"
    assert "NVML shows no GPU" in smoke["summary"] and "MISMATCH" in smoke["summary"]
    assert "nodedoctor driver" in smoke["fix"]["text"]
    assert results["collective.isolate"]["status"] == "unknown"


def test_without_nvidia_hardware_the_job_runs_on_processors(python):
    target = Observation("target-python", text=json.dumps({"executable": str(python)}))
    none = Observation("nvml", Outcome.SKIPPED, note=NONE_HERE)
    empty = Observation("pci", text=json.dumps({"lists": {"/sys/bus/pci/devices": []}}))
    planned = plan_smoke(
        Options(),
        none,
        Observation("processes"),
        target,
        empty,
        Observation("driver-files", text=json.dumps({"files": {}})),
    )
    assert isinstance(planned, Command), planned
    assert planned.argv[planned.argv.index("--backend") + 1] == "gloo"


@pytest.mark.parametrize(
    ("words", "more", "seconds"),
    [
        ((), {}, DEADLINE),
        (("driver", "limits.shm"), {}, DEADLINE),
        (("collective.smoke",), {}, DEADLINE_DEEP),
        (("limits", "compute"), {}, DEADLINE_DEEP),
        (("collective.smoke",), {"deadline": 7.0}, 7.0),
        ((), {"options": Options(deep=True)}, DEADLINE_DEEP),
    ],
)
def test_a_run_has_time_for_the_checks_that_were_named(words, more, seconds):
    assert Session(Request(words, **more)).deadline == seconds


def test_passive_starts_no_job(diagnose):
    assert {result["status"] for result in diagnose("--passive", "collective").values()} == {"skip"}


LOG = """\
node:7:7 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
node:7:7 [0] NCCL INFO NCCL version 2.26.2+cuda12.8
node:7:9 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.
node:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
node:7:9 [0] NCCL INFO Using network IB
node:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node:7:9 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct
node:7:9 [0] NCCL INFO Connected all rings
node:7:9 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : Got async event : port error
"""


def test_a_long_log_keeps_its_beginning_and_its_end():
    lines = [*LOG.splitlines(), *["node:7:9 [0] NCCL INFO Channel"] * 2000, "node:7:9 [0] NCCL WARN Timeout"]
    kept = collective.ends("\n".join(lines), 6000)
    assert len(kept) < 6100 and "characters left out" in kept
    log = read_log(kept)
    assert (log.version, log.network, log.interfaces[0]) == ("2.26.2+cuda12.8", "IB", "eth0")
    assert log.warnings[-1] == "Timeout" and log.plugin
    assert collective.ends(LOG, 6000) == LOG


def test_a_log_of_nccl_is_read():
    log = read_log(LOG)
    assert log.version == "2.26.2+cuda12.8" and log.network == "IB" and log.rings == 1
    assert log.transports == {"0-1": "P2P/CUMEM/read", "1-0": "SHM/direct/direct"}
    assert log.interfaces[0] == "eth0" and "mlx5_0:1/IB" in log.interfaces[1]
    assert "libnccl-net.so" in log.plugin
    assert log.warnings == ("NET/IB : Got async event : port error",)
