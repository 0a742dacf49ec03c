"""Two real NCCLs, of NVIDIA's wheels: which one wins, and what torch would miss in the older one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fake_python import add_package, add_torch, compile_library, make_env, observe

from nodedoctor.facts.stack.libraries import Libraries

pytestmark = pytest.mark.real

SUFFIX = "nvidia/nccl/lib/libnccl.so.2"


@pytest.fixture(scope="module")
def wheels() -> tuple[Path, Path]:
    """Folders with an older and a newer nvidia-nccl-cu12, as NODEDOCTOR_NCCL_WHEELS=OLD:NEW names them."""
    named = [Path(part) for part in os.environ.get("NODEDOCTOR_NCCL_WHEELS", "").split(":") if part]
    if len(named) != 2 or not all((folder / SUFFIX).exists() for folder in named):
        pytest.skip("set NODEDOCTOR_NCCL_WHEELS=OLD:NEW to folders made by `pip install --target`")
    return named[0], named[1]


def test_an_old_one_in_front_is_told_with_what_it_lacks(wheels: tuple[Path, Path], tmp_path: Path):
    old, new = wheels
    site = make_env(tmp_path / "venv")
    torch = add_torch(site)
    add_package(site, "nvidia-nccl-cu12", "2.27.5")
    own = site / SUFFIX
    own.parent.mkdir(parents=True)
    own.symlink_to(new / SUFFIX)
    names = ("ncclCommWindowRegister", "ncclAllReduce")
    code = "".join(f"int {name}(void);" for name in names)
    code += f"int f(void) {{ return {names[0]}() + {names[1]}(); }}"
    rpath = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../nvidia/nccl/lib"
    link = (rpath, f"-L{own.parent}", "-l:libnccl.so.2")
    compile_library(torch / "lib/libtorch_cuda.so", code, *link)
    python = str(tmp_path / "venv/bin/python")

    def libraries(**env: str) -> Libraries:
        seen = observe("--python", python, env=env)
        assert json.loads(seen.text)["libraries"]["copies"]
        made = Libraries.parse(seen)
        assert isinstance(made, Libraries)
        return made

    alone = libraries(LD_LIBRARY_PATH="")
    assert alone.nccl_missing == ()
    front = libraries(LD_LIBRARY_PATH=str((old / SUFFIX).parent))
    won = front.winner("libnccl.so")
    assert won is not None and won[1] is not None
    assert won[0].rule == "LD_LIBRARY_PATH"
    assert front.nccl_missing == ("ncclCommWindowRegister",)
    assert len({copy.version for copy in front.family("nccl")}) == 2
