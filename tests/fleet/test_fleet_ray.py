"""Ray as a way to nodes: what its words mean, which Python is asked, and what a node's task does there."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nodedoctor
from nodedoctor.children.programs import child
from nodedoctor.fleet.model import FleetError
from nodedoctor.fleet.transports.ray import Ray, _answer, _object, members
from nodedoctor.probes.cluster import ray_fleet

REPORT = {
    "schema": "nodedoctor.report/1",
    "tool": "0.1.0",
    "started": "2026-11-21T10:00:00Z",
    "seconds": 1.0,
    "verdict": "pass",
    "node": {"hostname": "gpu-1", "gpus": 8},
    "results": [{"check": "a.b", "title": "t", "status": "pass", "findings": []}],
    "facts": {},
}


def member(number: int, **more: object) -> dict[str, object]:
    """A node as the child tells it."""
    address = f"10.0.0.{number}"
    usual = {"id": f"{number:06}ab", "name": address, "hostname": f"gpu-{number}", "address": address}
    return {**usual, "alive": True, "why": "", **more}


def raw(number: int, **more: object) -> dict[str, object]:
    """A node as ray.nodes() of 2.60 has it."""
    address = f"10.0.0.{number}"
    return {
        "NodeID": f"{number:06}ab",
        "Alive": True,
        "NodeManagerAddress": address,
        "NodeManagerHostname": f"gpu-{number}",
        "NodeName": address,
        "DeathReason": 0,
        "DeathReasonMessage": "",
        **more,
    }


# Names


def test_nodes_are_called_by_hostname_in_the_order_people_count():
    assert [m.host for m in members((member(10), member(2)))] == ["gpu-2", "gpu-10"]


def test_a_name_that_somebody_gave_goes_first():
    assert [m.host for m in members((member(1, name="trainer"),))] == ["trainer"]


def test_nodes_of_one_hostname_are_told_apart():
    twins = members((member(1, hostname="gpu"), member(2, hostname="gpu"), member(3)))
    assert [m.host for m in twins] == ["10.0.0.1", "10.0.0.2", "gpu-3"]
    same = members((member(1, hostname="gpu"), {**member(1, hostname="gpu"), "id": "ffffffff"}))
    assert sorted(m.host for m in same) == ["10.0.0.1-000001", "10.0.0.1-ffffff"]


@given(st.lists(st.dictionaries(st.sampled_from(list(member(1))), st.text() | st.booleans()), max_size=5))
def test_any_nodes_get_names(found):
    assert len(members(tuple(found))) == len(found)
    assert all(m.host for m in members(tuple(found)))


def test_dead_nodes_count_only_where_nobody_meant_them_to_go():
    lost = raw(1, Alive=False, DeathReason=2, DeathReasonMessage="health check failed")
    found = ray_fleet.nodes([lost, raw(2), raw(3, Alive=False, DeathReason=1)])
    assert [(node["hostname"], node["alive"]) for node in found] == [("gpu-2", True), ("gpu-1", False)]
    assert found[1]["why"] == "health check failed"
    came_back = raw(1, NodeID="new")
    assert [node["id"] for node in ray_fleet.nodes([lost, came_back])] == ["new"]


# What the child says


@given(st.text(max_size=100))
def test_any_line_is_read(line):
    for text in (line, f"@nodedoctor {line}", '{"error"' + line):
        assert isinstance(_object(text), dict)


@given(
    st.dictionaries(
        st.sampled_from(["lost", "rc", "over", "text", "errors"]),
        st.text() | st.integers() | st.booleans() | st.none(),
    )
)
def test_any_answer_becomes_a_node(said):
    assert _answer("gpu-1", said, 1.0).host == "gpu-1"


@pytest.mark.parametrize(
    ("lost", "state", "note"),
    [
        (
            "NodeDiedError: Task failed because the node it was running on is dead or unavailable.\nNode",
            "unreachable",
            "Ray lost the node while it was being asked (NodeDiedError)",
        ),
        (
            "TaskUnschedulableError: The task is not schedulable: the node is infeasible",
            "unreachable",
            "Ray lost the node while it was being asked (TaskUnschedulableError)",
        ),
        ("WorkerCrashedError: The worker died", "unable", "WorkerCrashedError: The worker died"),
        (
            "RayTaskError(OSError): \x1b[36mray::on_node()\x1b[39m\n  File\nOSError: [Errno 12] No memory",
            "unable",
            "OSError: [Errno 12] No memory",
        ),
    ],
)
def test_what_ray_says_of_a_lost_task(lost, state, note):
    node = _answer("gpu-1", {"lost": lost}, 2.0)
    assert (node.state, node.note) == (state, note)


# What a task does on its node


def on_node(script: str, seconds: float = 20, brought: bytes = b"") -> dict[str, object]:
    said = ray_fleet.on_node(script, brought, seconds)
    said["text"] = zlib.decompress(base64.b64decode(said["text"])).decode()
    return said


def test_a_task_brings_back_what_was_said():
    said = on_node("read -r held; echo $held; cat >&2 & sleep 0.2; exit 3", brought=b"")
    assert (said["rc"], said["text"], said["over"]) == (3, "held\n", False)


def test_a_task_hands_over_the_file():
    said = on_node("read -r held; head -c 500000 | wc -c", brought=b"x" * 500_000)
    assert said["text"].strip() == "500000"


@pytest.mark.slow
def test_a_task_ends_in_time_and_leaves_nothing(tmp_path):
    script = f"trap '' TERM; echo half; sleep 60 & echo $! >{tmp_path}/pid; wait; sleep 60"
    began = time.monotonic()
    said = on_node(script, seconds=0.5)
    assert time.monotonic() - began < 20
    assert said["over"] and said["text"] == "half\n"
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
            break
        time.sleep(0.05)
    else:
        pytest.fail("it still runs")


def test_a_task_has_the_environment_of_its_raylet(monkeypatch):
    """Ray sets CUDA_VISIBLE_DEVICES to nothing for a task that asks for no GPU."""
    code = (
        "import base64, os, sys, zlib; sys.path[:0] = sys.argv[1:];"
        "os.environ['CUDA_VISIBLE_DEVICES'] = 'none';"
        "from nodedoctor.probes.cluster import ray_fleet as r;"
        "said = r.on_node('echo $CUDA_VISIBLE_DEVICES', b'', 9)['text'];"
        "print(zlib.decompress(base64.b64decode(said)).decode())"
    )
    root = str(Path(nodedoctor.__file__).parent.parent)
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    done = subprocess.run(
        [sys.executable, "-c", parent, code, root],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"},
    )
    assert done.stdout.strip() == "0,1", done.stderr


# Which Python


def pythons(*words: str, **env: str) -> list[str]:
    done = subprocess.run(
        child("cluster/ray_pythons", *words),
        capture_output=True,
        text=True,
        env=env,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_active_environment_goes_first_then_what_stands_behind_ray(tmp_path):
    for name in ("venv", "other"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").symlink_to(sys.executable)
    ray = tmp_path / "other/bin/ray"
    ray.write_text(f"#!{tmp_path}/other/bin/python\n")
    ray.chmod(0o755)
    venv, other = str(tmp_path / "venv/bin/python"), str(tmp_path / "other/bin/python")
    found = pythons(VIRTUAL_ENV=str(tmp_path / "venv"), PATH=f"{ray.parent}:/usr/bin:/bin")
    assert found[:2] == [venv, other]
    ray.write_text("#!/bin/sh\nexec python -m ray\n")
    assert pythons(PATH=str(ray.parent))[0] == other


def test_a_named_one_is_the_only_one(tmp_path):
    assert pythons(sys.executable, VIRTUAL_ENV=str(tmp_path), PATH="/usr/bin") == [sys.executable]
    assert pythons("/no/such/python", PATH="/usr/bin") == []
    assert pythons("", PATH="relative") == []
    for name in ("python", "python3"):
        (tmp_path / name).symlink_to(sys.executable)
    assert pythons(PATH=str(tmp_path)) == [str(tmp_path / "python3")]


def test_a_python_without_ray_is_told(tmp_path):
    if subprocess.run([sys.executable, "-c", "import ray"], capture_output=True).returncode == 0:
        pytest.skip("our own Python has Ray here")
    with pytest.raises(FleetError, match=r"no Python with Ray here: tried .*No module named 'ray'.*--python"):
        asyncio.run(Ray("auto", sys.executable).hosts())
    with pytest.raises(FleetError, match="no such interpreter"):
        asyncio.run(Ray("auto", str(tmp_path / "python")).hosts())
