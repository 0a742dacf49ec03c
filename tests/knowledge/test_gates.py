"""The table of gates: a row for every finding, and what is a job's never keeps the next job away."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_turn import in_turn
from recorded import judgement

from nodedoctor.engine.plugins import discover
from nodedoctor.knowledge.gates import gate_row, gates, may_gate, may_refuse, schedulable
from nodedoctor.model import Severity, Status, identifier

REPOSITORY = Path(__file__).parents[2]
FOLDERS = (REPOSITORY / "nodedoctor" / "demo", REPOSITORY / "tests" / "nodes")
NODES = [file.parent for folder in FOLDERS for file in sorted(folder.glob("*/manifest.json"))]
CHECKS = frozenset(discover().checks)
PAIRS = {"pairs.node", "pairs.path", "pairs.group"}  # findings between nodes


def test_every_check_has_a_row_and_every_row_a_check():
    of_all = {row.id for row in gates() if row.id == row.check and not row.action}
    assert of_all == CHECKS | PAIRS
    assert {row.check for row in gates()} == CHECKS | PAIRS
    keys = [(row.id, row.action) for row in gates()]
    assert len(keys) == len(set(keys))


def test_a_warning_never_refuses_jobs():
    assert all(row.warn != "no" for row in gates())
    assert not any(row.schedulable == "yes" and row.warn == "no" for row in gates())


@pytest.mark.slow
@in_turn("node", NODES, ids=[node.name for node in NODES])
def test_every_finding_of_a_recorded_node_has_a_row_that_alone_decides(node: Path):
    report = judgement(node, preview=True).report
    sick = {
        identifier(result.check, finding.subject): finding
        for result in report.results
        for finding in result.findings
        if finding.severity > Severity.BLIND
    }
    assert all(gate_row(id, f.fix.action if f.fix else "") for id, f in sick.items())
    expected = judgement(node).report  # a node may be recorded with what was expected of it
    assert expected.results
    for cause in report.causes:
        if cause.id in sick:
            finding = sick[cause.id]
            told = schedulable(cause.id, finding.status, finding.fix.action if finding.fix else "")
            assert cause.schedulable == told, cause.id


@in_turn(
    "id",
    [
        "env.lint@env:NCCL_SOCKET_IFNAME",
        "net.interface@env:NCCL_SOCKET_IFNAME",
        "ib.ports@hca:mlx5_9",
        "cloud.topology@env:NCCL_TOPO_FILE",
        "kernel.oom@process:python3",
        "kernel.hung@process:pt_main_thread",
        "kernel.driver@driver:mismatch",
        "limits.nofile@raylet",
        "limits.memlock",
        "limits.shm",
        "limits.memory@cgroup",
        "limits.disk@mount:/home",
        "limits.disk@mount:/home/user/.cache",
        "container.devices@container:gpus",
        "doctor.exhausted",
        "ray.resources",
        "pcie.acs@pci:0000:c1:00.0",
        "power.limit@gpu:3",
        *(f"{check}@package:torch" for check in sorted(CHECKS) if check.startswith("stack.")),
    ],
)
def test_what_is_a_jobs_or_only_slow_never_gates(id: str):
    for status in (Status.FAIL, Status.WARN):
        assert schedulable(id, status, "config") == schedulable(id, status, "restart-job") == "yes"
    kind = id.partition("@")[0]
    assert not may_refuse(kind) or any("@" in row.id or row.action for row in gates() if row.check == kind)


@pytest.mark.parametrize(
    ("id", "action"),
    [
        ("driver.gpus-present@gpu:3", "reboot"),
        ("driver.answers", "reboot"),
        ("memory.ecc@gpu:1", "reset-gpu"),
        ("memory.remap@gpu:1", "replace"),
        ("kernel.xid@gpu:1", "reboot"),
        ("kernel.xid@gpu:1", "reset-gpu"),
        ("fabric.manager", "restart-service"),
        ("fabric.state@gpu:0", "restart-service"),
        ("nvlink.links@gpu:3", "reset-gpu"),
        ("limits.disk@mount:/", "config"),
        ("limits.disk@mount:/home", "investigate"),
    ],
)
def test_broken_hardware_and_a_dead_driver_refuse_jobs(id: str, action: str):
    assert schedulable(id, Status.FAIL, action) == "no"  # type: ignore[arg-type]
    assert schedulable(id, Status.UNKNOWN) == "drain-when-idle"


def test_the_check_of_a_plug_in_gates_where_it_fails():
    assert [schedulable("site.door", status) for status in (Status.FAIL, Status.WARN)] == ["no", "yes"]
    assert may_gate("site.door") and may_refuse("site.door")


def test_most_checks_of_jobs_need_not_be_asked():
    assert not any(may_gate(check) for check in CHECKS if check.startswith(("env.", "stack.", "ray.")))
    assert all(may_gate(check) for check in ("driver.answers", "nvlink.links", "kernel.xid", "ib.ports"))
