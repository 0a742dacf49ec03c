"""What documents for contributors name exists, and the path to a first check works as it is written."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
DOCUMENTS = (
    "CONTRIBUTING.md",
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "Makefile",
    "docs/architecture.md",
    "docs/recipes/README.md",
)
TOP = ("checks", "docs", "nodedoctor", "tests", "tools")

MADE = ("checks/host/uptime.py", "tests/nodes/just-booted")
"""What the reader makes on the way."""


def paths(text: str) -> set[str]:
    """Every word that is a path into one of our folders."""
    words = re.findall(rf"(?<![\w./-])(?:{'|'.join(TOP)})/[\w./-]*", text)
    return {word.rstrip(".") for word in words if not word.startswith(MADE)}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_exists(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    assert [path for path in sorted(paths(text)) if not (REPOSITORY / path).exists()] == []


def test_paths_are_found_at_all() -> None:
    assert {"nodedoctor/plugin.py", "tests/checks/rdma/test_ib.py", "nodedoctor/knowledge/"} <= paths(
        CONTRIBUTING
    )


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "docs/writing-checks.md"])
def test_every_import_works(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    found = re.findall(r"^from (nodedoctor[\w.]*) import (.+)$", text, re.MULTILINE)
    assert found
    for module, names in found:
        assert [
            name for name in names.split(", ") if not hasattr(importlib.import_module(module), name)
        ] == []


def test_the_families_named_are_those_of_the_checks() -> None:
    (named,) = re.findall(r"families of the same names: `([a-z\s]+)`", CONTRIBUTING)
    folders = {path.parent.name for path in (REPOSITORY / "checks").glob("*/__init__.py")}
    assert set(named.split()) == folders


def printed(kind: str) -> str:
    """The one block of that kind that the tutorial prints."""
    (block,) = re.findall(rf"```{kind}\n(.*?)```", CONTRIBUTING, re.DOTALL)
    return block


def follow(tree: Path) -> Path:
    """Steps 2 to 4 in a copy of the checkout, without what an earlier reader made; the node."""
    shutil.copytree(
        REPOSITORY, tree, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    )
    check, node = (tree / made for made in MADE)
    shutil.rmtree(node, ignore_errors=True)
    check.write_text(printed("python"), encoding="utf-8")
    shutil.copytree(tree / "nodedoctor" / "demo" / "healthy", node)  # step 3 records the machine it runs on
    boot(node, "42.00 80.00")
    (node / "expected.json").write_text(printed("json"), encoding="utf-8")
    return node


def boot(node: Path, uptime: str) -> None:
    """The edit of step 3."""
    machine = node / "probes" / "machine.txt"
    machine.write_text(re.sub(r'("/proc/uptime": )"[^"]*"', rf'\1"{uptime}\\n"', machine.read_text()))


def python(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A module's run in that copy, with the packages that are installed here."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.slow
def test_the_first_check_judges_its_node(tmp_path: Path) -> None:
    node = follow(tmp_path / "tree")
    for uptime, status in (("42.00 80.00", "warn"), ("86400.00 80.00", "pass")):
        boot(node, uptime)
        done = python(tmp_path / "tree", "nodedoctor", "--replay", str(node), "--json", "host.uptime")
        (result,) = json.loads(done.stdout)["results"]
        assert (result["check"], result["status"]) == ("host.uptime", status)


@pytest.mark.slow
def test_whoever_follows_the_tutorial_ends_with_green_tests(tmp_path: Path) -> None:
    """Step 5: the tests that look at every check, every node, every word and every page, and the style."""
    tree = tmp_path / "tree"
    follow(tree)
    style = python(tree, "ruff", "check", MADE[0]), python(tree, "ruff", "format", "--check", MADE[0])
    assert [one.stdout for one in style if one.returncode] == []
    one = python(tree, "pytest", *ON_ITS_NODE, "-k", "just-booted or host.uptime or uptime")
    assert one.returncode == 0, one.stdout[-3000:]
    done = python(tree, "pytest", "-m", "not slow and not real", *ON_EVERYTHING)
    assert done.returncode == 0, done.stdout[-3000:]


ON_ITS_NODE = (
    "tests/test_nodes.py",
    "tests/engine",
    "tests/report",
    "tests/test_false_alarms.py",
    "tests/cli",
)
"""Tests with a case for each node or check."""
ON_EVERYTHING = (
    "tests/tools/test_wording.py",
    "tests/tools/test_rooms.py",
    "tests/test_provenance.py",
    "tests/test_preview.py",
    "tests/test_contributing.py",
)
"""Tests that read all checks or nodes at once, and this file."""
