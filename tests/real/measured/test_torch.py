"""What is read from a real torch's files against what that torch does once imported."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from fake_python import make_nccl, observe

from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.model import Observation, Outcome

pytestmark = pytest.mark.real

IMPORTED = """
import json, re, torch
maps = open("/proc/self/maps").read()
print(json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda or "",
    "archs": torch._C._cuda_getArchFlags().split() if torch.version.cuda else [],
    "mapped": sorted(set(re.findall(r"(/\\S*lib(?:nccl|cudart|cudnn)\\.so\\S*)", maps))),
}))
"""


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that has torch: NODEDOCTOR_TORCH_PYTHON, ours, or the one on PATH."""
    for name in (os.environ.get("NODEDOCTOR_TORCH_PYTHON"), sys.executable, shutil.which("python3")):
        if name and json.loads(observe("--python", name).text).get("torch"):
            return name
    pytest.skip("no torch: set NODEDOCTOR_TORCH_PYTHON to a Python that has one")


def imported(python: str, **variables: str) -> dict[str, object]:
    done = subprocess.run(
        [python, "-c", IMPORTED], env={**os.environ, **variables}, capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize("shadowed", [False, True])
def test_files_tell_what_importing_does(python, tmp_path, shadowed):
    variables = {}
    if shadowed:  # torch's own RPATH must win here, or it fails to import: both are told beforehand
        make_nccl(tmp_path / "libnccl.so.2", "2.1.0", "9.0")
        variables = {"LD_LIBRARY_PATH": str(tmp_path)}
    seen = observe("--python", python, env=variables)
    missing = Observation("", Outcome.MISSING)
    torch, libraries = Torch.parse(TargetPython.parse(seen, missing, missing)), Libraries.parse(seen)
    assert isinstance(torch, Torch) and isinstance(libraries, Libraries)
    won = libraries.winner("libnccl.so")
    if shadowed and won is not None and won[0].rule == "LD_LIBRARY_PATH":
        with pytest.raises(AssertionError, match="undefined symbol"):
            imported(python, **variables)
        return
    told = imported(python, **variables)
    assert (torch.version, torch.cuda, list(torch.archs)) == (told["version"], told["cuda"], told["archs"])
    mapped = [item.real for item in libraries.resolved if re.match(r"lib(nccl|cudart|cudnn)\.", item.name)]
    assert sorted(mapped) == told["mapped"]
