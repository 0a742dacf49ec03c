"""The agent ends with its stdin, with silence and by a signal; the plan and words of the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodedoctor.cli.main import main
from nodedoctor.errors import NodeDoctorError
from nodedoctor.fleet.ending import limit, tripped
from nodedoctor.pairs import agent_pool
from nodedoctor.pairs.topology import leaves


@pytest.fixture
def talk():
    argv = ["/bin/sh", "-c", agent_pool.script("tcp", sys.executable)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    process.stdin.write(agent_pool.program().decode())
    yield process
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        pipe.close()


def hello(process: subprocess.Popen[str], quiet: float) -> dict[str, object]:
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps({"do": "hello", "toward": [], "quiet": quiet, "what": "tcp"}) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline().removeprefix(agent_pool.MARK))


def test_an_agent_ends_with_its_stdin(talk: subprocess.Popen[str]):
    assert hello(talk, 60)["is_"] == "ready"
    assert talk.stdin
    talk.stdin.close()
    assert talk.wait(5) == 0


@pytest.mark.slow
def test_an_agent_ends_when_it_hears_nothing(talk: subprocess.Popen[str]):
    hello(talk, 1)
    began = time.monotonic()
    assert talk.wait(10) == 0 and time.monotonic() - began < 8


def test_an_agent_ends_by_a_signal(talk: subprocess.Popen[str]):
    hello(talk, 60)
    talk.send_signal(signal.SIGTERM)
    assert talk.wait(5) == 143


def test_a_plan_is_printed_and_nothing_run(capsys: pytest.CaptureFixture[str]):
    assert main(["fleet", "--ssh", "a[1-64]", "--pairs", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["mode"], told["nodes"], told["rounds"]) == ("sample", 64, 8)
    assert told["longest_seconds"] <= 900
    assert main(["fleet", "--ssh", "a[1-4]", "--pairs", "--dry-run"]) == 0
    assert "4 nodes, mode all, 6 of 6 pairs" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--ssh", "a1", "--pairs"],
        ["--reports", "x", "--pairs"],
        ["--ssh", "a[1-4]", "--pairs", "--deep"],
        ["--ssh", "a[1-4]", "--pairs", "--expect", "gpus=8"],
        ["--ssh", "a[1-4]", "nvlink", "--pairs=ring"],
    ],
)
def test_what_cannot_be_measured_is_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["fleet", *words]) == 64
    assert "--pairs" in capsys.readouterr().err


def test_leaves_are_read_from_three_forms(tmp_path: Path):
    hosts = ["gpu-1", "root@gpu-2", "gpu-3.cluster"]
    slurm = (
        "SwitchName=leaf1 Nodes=gpu-[1-2]\nSwitchName=leaf2 Nodes=gpu-3\nSwitchName=top Switches=leaf[1-2]"
    )
    assert leaves(slurm, hosts) == {"gpu-1": "leaf1", "root@gpu-2": "leaf1", "gpu-3.cluster": "leaf2"}
    assert leaves("gpu-[1-2] leaf1\n# none\ngpu-3 leaf2", hosts) == leaves(slurm, hosts)
    fabric = (
        'Switch 40 "S-e41d2d0300a1b2c0" # "leaf1" enhanced port 0 lid 3 lmc 0\n'
        '[1] "H-e41d2d0300000001"[1](e41d2d0300000002) # "gpu-1 mlx5_0" lid 5 4xHDR\n'
        '[2] "H-e41d2d0300000003"[1](e41d2d0300000004) # "gpu-2 mlx5_0" lid 6 4xHDR\n'
        'Switch 40 "S-e41d2d0300a1b2c1" # "leaf2" enhanced port 0 lid 4 lmc 0\n'
        '[1] "H-e41d2d0300000005"[1](e41d2d0300000006) # "gpu-3 mlx5_0" lid 7 4xHDR\n'
    )
    assert leaves(fabric, hosts) == leaves(slurm, hosts)
    with pytest.raises(NodeDoctorError):
        leaves("other leaf1", hosts)


@pytest.mark.parametrize(
    ("sick", "nodes", "allowed", "trips"),
    [
        (2, 8, None, False),
        (3, 8, None, True),
        (10, 100, None, False),
        (11, 100, None, True),
        (3, 8, limit("3"), False),
        (3, 8, limit("50%"), False),
        (8, 8, limit("100%"), False),
        (1, 8, limit("0"), True),
    ],
)
def test_one_cause_on_too_many_nodes_writes_no_list(
    sick: int, nodes: int, allowed: float | None, trips: bool
):
    assert bool(tripped({"x": {f"n{i}" for i in range(sick)}, "y": {"n0"}}, nodes, allowed)) is trips
