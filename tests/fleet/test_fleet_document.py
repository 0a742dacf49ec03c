"""The document of a fleet holds all that its views show: what is read back from it looks the same."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.fleet.compare.outliers import judge
from nodedoctor.fleet.document import document, fleet_of, render
from nodedoctor.fleet.model import Fleet, Node, NodeCause, Problem
from nodedoctor.fleet.text import render as text
from nodedoctor.model import Status
from nodedoctor.nodeset import expand
from nodedoctor.report import html, junit
from nodedoctor.tui.lines import matrix, node_pages
from nodedoctor.tui.lines import nodes as screen
from nodedoctor.tui.theme import UNICODE

SCHEMAS = Path(__file__).parents[2] / "nodedoctor" / "report" / "schemas"
SCHEMA = json.loads((SCHEMAS / "fleet.schema.json").read_text())
CHECKS = ("nvlink.links", "ib.state", "driver.answers")
HOSTS = ("gpu-1", "gpu-2", "gpu-010", "r1n2", "login", "10.0.0.7", "fe80::1", "a~b")

problems = st.builds(
    Problem,
    st.sampled_from(CHECKS),
    st.sampled_from(["", "gpu:3", "gpu:5"]),
    st.sampled_from([Status.FAIL, Status.WARN]),
    st.sampled_from(["16 of 18 links up", "12 of 18 links up", "\x1b[2J"]),
    fix=st.sampled_from(["", "Reseat it."]),
)

causes = st.builds(
    NodeCause,
    st.sampled_from(CHECKS),
    st.sampled_from([Status.FAIL, Status.WARN]),
    st.sampled_from(["provider: GPU 3 lost 2 NVLinks", "NODE: GPU 5 lost 2 NVLinks", "\x1b[2J"]),
    st.sampled_from(["", "nvidia-smi nvlink -s -i 3"]),
    st.sampled_from([(), ("nvlink.links@gpu:3", "ib.state")]),
    headline=st.sampled_from(["GPU 3 lost 2 NVLinks", "GPU 5 lost 2 NVLinks", "\x1b[2J"]),
    owner=st.sampled_from(["provider", "administrator", "you", "job-code", "undetermined"]),
    action=st.sampled_from(["replace-node", "investigate", "none"]),
    subjects=st.sampled_from([(), ("gpu:3",), ("port:mlx5_4/1",)]),
    preview=st.booleans(),
)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Nodes that answered or not, judged as `gather` judges them."""
    made = []
    for host in draw(st.lists(st.sampled_from(HOSTS), unique=True, max_size=8)):
        if draw(st.booleans()) or draw(st.booleans()):
            found = sorted(draw(st.lists(problems, max_size=3)), key=lambda one: -one.severity)
            statuses = {check: draw(st.sampled_from(list(Status))) for check in CHECKS}
            statuses |= {problem.check: problem.status for problem in reversed(found)}
            verdict = found[0].status if found else draw(st.sampled_from([Status.PASS, Status.SKIP]))
            traits = {"driver": draw(st.sampled_from(["570", "580"])), "gpus": "8"}
            alias = draw(st.sampled_from(["", "twin"]))
            made.append(
                Node(
                    host,
                    verdict=verdict,
                    statuses=statuses,
                    problems=tuple(found),
                    causes=tuple(draw(st.lists(causes, max_size=2))) if found else (),
                    traits=traits,
                    alias=alias,
                    gpus=8,
                    counts={"pass": 2},
                )
            )
        else:
            made.append(Node(host, draw(st.sampled_from(["silent", "unreachable"])), "no answer in 50 s"))
    titles = {problem.check: f"title of {problem.check}" for node in made for problem in node.problems}
    return Fleet("0", "ssh", "2026-11-21T05:33:34Z", 4.2, tuple(made), judge(made), titles)


@given(fleets())
def test_a_fleet_read_back_from_its_document_is_that_fleet(fleet: Fleet) -> None:
    told = json.loads(render(document(fleet)))
    jsonschema.validate(told, SCHEMA)
    again = fleet_of(told)
    assert document(again) == told
    assert again == replace(fleet, nodes=fleet.worst_first())
    assert set(again.passing) == set(fleet.passing) and set(again.failing) == set(fleet.failing)


@given(fleets())
def test_every_cause_of_every_node_is_in_the_list_of_causes(fleet: Fleet) -> None:
    listed = document(fleet)["causes"]
    assert all(one["count"] == len(expand(one["nodes"])) for one in listed)
    told = {(one["check"], one["owner"], host) for one in listed for host in expand(one["nodes"])}
    assert told == {(cause.check, cause.owner, node.host) for node in fleet.nodes for cause in node.causes}
    assert all((one["command"] is None) or one["host"] in expand(one["nodes"]) for one in listed)


@given(fleets())
def test_every_view_of_a_fleet_is_the_one_of_its_document(fleet: Fleet) -> None:
    live = document(fleet)
    saved = json.loads(render(live))
    for view in (text, html.render, junit.render):
        assert view(saved) == view(live)
    assert shown(fleet_of(saved)) == shown(replace(fleet, nodes=fleet.worst_first()))


def shown(fleet: Fleet) -> list[object]:
    """All that the screen says of a fleet."""
    cells = matrix.rows(fleet, 80, UNICODE)
    lines: list[object] = [screen.head(screen.Round(fleet)), matrix.heading(fleet, 80), *cells]
    lines += [list(matrix.about(fleet, row.key)) for row in cells]
    for folded, needle in product((True, False), ("", "is:fail", "!nvlink")):
        listed = screen.entries(fleet, folded=folded, glyphs=UNICODE, needle=needle)
        assert len({entry.key for entry in listed}) == len(listed)
        lines += [screen.rows(listed, 80, UNICODE), [node_pages.page(fleet, entry) for entry in listed]]
        lines += [entry.hosts for entry in listed]
    return lines
