"""Rooms of the package know each other one way: without circles each can be read without the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.lint
ROOT = Path(__file__).parents[2]


def room(module: str) -> str:
    """`nodedoctor.facts` of `nodedoctor.facts.gpu.gpus`; a file beside the rooms is one of its own."""
    first, *rest = module.replace("nodedoctor.checks", "checks", 1).split(".")
    return f"{first}.{rest[0]}" if first == "nodedoctor" and rest else first


@cache
def modules() -> dict[str, ast.Module]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text())
        for folder in ("nodedoctor", "checks")
        for path in (ROOT / folder).rglob("*.py")
    }


def imported(tree: ast.Module) -> Iterator[str]:
    """What a module needs to be loaded: not what its functions or the type checker import."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def used(tree: ast.AST) -> Iterator[ast.AST]:
    """All of a module but what only the type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from used(node)


def test_no_two_files_need_each_other():
    """Not even where one of them is imported late, inside of a function."""
    trees = modules()
    known: dict[str, set[str]] = {}
    for module, tree in trees.items():
        needs = set(imported(ast.Module(list(used(tree)), [])))  # type: ignore[arg-type]
        found = {name if name in trees else name.rpartition(".")[0] for name in needs}
        known[module] = found & trees.keys() - {module}
    assert sum(map(len, known.values())) > 1000
    try:
        TopologicalSorter(known).prepare()
    except CycleError as circle:
        pytest.fail(f"a circle of files: {circle.args[1]}")


def test_rooms_know_each_other_one_way():
    known: dict[str, set[str]] = {}
    for module, tree in modules().items():
        needs = {room(name) for name in imported(tree) if name.startswith(("nodedoctor", "checks"))}
        known.setdefault(room(module), set()).update(needs - {room(module)})
    assert len(known) > 20
    try:
        TopologicalSorter(known).prepare()
    except CycleError as circle:
        pytest.fail(f"a circle of rooms: {circle.args[1]}")


def rank_decisions(tree: ast.AST) -> list[ast.Call]:
    """Where an identity is given another rank: `replace(who, rank=...)`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call
        for call in calls
        if ast.unparse(call.func) in ("replace", "dataclasses.replace")
        and any(keyword.arg == "rank" for keyword in call.keywords)
    ]


def test_only_identity_decides_a_rank():
    """A prefix tells a rank, `identity` decides which one counts, and all others ask it."""
    triage = [(module, tree) for module, tree in modules().items() if module.startswith("nodedoctor.triage.")]
    deciding = {module for module, tree in triage if rank_decisions(tree)}
    elsewhere = {
        module
        for module in deciding
        if not module.startswith(("nodedoctor.triage.identity.", "nodedoctor.triage.lines.prefix"))
    }
    assert "nodedoctor.triage.identity.assign" in deciding and not elsewhere


TRIAGE = ("lines", "patterns", "identity", "read", "timeline", "flight", "verdict", "live", "job", "cli")
"""The way of a log through triage; what stands beside the rooms is known by all of them."""


def test_a_room_of_triage_knows_only_those_before_it():
    """Late imports counted."""
    back, named = [], set()
    for module, tree in modules().items():
        here = module.partition("nodedoctor.triage.")[2].partition(".")[0]
        named.add(here)
        for name in imported(ast.Module(list(used(tree)), [])):  # type: ignore[arg-type]
            there = name.partition("nodedoctor.triage.")[2].partition(".")[0]
            if {here, there} <= {*TRIAGE} and TRIAGE.index(there) > TRIAGE.index(here):
                back.append(f"{module} -> {name}")
    assert named > {*TRIAGE}
    assert back == []
