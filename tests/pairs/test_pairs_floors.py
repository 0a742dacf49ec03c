"""What a good pair must have: from the command line, from a run that was well, and from the table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pairs_world import World

from nodedoctor.cli.main import main
from nodedoctor.expectations import expectations
from nodedoctor.fleet.document import render
from nodedoctor.knowledge.floors import shares
from nodedoctor.pairs.crew import CrewMember
from nodedoctor.pairs.document import document
from nodedoctor.pairs.drive import PlanOutcome
from nodedoctor.pairs.model import What
from nodedoctor.pairs.on_node.collective import job_environment


def told(
    what: What = "tcp", *, share: float = 1.0, floors: dict[str, float] | None = None, **links: object
) -> dict[str, object]:
    world = World(8)
    world.share["gpu-003"] = share
    planned, seen, measured, rounds = world.run()
    measured = [replace(one, round=one.round + 1) for one in measured]
    members = tuple(CrewMember(name, "10.0.0.1", **links) for name in world.nodes)  # type: ignore[arg-type]
    outcome = PlanOutcome(members, replace(planned, what=what), tuple(measured), (), seen, rounds)
    started = "2026-01-02T03:04:05Z"
    return document(
        outcome, source="ssh", started=started, seconds=9.0, size=0, groups={}, floors=floors or {}
    )


def status(document: dict[str, object]) -> str:
    findings: list[dict[str, str]] = document["findings"]  # type: ignore[assignment]
    return next(one["status"] for one in findings if one["id"].partition("@")[0] == "pairs.floor")


@pytest.mark.parametrize(
    ("what", "links", "wanted"),
    [
        ("tcp", {"link_gbps": 10.0}, "pass"),
        ("rdma", {"rails": ("a/1", "b/1"), "rail_gbps": 200.0}, "pass"),
        ("rdma", {"rails": ("a/1", "b/1"), "rail_gbps": 400.0}, "warn"),
        ("collective", {"rails": ("a/1",) * 8, "rail_gbps": 400.0, "gpus": 8}, "warn"),
        ("collective", {"rails": ("a/1",), "rail_gbps": 200.0, "gpus": 8}, "pass"),
    ],
)
def test_a_cluster_that_is_slow_everywhere_is_below_the_tables_floor(
    what: What, links: dict[str, object], wanted: str
):
    assert status(told(what, **links)) == wanted


@pytest.mark.parametrize("links", [{}, {"link_gbps": 400.0}])
def test_where_nothing_is_known_of_the_links_no_floor_is_claimed(links: dict[str, object]):
    findings: list[dict[str, object]] = told(**links)["findings"]  # type: ignore[assignment]
    assert next(one["note"] for one in findings if str(one["id"]).startswith("pairs.floor"))


@pytest.mark.parametrize(
    ("what", "key", "units"),
    [("tcp", "pair.gbps", 1), ("rdma", "pair.rdma", 1), ("collective", "pair.busbw", 8)],
)
def test_what_expect_writes_passes_the_run_it_is_from(
    what: What, key: str, units: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "pairs.json"
    path.write_text(render(told(what)))
    assert main(["expect", "--pairs", str(path)]) == 0
    (tmp_path / "pairs.expect").write_text(capsys.readouterr().out)
    written = {key: float(value) for key, value in expectations([str(tmp_path / "pairs.expect")]).items()}
    assert written.keys() == {key} and 170 < written[key] * units < 190
    assert status(told(what, floors=written)) == "pass"
    assert status(told(what, floors={key: 1.3 * written[key]})) == "fail"


def test_a_sick_run_is_no_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(told(share=0.5)))
    assert main(["expect", "--pairs", str(path)]) == 2
    assert "cannot be the reference" in capsys.readouterr().err
    path.write_text("{}")
    assert main(["expect", "--pairs", str(path)]) == 64


def test_every_row_has_a_source():
    assert all(row.source and 0 < row.share < 1 for row in shares())


def test_a_tree_does_not_hide_half_of_the_rails():
    alone = {"NCCL_ALGO": "Ring"}
    assert job_environment("", {"NCCL_ALGO": "Tree"}) == alone
    chosen = job_environment("eth2", {"NCCL_SOCKET_IFNAME": "ib0"})
    assert chosen == alone | {"GLOO_SOCKET_IFNAME": "eth2", "NCCL_SOCKET_IFNAME": "ib0"}
    assert told("collective", rails=("a/1",), rail_gbps=200.0, gpus=8)["plan"]["algorithm"] == "ring"
