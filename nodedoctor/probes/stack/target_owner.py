"""Whose code an interpreter would run, and how root becomes that user before running it.

A part of find_python.py: standard library only.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import stat
from collections.abc import Iterator, Mapping

NOBODY = 65534
KEPT = re.compile(r"PATH|LANG|LC_.*|LD_.*|CUDA_.*|NCCL_.*|PYTHONPATH|VIRTUAL_ENV|CONDA_PREFIX|TZ")
"""What goes along when root becomes somebody else: what decides the answer, and none of root's secrets."""


def is_root() -> bool:
    """Whether we can do more than one user can: the root of a namespace that holds one user cannot."""
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            mapped = file.read().split()
    except OSError:
        return True
    return sum(map(int, mapped[2::3])) > 1


def foreign_owner(python: str) -> int | None:
    """The first user other than root who can have written what this interpreter runs at start.

    Looked at are the binary, its environment, its packages (a .pth file in there is code) and every folder
    above. What everybody may write to belongs to nobody, uid 65534. None: nobody but root.
    """
    binary = os.path.abspath(python)
    prefix = os.path.dirname(os.path.dirname(binary))
    places = [binary, os.path.realpath(binary), os.path.join(prefix, "pyvenv.cfg")]
    for below in ("lib*", "local/lib"):
        places += glob.iglob(f"{glob.escape(prefix)}/{below}/python3*/*-packages")
    owners = (_foreign(path) for place in places for path in _and_above(place))
    return next((owner for owner in owners if owner is not None), None)


def _and_above(path: str) -> Iterator[str]:
    while path != os.path.dirname(path):
        yield path
        path = os.path.dirname(path)
    yield path


def _foreign(path: str) -> int | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    if seen.st_uid != 0:
        return seen.st_uid
    shared = seen.st_mode & stat.S_IWOTH and not seen.st_mode & stat.S_ISVTX
    return NOBODY if shared else None


def become(uid: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Stop being root for good and return that user's environment; OSError when that cannot be."""
    try:
        user = pwd.getpwuid(uid)
        groups, gid, home = os.getgrouplist(user.pw_name, user.pw_gid), user.pw_gid, user.pw_dir
    except KeyError:  # a container or a file server knows users that we do not
        groups, gid, home = [], uid, "/"
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    return {**{name: value for name, value in environ.items() if KEPT.fullmatch(name)}, "HOME": home}
