"""Programs of docs/ as modules, by their file: on the path their names would shadow those of tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


def load(name: str) -> ModuleType:
    """docs/NAME.py, once, as `docs_NAME`."""
    known = f"docs_{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, DOCS / f"{name}.py")
        assert spec and spec.loader
        sys.modules[known] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[known])
    return sys.modules[known]
