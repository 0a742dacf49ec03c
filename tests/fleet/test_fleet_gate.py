"""`fleet --gate --need N`: which nodes may start jobs, and answers that are not a node's own of now."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import nodedoctor_forked

from nodedoctor.fleet.gather import own_reports
from nodedoctor.fleet.model import FRESH_S, Fleet, Node, Problem
from nodedoctor.fleet.reports.reading import node as read
from nodedoctor.model import Observation, Status

REPOSITORY = Path(__file__).parents[2]
NOW, OLD = "2026-11-26T19:00:00Z", "2026-10-01T19:00:00Z"
SSH = """#!/bin/sh
[ "$1" = -V ] && exit 0
while [ "$1" != -- ]; do shift; done
case $2 in
{cases}
esac
"""


def node(host: str, gate: int | None = 0, started: str = NOW, **more: Any) -> Node:
    return Node(host, gate=gate, started=started, hostname=host, verdict=Status.PASS, **more)


def fleet(*nodes: Node, gated: bool = True) -> Fleet:
    return Fleet("1", "ssh", NOW, 1.0, nodes, gated=gated)


def warns(count: int) -> tuple[Problem, ...]:
    return tuple(Problem("a.b", f"gpu:{number}", Status.WARN, "s") for number in range(count))


def test_a_node_passes_by_0_or_3_and_the_fewest_warnings_come_first():
    nodes = (
        node("a", 0, problems=warns(3)),
        node("b", 3, problems=warns(1)),
        node("c", 2),
        node("d", 4),
        node("e", 0),
        node("f", None),
        Node("g", "silent"),
    )
    made = fleet(*nodes)
    assert made.passing == ("e", "b", "a")
    assert made.failing == ("c", "d", "f", "g") and made.unjudged == ()


def test_an_old_report_passes_nobody():
    assert fleet(node("a", started=OLD), node("b", started="")).passing == ()
    assert fleet(node("a", started=OLD, replayed=True)).passing == ("a",)
    late = f"2026-11-26T{19 + int(FRESH_S // 3600) + 1}:00:00Z"
    assert fleet(node("a", started=late)).passing == ()


def test_the_answer_of_another_node_is_none_of_this_one():
    told = [node("gpu-1"), node("gpu-2"), node("gpu-3"), Node("gpu-4", started=NOW, hostname="gpu-2")]
    own = list(own_reports(told, NOW))
    assert [one.state for one in own] == ["answered"] * 3 + ["unreadable"]
    assert "the report is of gpu-2, another node" in own[3].note
    told[3] = Node("gpu-4", started=NOW, hostname="gpu-77")
    assert [one.state for one in own_reports(told, NOW)][3] == "unreadable"
    aliases = [Node(f"n{number}", started=NOW, hostname=f"ip-10-0-0-{number}") for number in range(4)]
    assert all(one.state == "answered" for one in own_reports(aliases, NOW))
    assert [one.state for one in own_reports([node("a", started=OLD), node("b")], NOW)] == [
        "unreadable",
        "answered",
    ]


def test_a_report_that_contradicts_its_own_gate_does_not_pass():
    text = nodedoctor_forked("demo", "nvlinks-down", "--json").stdout
    assert read("a", Observation("x", text=text)).gate == 2
    document = {**json.loads(text), "gate": {"exit": 0, "word": "pass", "causes": []}}
    assert read("a", Observation("x", text=json.dumps(document))).gate == 2


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    """Ask hosts by a stand-in for ssh: each is like a recorded node, or gives an old report."""
    cases = []
    for host, name in (("gpu-1", "healthy"), ("gpu-2", "nvlinks-down"), ("gpu-3", "raylet-1024-files")):
        run = f"{sys.executable} -m nodedoctor demo {name} --json --gate"
        cases.append(f"{host}) cd {REPOSITORY} && exec {run} ;;")
    told = nodedoctor_forked("demo", "healthy", "--json").stdout
    document = {**json.loads(told), "source": "live", "started": OLD}
    (tmp_path / "old.json").write_text(json.dumps(document))
    cases.append(f"gpu-4) exec cat {tmp_path}/old.json ;;")
    (tmp_path / "ssh").write_text(SSH.format(cases="\n".join(cases)))
    (tmp_path / "ssh").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        asking = ("fleet", "--ssh", "gpu-[1-4]", "--deadline", "60")
        return nodedoctor_forked(*asking, *words, env=env, cwd=tmp_path)

    return ask


@pytest.mark.slow
def test_enough_nodes_or_not(asked: Any, tmp_path: Path):
    words = ("--json", "--gate", "--passing", "good.txt", "--failing", "bad.txt")
    done = asked(*words, "--need", "2")
    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert document["gated"] is True
    states = {one["host"]: (one["state"], one["gate"]) for one in document["nodes"]}
    assert states["gpu-4"] == ("unreadable", None)
    assert {states[f"gpu-{number}"] for number in (1, 2, 3)} == {("answered", 0), ("answered", 2)}
    assert set((tmp_path / "good.txt").read_text().split()) == {"gpu-1", "gpu-3"}
    assert set((tmp_path / "bad.txt").read_text().split()) == {"gpu-2", "gpu-4"}
    done = asked(*words, "--need", "3")
    assert done.returncode == 2 and "2 of 4 nodes pass the gate, 3 needed" in done.stderr


@pytest.mark.slow
def test_an_old_report_is_not_passing_without_a_gate_either(asked: Any, tmp_path: Path):
    done = asked("--json", "--passing", "good.txt", "driver")
    assert "gpu-4" not in (tmp_path / "good.txt").read_text().split()
    (old,) = (one for one in json.loads(done.stdout)["nodes"] if one["host"] == "gpu-4")
    assert old["state"] == "unreadable" and "an old one" in old["note"]


@pytest.mark.parametrize(
    "words", [["--need", "2"], ["--gate", "--fail-on", "warn"], ["--gate", "--exit-zero"]]
)
def test_options_that_have_no_meaning(words: list[str]):
    assert nodedoctor_forked("fleet", "--ssh", "gpu-[1-4]", *words).returncode == 64
