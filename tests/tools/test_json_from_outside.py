"""JSON that others wrote is read in one place, which refuses what would break its readers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.lint
ROOT = Path(__file__).parents[2]
ONE_PLACE = "nodedoctor/json_shapes.py"
ALONE = ("nodedoctor/probes/", "nodedoctor/pairs/on_node/")
"""Children that run without the package, and read what it or the kernel told them."""
OURS = ("nodedoctor/knowledge/table.py", "nodedoctor/report/json.py")
"""Readers of tables of the package and of what was written a line before."""


def readers(tree: ast.AST) -> Iterator[int]:
    """The lines in which the library's own reader is named."""
    for node in ast.walk(tree):
        if (
            (isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.load", "json.loads"))
            or (isinstance(node, ast.Attribute | ast.Name) and "JSONDecoder" in ast.unparse(node))
            or (isinstance(node, ast.ImportFrom) and node.module == "json")
        ):
            yield node.lineno


def test_nothing_but_one_module_reads_json_from_outside() -> None:
    found = {}
    for folder in ("nodedoctor", "checks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "json" in text.lower() and (lines := list(readers(ast.parse(text)))):
                found[str(path.relative_to(ROOT))] = lines
    assert found.keys() >= {ONE_PLACE, *OURS}
    known = (ONE_PLACE, *ALONE, *OURS)
    elsewhere = {path: lines for path, lines in found.items() if not path.startswith(known)}
    assert not elsewhere, f"read by json_shapes.loaded instead: {elsewhere}"
