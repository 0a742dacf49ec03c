"""Which Pythons may have Ray: one JSON list of paths, the likeliest first.

    python -I -S ray_pythons.py [PYTHON]

Named, it is that one: a path, the folder of an environment, or a command. Else the active environment, the
Python behind the `ray` on PATH, and those on PATH. PATH may cross dead mounts, so this is a child.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator


def main(words: list[str]) -> None:
    """Print the list; python and python3 of one folder are mostly one, and then asked once."""
    paths = [named_interpreter(words[0])] if words and words[0] else list(candidates())
    distinct: dict[tuple[str, str], str] = {}
    for path in filter(None, paths):
        distinct.setdefault((os.path.dirname(path), os.path.realpath(path)), path)
    print(json.dumps(list(distinct.values())))


def named_interpreter(text: str) -> str:
    """The interpreter somebody means; "" when there is none."""
    path = os.path.expanduser(text) if "\0" not in text else ""
    if os.path.isdir(path):
        path = os.path.join(path, "bin", "python")
    path = path if "/" in path else on_path(path)
    return os.path.abspath(path) if path and os.path.exists(path) else ""


def candidates() -> Iterator[str]:
    """Interpreters that exist."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(name):
            yield named_interpreter(os.environ[name])
    yield behind(on_path("ray"))
    yield from map(on_path, ("python3", "python"))


def behind(script: str) -> str:
    """The interpreter a script begins with, or the one beside it, as pip leaves them."""
    if not script:
        return ""
    try:
        with open(script, "rb") as file:
            first = file.readline(4096).decode("utf-8", "replace")
    except OSError:
        return ""
    program = first[2:].strip() if first.startswith("#!") else ""
    if os.path.isabs(program) and "python" in os.path.basename(program) and os.path.exists(program):
        return program
    return named_interpreter(os.path.dirname(os.path.realpath(script)) + "/python")


def on_path(name: str) -> str:
    """Where a command is; relative items of PATH would let the working directory decide."""
    folders = (os.environ.get("NODEDOCTOR_CALLER_PATH") or os.environ.get("PATH", os.defpath)).split(
        os.pathsep
    )
    return shutil.which(name, path=os.pathsep.join(filter(os.path.isabs, folders))) or ""


if __name__ == "__main__":
    main(sys.argv[1:])
