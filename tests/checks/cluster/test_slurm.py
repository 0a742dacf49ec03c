"""Slurm's GPUs against the driver's: what scontrol prints in, findings out."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest
from asking import brief, judge, write
from hypothesis import given
from hypothesis import strategies as st
from test_stack_checks import H100, gpus

from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.cluster.slurm import SlurmNode, slurm_node
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.model import Observation, Outcome, Unseen

LINE = (
    "NodeName=gpu01 Arch=x86_64 CoresPerSocket=48 CPUAlloc=0 Gres=gpu:h100:8(S:0-1) NodeAddr=gpu01 "
    "State={state} ThreadsPerCore=2 CfgTRES=cpu=192,mem=2T,gres/gpu=8 AllocTRES={given} "
    "Reason=Xid 79 [root@2026-11-20T10:00:00]\n"
)


def node(state: str = "MIXED", given: str = "cpu=8,gres/gpu=4") -> SlurmNode:
    made = SlurmNode.parse(Observation("slurm-node", text=LINE.format(state=state, given=given), rc=0))
    assert isinstance(made, SlurmNode)
    return made


def test_the_line_is_read():
    made = node("IDLE+DRAIN*", "")
    assert (made.name, made.gpus, made.allocated) == ("gpu01", 8, 0)
    assert made.states == ("IDLE", "DRAIN")
    assert made.reason == "Xid 79"
    assert node().allocated == 4


@pytest.mark.parametrize(("count", "expected"), [(8, "pass"), (7, "fail"), (9, "note")])
def test_gres_against_the_driver(count, expected):
    found = judge("slurm.gres", node(), gpus(*[H100] * count))
    assert brief(found)[0] == (expected, "slurm:gres")
    if expected == "fail":
        assert "8 GPUs" in found[0].summary and "reports 7" in found[0].summary


@pytest.mark.parametrize(("granted", "sees", "expected"), [(4, 4, "pass"), (4, 3, "fail"), (4, 8, "note")])
def test_a_jobs_share(granted, sees, expected):
    env = Env({"SLURM_JOB_ID": "77", "SLURM_GPUS_ON_NODE": str(granted)})
    found = judge("slurm.gres", node(), env, gpus(*[H100] * sees))
    assert brief(found) == [(expected, "slurm:granted")]


def test_what_a_job_left_behind():
    left = Process(9, program="python3", script="train.py", uid=1000, user="ann", nvidia=("/dev/nvidia0",))
    service = replace(left, pid=10, role="dcgm", uid=0)
    found = judge("slurm.gres", node("IDLE", ""), gpus(*[H100] * 8), Processes((left, service)))
    assert brief(found) == [("pass", "slurm:gres"), ("warn", "slurm:leftovers")]
    assert "1 process holds" in found[1].summary and "train.py" in found[1].summary
    assert brief(judge("slurm.gres", node(), gpus(*[H100] * 8), Processes((left,)))) == [
        ("pass", "slurm:gres")
    ]


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("IDLE+DRAIN", "Xid 79", "warn"),
        ("IDLE+DRAIN", "", "warn"),
        ("MIXED+DRAIN", "bad DIMM", "warn"),
        ("DRAINED", "Kill task failed", "warn"),
        ("DOWN*+DRAIN", "Not responding", "warn"),
        ("DOWN", "maintenance", "warn"),
        ("IDLE+DRAIN", "maintenance on Tuesday", "note"),
        ("IDLE+DRAIN+MAINT", "", "note"),
        ("IDLE+MAINTENANCE+RESERVED", "", "note"),
    ],
)
def test_a_drained_node_says_why(state: str, reason: str, expected: str):
    drained = replace(node(state, ""), reason=reason)
    found = judge("slurm.gres", drained, gpus(*[H100] * 8))
    last = found[-1]
    assert brief(found)[-1] == (expected, "slurm:state")
    assert reason in last.summary
    commands = [step.command for step in last.fix.steps] if last.fix else []
    assert not any("State=DRAIN" in command for command in commands)


def test_without_slurm_there_is_nothing_to_see(tmp_path):
    asked = slurm_node(Options())
    assert isinstance(asked, Command)
    done = subprocess.run(asked.argv, env={"PATH": str(tmp_path)}, capture_output=True, executable="/bin/sh")
    seen = SlurmNode.parse(Observation("slurm-node", rc=done.returncode))
    assert isinstance(seen, Unseen) and not seen.applies
    assert brief(judge("slurm.gres", Env({}))) == [("skip", "")]


def test_scontrol_is_asked_for_this_node(tmp_path):
    script = write(tmp_path / "scontrol", "#!/bin/sh\necho NodeName=$4 State=IDLE Gres=gpu:2\n")
    script.chmod(0o755)
    asked = slurm_node(Options())
    assert isinstance(asked, Command)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURMD_NODENAME": "n7"}
    done = subprocess.run(asked.argv, env=env, capture_output=True, text=True, check=True)
    seen = SlurmNode.parse(Observation("slurm-node", text=done.stdout, rc=0))
    assert isinstance(seen, SlurmNode)
    assert (seen.name, seen.gpus, seen.idle) == ("n7", 2, True)


def test_a_controller_that_is_silent_is_unseen():
    assert isinstance(SlurmNode.parse(Observation("slurm-node", Outcome.TIMEOUT)), Unseen)


WORDS = [
    "NodeName=",
    "Gres=gpu:",
    "gpu:a:9999999",
    "State=IDLE+",
    "AllocTRES=gres/gpu=",
    "Reason=",
    " ",
    "(null)",
]


@given(st.text() | st.lists(st.sampled_from(WORDS) | st.text(max_size=4)).map("".join))
def test_any_text_is_a_node_or_unseen(text):
    assert isinstance(SlurmNode.parse(Observation("slurm-node", text=text, rc=0)), (SlurmNode, Unseen))
