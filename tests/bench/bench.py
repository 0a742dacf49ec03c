"""`make bench`: what a run costs on this machine, beside what others cost in the same sitting.

Nothing here passes or fails: seconds belong to the machine, ratios to the programs.
Arguments name the parts to run.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from timing import Timing, measure

NODEDOCTOR = str(Path(sys.executable).parent / "nodedoctor")


def headless() -> None:
    """Whole headless runs beside the tools people run instead."""
    rows = {
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
    if importlib.util.find_spec("torch"):
        peers["python -m torch.utils.collect_env"] = [sys.executable, "-m", "torch.utils.collect_env"]
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


PARTS: dict[str, Callable[[], None]] = {"headless": headless}


def main() -> None:
    """Run the parts named, or all of them."""
    for name in sys.argv[1:] or PARTS:
        print(f"== {name}: {(PARTS[name].__doc__ or '').strip()}")
        PARTS[name]()


if __name__ == "__main__":
    main()
