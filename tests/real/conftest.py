"""What real jobs run in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def python() -> str:
    """An interpreter that has torch: NODEDOCTOR_TORCH_PYTHON, ours, or the one on PATH."""
    for name in (os.environ.get("NODEDOCTOR_TORCH_PYTHON"), sys.executable, shutil.which("python3")):
        if (
            name
            and subprocess.run([name, "-c", "import torch.distributed"], capture_output=True).returncode == 0
        ):
            return name
    pytest.skip("no torch: set NODEDOCTOR_TORCH_PYTHON to a Python that has one")
