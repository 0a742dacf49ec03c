"""How bad a finding is: one scale for findings, results, nodes and fleets."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import checks
import nodedoctor
from nodedoctor.fleet.model import Node, Problem
from nodedoctor.model import BLIND, Finding, Severity, Status

SOURCES = [
    path
    for package in (nodedoctor, checks)
    for path in sorted(Path(package.__path__[0]).rglob("*.py"))
    if "demo" not in path.parts
]


def test_a_failure_is_worse_than_what_broke_and_that_than_a_warning() -> None:
    findings = [
        Finding.fail("f"),
        Finding.unknown("stuck", "hangs"),
        Finding.warn("w"),
        Finding.unknown("denied", "no permission"),
        Finding.ok("o"),
        Finding.skip("s"),
    ]
    assert sorted(findings, key=lambda finding: -finding.severity) == findings
    assert [finding.severity.is_problem for finding in findings] == [True] * 4 + [False] * 2


def test_what_is_waived_is_as_bad_as_a_pass() -> None:
    for status, reason in product(Status, ("denied", "crash")):
        assert Severity.of(status, reason, "known, replaced in May") is Severity.PASS


def test_severity_has_the_status_it_came_from() -> None:
    for status, reason in product(Status, (*BLIND, "crash", None)):
        assert Severity.of(status, reason).status is status


def test_a_node_without_a_report_is_as_bad_as_one_where_something_broke() -> None:
    broken = Problem("gpu.nvml", "", Status.UNKNOWN, "hangs", reason="stuck")
    assert Node("a", "silent").severity is Node("b", problems=(broken,)).severity is Severity.BROKEN


def test_no_severity_is_a_bare_number() -> None:
    """Code that compares a severity with a literal would go wrong silently where the scale grows."""
    found = [
        f"{path}:{node.lineno}"
        for path in SOURCES
        if "severity" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare)
        and any("severity" in ast.unparse(side) for side in (node.left, *node.comparators))
        and any(
            isinstance(side, ast.Constant) and isinstance(side.value, int)
            for side in (node.left, *node.comparators)
        )
    ]
    assert not found
