"""Fake libraries in C, built by the tests, that stand behind the real Python bindings."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
CONFIG = "NODEDOCTOR_FAKE_NVML"


def build_nvml(folder: Path, *, old_driver: bool = False) -> Path:
    """Build libnvidia-ml.so.1 in a folder, which is for LD_LIBRARY_PATH; takes 0.2 s, so do it once."""
    flags = ("-DOLD_DRIVER",) if old_driver else ()
    return build(HERE / "nvml.c", folder / "libnvidia-ml.so.1", *flags).parent


def build_cuda(folder: Path) -> Path:
    """Build libcuda.so.1 in a folder, which is for LD_LIBRARY_PATH."""
    return build(HERE / "cuda.c", folder / "libcuda.so.1").parent


def build(source: Path, library: Path, *flags: str) -> Path:
    """Compile one C file into a shared library."""
    command = ["gcc", "-shared", "-fPIC", "-O0", "-w", *flags, "-o", str(library), str(source)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return library


def write_config(path: Path, values: Mapping[str, object]) -> Path:
    """Write what a fake shall say, one `key=value` per line, in one step: somebody may be reading."""
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    fresh.replace(path)
    return path


def nvml_env(folder: Path, config: Path) -> dict[str, str]:
    """The environment in which pynvml finds the fake and the fake its file."""
    return {"LD_LIBRARY_PATH": str(folder), CONFIG: str(config)}
