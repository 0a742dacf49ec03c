"""The script that compares the tables with the index: metadata in, rows and differences out."""

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools/knowledge/refresh.py"


@pytest.fixture(scope="module")
def refresh():
    spec = importlib.util.spec_from_file_location("refresh", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SAID = {
    "version": "9.9.0",
    "requires_python": ">=3.12",
    "requires_dist": [
        "torch==9.1.0",
        "nvidia-nccl-cu13==9.0; platform_system == 'Linux'",
        "triton==9.9; platform_system == 'Windows'",
        "transformers<9; extra == 'all'",
        "requests",
        "not a requirement ==",
    ],
}


def test_a_row_of_metadata(refresh):
    row = refresh.row_of("vllm", SAID)
    assert (row["version"], row["requires"]) == ("9.9.0", {"torch": "==9.1.0"})
    assert refresh.row_of("torch", SAID)["pins"] == {"torch": "9.1.0", "nvidia-nccl-cu13": "9.0"}


def test_differences_in_words(refresh):
    ours, theirs = {"requires": {"torch": "==1"}}, {"requires": {"torch": "==2", "triton": "==3"}}
    assert list(refresh.compare("x 1", ours, theirs)) == ["~ x 1: torch ==1 -> ==2", "~ x 1: triton - -> ==3"]
    assert list(refresh.compare("x 1", ours, ours)) == []


@pytest.mark.parametrize("package", ["vllm", "torch"])
def test_a_new_row_finds_its_place(refresh, package, tmp_path, monkeypatch):
    for name in ("torch_pins.json", "stack_pins.json"):
        (tmp_path / name).write_text((refresh.TABLES / name).read_text())
    monkeypatch.setattr(refresh, "TABLES", tmp_path)
    row = refresh.row_of(package, SAID)
    refresh.insert(row)
    table = json.loads(
        (tmp_path / ("torch_pins.json" if package == "torch" else "stack_pins.json")).read_text()
    )
    known = refresh.known(table, package)
    assert "9.9.0" in known
    assert max(known, key=refresh.numbers) == "9.9.0"
