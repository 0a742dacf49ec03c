"""`make bench`: what a run costs on this machine, beside what others cost in the same sitting.

Nothing here passes or fails: seconds belong to the machine, ratios to the programs.
Arguments name the parts to run.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import fleet_bench
import triage_bench
from timing import Timing, measure

NODEDOCTOR = str(Path(sys.executable).parent / "nodedoctor")


def headless() -> None:
    """Whole headless runs beside the tools people run instead."""
    rows = {
        "python -I -S -c pass": measure([sys.executable, "-I", "-S", "-c", "pass"]),  # what this machine is
        "nodedoctor --help": measure([NODEDOCTOR, "--help"]),
        "nodedoctor --json --tag fast": measure([NODEDOCTOR, "--json", "--tag", "fast"]),
        "nodedoctor --json": measure([NODEDOCTOR, "--json"]),
    }
    for name, argv in _peers().items():
        rows[name] = measure(argv, runs=3)
    own = rows["nodedoctor --json"]
    for name, timing in rows.items():
        print(_row(name, timing, own))
    for name in ("python -m torch.utils.collect_env", "nvitop --once"):
        if name not in rows:
            print(f"{name:<36} not here")


def _peers() -> dict[str, list[str]]:
    peers = {}
    torch = os.environ.get("NODEDOCTOR_TORCH_PYTHON")
    if torch or importlib.util.find_spec("torch"):
        argv = [torch or sys.executable, "-m", "torch.utils.collect_env"]
        peers["python -m torch.utils.collect_env"] = argv
    nvitop = shutil.which("nvitop") or shutil.which("nvitop", path=str(Path(sys.executable).parent))
    if nvitop:
        peers["nvitop --once"] = [nvitop, "--once"]
    return peers


def _row(name: str, timing: Timing, own: Timing) -> str:
    ratio = timing.wall / own.wall
    return (
        f"{name:<36} {timing.wall:6.3f} s wall  {timing.cpu:6.3f} s CPU  {timing.rss_mib:5.0f} MiB"
        f"  {ratio:5.2f} x nodedoctor --json  (median of {timing.runs})"
    )


def gpus() -> None:
    """Headless runs on a stand-in for 8 H100s whose nvidia-smi takes a second per call."""
    sys.path.append(str(Path(__file__).parent.parent))
    from fakes import build_nvml, nvml_env, write_config
    from fakes.tree import nvidia_tree, write

    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        write(here / "bin" / "nvidia-smi", "#!/bin/sh\nsleep 1\nexit 0\n")
        (here / "bin" / "nvidia-smi").chmod(0o755)
        env = nvml_env(build_nvml(here), write_config(here / "nvml.conf", {}))
        env = {**os.environ, **env, "PATH": f"{here / 'bin'}:{os.environ['PATH']}"}
        root = str(nvidia_tree(here / "tree"))
        for words in (["--tag", "fast"], []):
            argv = [NODEDOCTOR, "--json", "--root", root, *words]
            timing = measure(argv, env=env)
            print(_row(" ".join(["nodedoctor --json", *words]), timing, timing))


def tui() -> None:
    """The screen in a pseudo-terminal: time to the first text, bytes, time to leave."""
    subprocess.run([sys.executable, str(Path(__file__).parent / "tui.py")], check=False)


PARTS: dict[str, Callable[[], None]] = {
    "tui": tui,
    "headless": headless,
    "gpus": gpus,
    "fleet": fleet_bench.reports,
    "triage-logs": triage_bench.logs,
    "triage-many": triage_bench.many,
    "triage-dumps": triage_bench.dumps,
}


def main() -> None:
    """Run the parts named, or all of them."""
    for name in sys.argv[1:] or PARTS:
        print(f"== {name}: {(PARTS[name].__doc__ or '').strip()}")
        PARTS[name]()


if __name__ == "__main__":
    main()
