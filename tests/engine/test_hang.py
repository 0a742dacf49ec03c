"""A wedged driver: the run ends, says which call hung and where, and judges everything else."""

import json
import os
import time

import pytest
from fakes.tree import nvidia_tree
from forked import nodedoctor_forked

DEAF_NVIDIA_SMI = """#!/bin/sh
trap '' HUP INT TERM QUIT
(trap '' HUP INT TERM QUIT; sleep 1000) &
while :; do sleep 1000; done
"""


def nodedoctor(tmp_path, *words, env):
    tree = tmp_path / "tree"
    if not tree.exists():
        nvidia_tree(tree)
    began = time.monotonic()
    done = nodedoctor_forked("--json", "--root", str(tree), *words, env={**os.environ, **env}, timeout=100)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    return done.returncode, {r["check"]: r for r in report["results"]}, report, time.monotonic() - began


@pytest.fixture
def deaf(tmp_path):
    """A PATH on which nvidia-smi never answers, ignores signals and leaves a grandchild on its pipe."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(DEAF_NVIDIA_SMI)
    (folder / "nvidia-smi").chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.slow
def test_a_driver_that_never_answers(tmp_path, fake_nvml, deaf):
    env = {**fake_nvml({"init_hang": 1}), **deaf}
    code, results, report, took = nodedoctor(tmp_path, "--deadline", "6", env=env)
    assert took < 6 + 1 + 2  # the promise, and what this machine's other work may add
    (finding,) = results["driver.answers"]["findings"]
    assert finding["status"] == "fail"
    assert "nvml" in finding["summary"] or "NVML" in finding["summary"]
    assert "pid " in json.dumps(finding) and "state S" in json.dumps(finding)
    assert code == 2
    asked = {probe["name"]: probe["outcome"] for probe in report["probes"]}
    assert asked["nvml"] == "timeout"
    assert asked.get("nvidia-smi-xml") in ("skipped", None), "a driver that hangs is not asked again"
    judged = [r for check, r in results.items() if not check.startswith(("driver.", "stack."))]
    assert any(r["status"] in ("pass", "warn", "fail") for r in judged)
    assert report["seconds"] < 7


@pytest.mark.slow
def test_nvidia_smi_alone_hangs(tmp_path, fake_nvml, deaf):
    """NVML cannot be used, so nvidia-smi is asked, and hangs."""
    env = {**fake_nvml({"init_error": 999}), **deaf}
    _, results, report, took = nodedoctor(tmp_path, "--deadline", "6", "driver", env=env)
    assert took < 9
    asked = {probe["name"]: probe["outcome"] for probe in report["probes"]}
    assert asked["nvidia-smi-xml"] in ("timeout", "stuck")
    assert results["driver.answers"]["status"] == "fail"


def test_a_crash_inside_nvml_is_told_and_survived(tmp_path, fake_nvml):
    env = {**fake_nvml({"gpu2.segv": "temperature"}), "PATH": "/usr/bin:/bin"}
    code, results, report, _ = nodedoctor(tmp_path, "driver", "limits", env=env)
    asked = {probe["name"]: probe for probe in report["probes"]}
    assert asked["nvml"]["outcome"] == "crash"
    assert "SIGSEGV" in json.dumps(results["driver.answers"])
    assert code in (2, 3)
    assert results["limits.nofile"]["status"] in ("pass", "warn", "unknown")


def test_a_healthy_driver_is_asked_once_and_all_is_judged(tmp_path, fake_nvml):
    _, results, report, _ = nodedoctor(tmp_path, "driver", env=fake_nvml({}))
    assert results["driver.answers"]["status"] == "pass"
    assert [p["name"] for p in report["probes"]].count("nvml") == 1
    assert report["node"]["gpus"] == 8
    assert results["driver.gpus-present"]["status"] == "pass", results["driver.gpus-present"]
