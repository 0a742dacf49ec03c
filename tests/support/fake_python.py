"""Python environments for the tests: real interpreters, packages of metadata only, libraries made by gcc."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.model import Observation

VERSION_PY = """from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']
__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda!r}
git_version = '0123456789abcdef'
hip: Optional[str] = {hip!r}
xpu: Optional[str] = None
"""


def make_env(folder: Path) -> Path:
    """A virtual environment without pip; returns its site-packages."""
    venv.create(folder, symlinks=True, with_pip=False)
    return site_of(folder)


def site_of(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def add_package(site: Path, name: str, version: str, requires: Iterable[str] = (), **files: str) -> Path:
    """What an installer leaves of a distribution besides its code; `files` are more of them."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n\nA description.\nRequires-Dist: not-a-header\n")
    for file, text in files.items():
        (info / file.replace("_json", ".json")).write_text(text)
    return info


def add_torch(
    site: Path,
    version: str = "2.9.0+cu128",
    cuda: str | None = "12.8",
    hip: str | None = None,
    requires: Iterable[str] = ("nvidia-nccl-cu12==2.27.5; platform_system == 'Linux'", "filelock"),
) -> Path:
    """A torch of two files, neither of which can be imported unnoticed; returns its folder."""
    torch = site / "torch"
    (torch / "lib").mkdir(parents=True)
    (torch / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    (torch / "version.py").write_text(VERSION_PY.format(version=version, cuda=cuda, hip=hip))
    add_package(site, "torch", version.partition("+")[0], requires, INSTALLER="pip\n")
    return torch


def compile_library(path: Path, code: str, *flags: str) -> Path:
    """A shared object of one line of C."""
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), *flags],
        input=code,
        text=True,
        check=True,
    )
    return path


def make_nccl(path: Path, version: str = "2.27.5", cuda: str = "12.9") -> Path:
    """A libnccl that says its version as NCCL does."""
    banner = f'"NCCL version {version}+cuda{cuda}"'
    code = f"const char *const banner = {banner}; int ncclGetVersion(void) {{ return 1; }}"
    return compile_library(path, code, "-Wl,-soname,libnccl.so.2")


def ask(
    program: str, *args: str, env: Mapping[str, str] | None = None, cwd: Path = Path("/")
) -> dict[str, Any]:
    """The document of one of our child programs, run as nodedoctor runs it but from another folder."""
    clean = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    done = subprocess.run(
        child(program, *args),
        env={**clean, **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def observe(*args: str, env: Mapping[str, str] | None = None) -> Observation:
    """The observation `target-python` as the engine makes it."""
    made = Command(child("stack/find_python", *args), env=env or {})
    return asyncio.run(child_process.run("target-python", made, 60))
