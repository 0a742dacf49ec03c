"""Names in paths: projects, mounts, environments, scripts. Below the system's own folders nobody is named.

A component of a path is a name when one of its words is none of ours: parsers and checks look for
`cuda-12.4` or `site-packages`, and our sources hold these words; `murmuration` in `/mnt/murmuration-7b` is
somebody's. What lies below `lib`, `bin` or `site-packages` belongs to what was installed there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.redact.names import of_ours

_SYSTEM = """
bin boot dev etc lib lib32 lib64 libx32 nix opt proc run sbin snap srv sys usr
docker kubepods kubepods.slice slurm system.slice user.slice machine.slice init.scope lxc libpod_parent"""
_SYSTEMS = frozenset(_SYSTEM.split())
"""First components below which a distribution, the kernel or a container's runtime gives the names."""
_USUAL = """
envs venv conda miniconda anaconda miniforge mambaforge micromamba pyenv poetry workspace workspaces project
projects dataset datasets checkpoint checkpoints ckpt ckpts output outputs experiment experiments result
results scratch lustre gpfs weka fsx work shared team teams group groups users train training eval script
scripts src"""
_NOBODYS = frozenset(_USUAL.split())
"""What people everywhere call their folders."""
_INSTALLED = re.compile(
    r"lib(?:32|64)?|s?bin|include|libexec|share|conda-meta|pkgs|node_modules|(?:site|dist)-packages|python[0-9.]+"
)
_PATH = re.compile(r"(?<![\w./])/(?![/*])(?:[\w.+@%=~-]{1,255}/){0,32}[\w.+@%=~-]{1,255}")
_WORD = re.compile("[a-z]+")
_UNIT = re.compile(r"\.(?:slice|scope|service|mount|socket|so(?:\.[0-9.]+)?)$")
_FILE = re.compile(r"[.%](?:[A-Za-z0-9%]{1,12}[.%-]?){1,3}$")
"""The end of a file's name: `.py`, `.tar.gz`, `.%h.%p`."""
_SCRIPT = re.compile(r'"script": ?"([^"\\/]{1,255})"')
_ACTOR = re.compile(r"ray::([A-Za-z_]\w{2,63})")


def named_in_paths(corpus: str, most: int) -> tuple[str, ...]:
    """The names in all paths, of scripts and of Ray's actors, each once; at most so many."""
    found: dict[str, None] = {}
    seen: dict[str, None] = {}
    for path in (*_PATH.findall(corpus), *(f"/x/{script}" for script in _SCRIPT.findall(corpus))):
        if path not in seen and len(found) < most:
            seen[path] = None
            found |= dict.fromkeys(_names_of(path))
    found |= dict.fromkeys(name for name in _ACTOR.findall(corpus) if not of_ours(name))
    return tuple(found)[:most]


def _names_of(path: str) -> Iterator[str]:
    first, *rest = path[1:].split("/")
    if first in _SYSTEMS:
        return
    # The user's name is one of its own kind.
    parts = rest[1:] if first == "home" else [first, *rest]
    for place, part in enumerate(parts):
        if _INSTALLED.fullmatch(part) or _UNIT.search(part):
            return
        name = part.lstrip(".~")
        if place == len(parts) - 1:
            name = _FILE.sub("", name)
        telling = " ".join(word for word in _WORD.findall(name.lower()) if word not in _NOBODYS)
        if len(name) > 2 and not of_ours(telling):
            yield name
