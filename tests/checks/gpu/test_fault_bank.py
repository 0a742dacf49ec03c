"""Faults in seven kinds of nodes, asked by the real child: each has the causes it should have, no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from fakes import build_nvml, nvml_env, write_config
from fault_bank import FAULTS, KINDS, USUAL
from recorded import alarms, nvml, replay

from nodedoctor.model import Report
from nodedoctor.report import brief, cause_text
from nodedoctor.report import json as report_json

LEAST = 86
Node = Callable[[Mapping[str, object], Mapping[str, str]], Report]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A node whose driver reports these values, with the rest of the machine as given."""
    folder = tmp_path_factory.mktemp("bank")
    library = build_nvml(folder)

    def asked(values: Mapping[str, object], around: Mapping[str, str]) -> Report:
        env = nvml_env(library, write_config(folder / "nvml.conf", values))
        return replay(folder / "node", {**around, "nvml": nvml(env)})

    return asked


def sick(node: Node, name: str) -> Report:
    fault = FAULTS[name]
    kind = KINDS[fault.kind]
    return node({**kind.values, **fault.values}, {**USUAL, **kind.around, **fault.around})


def is_as_expected(report: Report, name: str) -> None:
    found = tuple(f"{cause.status.value} {cause.id}" for cause in report.causes)
    assert found == FAULTS[name].causes, alarms(report)
    assert all(cause.fix and cause.fix.steps for cause in report.causes)
    if len(report.causes) == 1:
        lines = brief.render(report_json.document(report)).splitlines()
        assert len(lines) <= cause_text.ONE_SCREEN


def test_there_are_enough_and_none_is_without_a_cause() -> None:
    assert len(FAULTS) >= LEAST and all(fault.causes for fault in FAULTS.values())
    assert {fault.kind for fault in FAULTS.values()} == KINDS.keys()


@pytest.mark.parametrize("kind", ["b200", "l40s"])
def test_some_nodes_without_a_fault_are_silent(node: Node, kind: str) -> None:
    assert alarms(node(KINDS[kind].values, {**USUAL, **KINDS[kind].around})) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_node_without_a_fault_is_silent(node: Node, kind: str) -> None:
    assert alarms(node(KINDS[kind].values, {**USUAL, **KINDS[kind].around})) == []


@pytest.mark.parametrize("name", ["no NVLink reported by one", "no GPU counted", "every sensor fails"])
def test_some_faults_have_the_causes_they_should_have(node: Node, name: str) -> None:
    is_as_expected(sick(node, name), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_the_causes_it_should_have(node: Node, name: str) -> None:
    is_as_expected(sick(node, name), name)
