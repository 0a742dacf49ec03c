"""Stand-ins for commands that repair a node: they log what they were given, and refuse as the real ones do.

One program under many names, in a folder of its own. Its world is a JSON file: units that run, modules that
are loaded (newest first), GPUs with persistence mode, processes that hold a GPU, packages. What it refuses
follows nvidia-smi(1) (--gpu-reset: no process, monitor or persistence daemon may hold the GPU), modprobe(8)
(-r: no other module may need it), systemctl(1).
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
from pathlib import Path
from typing import Any

NAMES = (
    *("sudo", "systemctl", "nvidia-smi", "modprobe", "lsmod", "fuser", "dmesg", "reboot", "ipmitool"),
    *("apt-mark", "apt-get", "apt-cache", "dpkg-query", "dnf", "zypper", "rpm", "nvidia-bug-report.sh"),
)
MONITORS = ("nvidia-persistenced", "nvidia-dcgm", "dcgm-exporter", "nvidia_gpu_exporter")
NEEDS = {
    "nvidia": (),
    "nvidia_modeset": ("nvidia",),
    "nvidia_drm": ("nvidia_modeset", "nvidia"),
    "nvidia_uvm": ("nvidia",),
    "nvidia_peermem": ("nvidia", "ib_uverbs"),
    "nvidia_fs": ("nvidia",),
    "gdrdrv": ("nvidia",),
    "ib_uverbs": (),
    "mlx5_core": (),
}


def install(folder: Path, world: dict[str, Any]) -> dict[str, str]:
    """Put the commands and their world into a folder; the environment in which a shell finds them first."""
    folder.mkdir(parents=True)
    (folder / "world.json").write_text(json.dumps({"log": [], **world}))
    for name in NAMES:
        place = folder / name
        place.write_text(f'#!/bin/sh\nexec {sys.executable} -I {__file__} {folder} {name} "$@"\n')
        place.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "LC_ALL": "C"}


def world_of(folder: Path) -> dict[str, Any]:
    """The world as it is now."""
    found: dict[str, Any] = json.loads((folder / "world.json").read_text())
    return found


def _refuse(text: str, code: int = 1) -> None:
    print(text, file=sys.stderr)
    raise SystemExit(code)


def _holders(world: dict[str, Any]) -> list[str]:
    return [unit for unit in world["units"] if unit in MONITORS] + list(world["processes"])


def systemctl(world: dict[str, Any], words: list[str]) -> None:
    verb, *rest = words
    plain = [word.removesuffix(".service") for word in rest if not word.startswith("-")]
    if verb == "list-units":
        for unit in world["units"]:
            if any(fnmatch.fnmatch(f"{unit}.service", pattern) for pattern in plain):
                print(f"{unit}.service loaded active running a description")
    elif verb == "stop":
        world["units"] = [unit for unit in world["units"] if unit not in plain]
    elif verb in ("start", "restart", "enable"):
        world["units"] += [unit for unit in plain if unit not in world["units"]]


def nvidia_smi(world: dict[str, Any], words: list[str]) -> None:
    if "-i" not in words or "nvidia" not in world["modules"]:
        _refuse("NVIDIA-SMI has failed", 9)
    gpus = [_index(word) for word in words[words.index("-i") + 1].split(",")]
    if "-pm" in words:
        on = words[words.index("-pm") + 1] == "1"
        world["persistence"] = sorted(
            {*world["persistence"], *gpus} if on else {*world["persistence"]} - {*gpus}
        )
    elif "--gpu-reset" in words:
        if _holders(world) or {*gpus} & {*world["persistence"]}:
            _refuse("GPU Reset couldn't run because GPU is in use by another client", 15)
        world["reset"] += gpus


def _index(word: str) -> str:
    """An index, also of a GPU named by its address: which of the eight that is does not matter here."""
    return str(int(word.split(":")[1], 16) % 8) if ":" in word else word


def modprobe(world: dict[str, Any], words: list[str]) -> None:
    names = [word for word in words if not word.startswith("-")]
    if "-r" in words:
        if _holders(world):
            _refuse("modprobe: FATAL: Module nvidia is in use.")
        for name in names:
            users = [other for other in world["modules"] if name in NEEDS.get(other, ())]
            if users and name in world["modules"]:
                _refuse(f"modprobe: FATAL: Module {name} is in use by: {' '.join(users)}")
            world["modules"] = [other for other in world["modules"] if other != name]
        return
    for name in names:
        for needed in (*reversed(NEEDS.get(name, ())), name):
            if needed not in world["modules"]:
                world["modules"].insert(0, needed)


def packages(world: dict[str, Any], words: list[str]) -> None:
    patterns = [word for word in words if not word.startswith("-")]
    matching = [name for name in world["packages"] if any(fnmatch.fnmatch(name, one) for one in patterns)]
    for name in matching:
        print(f"ii  {name}" if "-W" in words else name)
    if "-W" in words:
        print("rc  nvidia-removed-before")


def main() -> None:
    folder, name, words = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if name == "sudo":
        os.execvp(words[0], words)
    world = world_of(folder)
    world["log"].append([name, *words])
    try:
        if name == "lsmod":
            print("Module                  Size  Used by")
            for module in world["modules"]:
                print(f"{module}  4096  0")
        elif name in ("dpkg-query", "rpm"):
            packages(world, words)
        elif name in ("systemctl", "nvidia-smi", "modprobe"):
            globals()[name.replace("-", "_")](world, words)
        elif name in ("apt-mark", "dnf", "zypper") and words[0] in ("hold", "versionlock", "addlock"):
            world["held"] += [word for word in words[1:] if word != "add"]
    finally:
        (folder / "world.json").write_text(json.dumps(world))


if __name__ == "__main__":
    main()
