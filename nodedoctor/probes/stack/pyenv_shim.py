"""What a shim of pyenv leads to, read from the files that pyenv itself reads. A part of find_python.py.

Running a shim starts some twenty shells, 80 ms. Decided here is the plain case only, where the first version
named is one that is installed and no hook is configured; in every other case the shim has to be run.
"""

from __future__ import annotations

import glob
import os
import re

_SHIM = re.compile(
    r'^export PYENV_ROOT="(/[^"]+)"$.*^exec "\1/libexec/pyenv" exec "\$program" "\$@"$', re.M | re.S
)
_PLAIN = re.compile(r"[A-Za-z0-9][\w.+-]*")
_BYTES = 4096
# Where pyenv looks for hooks that choose the version (libexec/pyenv, PYENV_HOOK_PATH).
_HOOKS = (
    "{root}/pyenv.d",
    "{root}/plugins/*/etc/pyenv.d",
    "/usr/etc/pyenv.d",
    "/usr/local/etc/pyenv.d",
    "/etc/pyenv.d",
    "/usr/lib/pyenv/hooks",
)


def behind(shim: str, folder: str) -> str | None:
    """The interpreter pyenv would run for its shim in a working directory; None where that is not plain."""
    match = _SHIM.search(_read_text(shim))
    if match is None:
        return None
    root, setting = match.group(1), os.environ.get("PYENV_VERSION")
    if not setting:
        if os.environ.get("PYENV_DIR"):
            return None
        setting = _first_word(_version_file(folder, root))
    version = setting.partition(":")[0]
    if not _PLAIN.fullmatch(version) or version == "system" or _has_hooks(root):
        return None
    path = os.path.join(root, "versions", version, "bin", os.path.basename(shim))
    return path if os.path.isfile(path) and os.access(path, os.X_OK) else None


def _version_file(folder: str, root: str) -> str:
    """The `.python-version` of the folder or the nearest one above, else pyenv's own."""
    while True:
        file = os.path.join(folder, ".python-version")
        if os.path.isfile(file):
            return file
        if folder == os.path.dirname(folder):
            return os.path.join(root, "version")
        folder = os.path.dirname(folder)


def _first_word(file: str) -> str:
    words = (line.split()[0] for line in _read_text(file).splitlines() if line.strip())
    return next((word for word in words if not word.startswith("#")), "")


def _has_hooks(root: str) -> bool:
    places = [place.format(root=glob.escape(root)) for place in _HOOKS]
    places += map(glob.escape, os.environ.get("PYENV_HOOK_PATH", "").split(":"))
    return any(glob.glob(f"{place}/version-name/*.bash") for place in places if place)


def _read_text(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read(_BYTES)
    except OSError:
        return ""
