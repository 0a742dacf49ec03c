"""What documents for contributors name exists, and the path to a first check works as it is written."""

from __future__ import annotations

import importlib
import json
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


@pytest.mark.parametrize(("uptime", "status"), [("42.00 80.00", "warn"), ("86400.00 80.00", "pass")])
def test_the_first_check_judges_its_node(uptime: str, status: str, tmp_path: Path) -> None:
    """Steps 2 to 5: the check as it is printed, and a recorded node with the edit that is printed."""
    (example,) = re.findall(r"```python\n(.*?)```", CONTRIBUTING, re.DOTALL)
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "uptime.py").write_text(example)
    node = shutil.copytree(REPOSITORY / "nodedoctor" / "demo" / "healthy", tmp_path / "node")
    machine = node / "probes" / "machine.txt"
    machine.write_text(re.sub(r'("/proc/uptime": )"[^"]*"', rf'\1"{uptime}\\n"', machine.read_text()))
    words = ("--replay", str(node), "--checks", str(tmp_path / "checks"), "--json", "host.uptime")
    done = subprocess.run(
        [sys.executable, "-m", "nodedoctor", *words], capture_output=True, text=True, timeout=60, check=False
    )
    (result,) = json.loads(done.stdout)["results"]
    assert (result["check"], result["status"]) == ("host.uptime", status)
