"""Build dist/nodedoctor.pyz, the single file that runs on a node without network; `make pyz` runs it.

    python tools/pyz/build.py [FILE]

It holds nodedoctor, the packages it needs (see wheels.py), and psutil and py-spy for each kind of machine.
The same sources and wheels give the same bytes. At its first start it unpacks itself: nodedoctor_place.py.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from nodedoctor_contents import PROGRAMS
from wheels import WheelError, wheels

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
BOOT = {
    "__main__.py": HERE / "main.py",
    "nodedoctor_contents.py": HERE / "nodedoctor_contents.py",
    "nodedoctor_place.py": HERE / "nodedoctor_place.py",
    "nodedoctor_unpack.py": HERE / "nodedoctor_unpack.py",
}
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip file can tell
SHEBANG = b"#!/usr/bin/env python3\n"


def main(words: list[str]) -> int:
    """Build it and say where it is."""
    out = Path(words[0]) if words else REPOSITORY / "dist" / "nodedoctor.pyz"
    try:
        files = contents()
    except WheelError as error:
        print(f"pyz: {error}", file=sys.stderr)
        return 1
    write(out, files)
    size, digest = out.stat().st_size / 2**20, hashlib.sha256(out.read_bytes()).hexdigest()
    print(f"{os.path.relpath(out)}: {size:.1f} MiB, {len(files)} files, sha256 {digest}")
    return 0


def contents() -> dict[str, bytes]:
    """Every file by its path below sys.path; below native/MACHINE/ what is for one kind of machine."""
    files: dict[str, bytes] = {}
    for machine, found in wheels().items():
        for wheel in found:
            prefix = "" if wheel.name.endswith("-none-any.whl") else f"native/{machine}/"
            files.update((prefix + name, data) for name, data in wheel_files(wheel).items())
    with tempfile.TemporaryDirectory() as folder:
        files.update(wheel_files(our_wheel(Path(folder))))
    return files


def our_wheel(folder: Path) -> Path:
    """nodedoctor as it would be installed, built from a copy: setuptools leaves traces where it builds."""
    for name in ("nodedoctor", "checks"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(REPOSITORY / name, folder)
    code = "import setuptools.build_meta as b; b.build_wheel('dist')"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise WheelError(f"setuptools cannot build our own: {done.stderr.strip()[-400:]}")
    (wheel,) = folder.glob("dist/*.whl")
    return wheel


def wheel_files(wheel: Path) -> dict[str, bytes]:
    """What of a wheel is needed: modules, data and programs; of its metadata name, version and licences."""
    with zipfile.ZipFile(wheel) as archive:
        placed = {name: place_of(name) for name in archive.namelist()}
        return {place: archive.read(name) for name, place in placed.items() if place}


def place_of(path: str) -> str:
    """Where a file of a wheel goes in the single file; "" for one that stays behind."""
    top, *folders = path.split("/")[:-1] or [path]
    if top.endswith(".dist-info"):
        rest = path.partition("/")[2]
        kept = rest == "METADATA" or re.search(r"(?i)\b(licen[sc]e|copying|notice|authors)", rest)
        return path if kept else ""
    if path.endswith(("/", ".pyc", ".pyi")) or path == "example.py":  # pynvml's, at the top
        return ""
    if top.endswith(".data"):  # PEP 491
        return f"{PROGRAMS}{path.split('/')[-1]}" if folders == ["scripts"] else ""
    return "" if {"__pycache__", "tests"} & {top, *folders} else path


def write(out: Path, files: Mapping[str, bytes]) -> None:
    """Write the single file: what starts it, the contents, and a list of these with their sizes.

    The contents are a zip file of their own, because Python reads the list of the outer one at every start.
    """
    packed = _zipped(files, zipfile.ZIP_DEFLATED)
    sizes = "".join(f"{len(files[name])} {name}\n" for name in sorted(files))
    outer = {name: source.read_bytes() for name, source in BOOT.items()}
    outer["contents.zip"] = packed
    outer["manifest"] = f"{hashlib.sha256(packed).hexdigest()[:16]}\n{sizes}".encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = out.with_suffix(".new")
    fresh.write_bytes(SHEBANG + _zipped(outer, zipfile.ZIP_STORED))
    fresh.chmod(0o755)
    fresh.replace(out)


def _zipped(files: Mapping[str, bytes], how: int) -> bytes:
    """A zip file with nothing in it that differs between two builds."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name in sorted(files):
            about = zipfile.ZipInfo(name, LONG_AGO)
            about.create_system = 3  # Unix
            about.external_attr = 0o100644 << 16
            about.compress_type = how
            archive.writestr(about, files[name], compresslevel=9)
    return held.getvalue()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
