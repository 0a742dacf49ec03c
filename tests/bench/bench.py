"""`make bench`: what a run costs on this machine, beside what others cost in the same sitting.

    python tests/bench/bench.py [--against CHECKOUT] [PART ...]

Nothing here passes or fails: seconds belong to the machine, ratios to the programs. What is compared runs
in turn. With --against, another checkout with a .venv of its own is measured beside this one.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import fleet_bench
import triage_bench
from timing import Timing, in_turn

NODEDOCTOR = str(Path(sys.executable).parent / "nodedoctor")
BARE = "python -I -S -c pass"
FAST = ["--json", "--tag", "fast"]
PASSIVE = ["--json", "--passive"]
BARS = {"--help": 4, "--json --tag fast": 35, "demo healthy --json": 22}
"""Times a bare start of Python, in CPU and in wall time, that a command is meant to cost at most; ours."""
AGAINST_BARS = {" ".join(FAST): 1.0, " ".join(PASSIVE): 1.1}
"""The same of the other checkout, on the stand-in for eight GPUs."""

against = ""
"""The other checkout, if there is one."""


def headless() -> None:
    """Whole headless runs beside a bare Python and the tools people run instead."""
    ours = (["--help"], FAST, ["demo", "healthy", "--json"], PASSIVE)
    commands = {BARE: [sys.executable, "-I", "-S", "-c", "pass"]}
    commands.update({f"nodedoctor {' '.join(words)}": [NODEDOCTOR, *words] for words in ours})
    found = in_turn(commands)
    for words in ours:
        name = " ".join(words)
        _print(f"nodedoctor {name}", found[f"nodedoctor {name}"], found[BARE], BARS.get(name))
    for name, argv in _peers().items():
        _print(name, in_turn({name: argv}, runs=3)[name], found[BARE], None)
    for name in (TORCH, NVITOP):
        if name not in _peers():
            print(f"{name:<36} not here")


TORCH, NVITOP = "python -m torch.utils.collect_env", "nvitop --once"


def _peers() -> dict[str, list[str]]:
    peers = {}
    torch = os.environ.get("NODEDOCTOR_TORCH_PYTHON")
    if torch or importlib.util.find_spec("torch"):
        peers[TORCH] = [torch or sys.executable, "-m", "torch.utils.collect_env"]
    nvitop = shutil.which("nvitop") or shutil.which("nvitop", path=str(Path(sys.executable).parent))
    if nvitop:
        peers[NVITOP] = [nvitop, "--once"]
    return peers


def _print(name: str, timing: Timing, beside: Timing, bar: float | None) -> None:
    """A line with seconds, and how many times those of what ran beside it."""
    wanted = "" if bar is None else f", meant to be at most {bar}"
    print(
        f"{name:<36} {timing.wall:6.3f} s wall  {timing.cpu:6.3f} s CPU  {timing.rss_mib:4.0f} MiB"
        f"  x {timing.wall / beside.wall:5.2f} wall  x {timing.cpu / beside.cpu:5.2f} CPU"
        f"{wanted}  (medians of {timing.runs})"
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
        root = ["--root", str(nvidia_tree(here / "tree"))]
        for words in (FAST, PASSIVE):
            _beside_another(words, root, env)


def _beside_another(words: Sequence[str], more: Sequence[str], env: Mapping[str, str]) -> None:
    name = " ".join(words)
    commands = {"this": [NODEDOCTOR, *words, *more]}
    if against:
        commands["other"] = [f"{against}/.venv/bin/nodedoctor", *words, *more]
    found = in_turn(commands, env=dict(env))
    bar = AGAINST_BARS.get(name) if against else None
    _print(f"nodedoctor {name}", found["this"], found.get("other", found["this"]), bar)


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
    global against
    parser = argparse.ArgumentParser(description="What a run costs on this machine.")
    parser.add_argument("--against", default="", metavar="CHECKOUT", help="measure this one beside it, too")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    arguments = parser.parse_args()
    against = arguments.against and str(Path(arguments.against).resolve())
    if unknown := [name for name in arguments.parts if name not in PARTS]:
        parser.error(f"no part {unknown[0]}")
    for name in arguments.parts or PARTS:
        print(f"== {name}: {(PARTS[name].__doc__ or '').strip()}", flush=True)
        PARTS[name]()


if __name__ == "__main__":
    main()
