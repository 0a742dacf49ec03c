"""The wheels in the single file: which ones, by hash (wheels.txt), and from where (the package index, once).

python tools/pyz/wheels.py    pin the newest that our requirements and Python 3.10 allow, anew
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PINS = Path(__file__).with_name("wheels.txt")
KEPT = REPOSITORY / "build" / "pyz"
OLDEST = "3.10"
MACHINES = ("x86_64", "aarch64")  # of os.uname
GLIBC = ("manylinux2014", "manylinux_2_28")  # CentOS 7 and newer; RHEL 8 and newer
SECONDS = 600
HEAD = "# What the single file holds besides nodedoctor; tools/pyz/wheels.py wrote this.\n"


class WheelError(Exception):
    """A wheel cannot be had; the message says why."""


def wheels() -> dict[str, list[Path]]:
    """The pinned wheels for each kind of machine, kept in build/pyz: a second build needs no network."""
    pinned = set(re.findall(r"sha256:(\w+)", PINS.read_text()))
    found = {}
    for machine in MACHINES:
        folder = KEPT / machine
        if {_digest(wheel) for wheel in folder.glob("*.whl")} - pinned or not folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
        if len(list(folder.glob("*.whl"))) != _packages():
            _download(folder, machine, "--no-deps", "--require-hashes", "--requirement", str(PINS))
        found[machine] = sorted(folder.glob("*.whl"))
    return found


def pin() -> None:
    """Write wheels.txt anew."""
    wanted = [line for line in metadata.requires("nodedoctor") or () if "extra ==" not in line]
    hashes: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for machine in MACHINES:
            _download(Path(folder, machine), machine, *wanted)
        for wheel in Path(folder).glob("*/*.whl"):
            name, version = wheel.name.split("-")[:2]
            hashes.setdefault(f"{name.replace('_', '-').lower()}=={version}", set()).add(_digest(wheel))
    lines = (
        " \\\n".join([package, *(f"    --hash=sha256:{digest}" for digest in sorted(hashes[package]))]) + "\n"
        for package in sorted(hashes)
    )
    PINS.write_text(HEAD + "".join(lines))


def _packages() -> int:
    return len(re.findall(r"^[\w.-]+==", PINS.read_text(), re.MULTILINE))


def _digest(wheel: Path) -> str:
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def _download(folder: Path, machine: str, *what: str) -> None:
    platforms = [word for glibc in GLIBC for word in ("--platform", f"{glibc}_{machine}")]
    argv = [*_pip(), "download", "--quiet", "--only-binary=:all:", "--dest", str(folder)]
    argv += ["--implementation", "cp", "--abi", "abi3", "--abi", "none", "--python-version", OLDEST]
    argv += [*platforms, "--platform", "any", *what]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise WheelError(
            f"pip cannot download the wheels for {machine}: {' '.join(said or [done.stderr])[-400:]}"
        )


def _pip() -> list[str]:
    """Any pip will do, for it only downloads; an environment made by uv has none."""
    for argv in ([sys.executable, "-m", "pip"], ["pip3"], ["python3", "-m", "pip"], ["uvx", "pip"]):
        if shutil.which(argv[0]) and not subprocess.run([*argv, "--version"], capture_output=True).returncode:
            return [*argv, "--disable-pip-version-check"]
    raise WheelError("there is no pip to download wheels with")


if __name__ == "__main__":
    pin()
