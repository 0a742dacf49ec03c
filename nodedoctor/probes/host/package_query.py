"""Ask a package manager about the database of another root, which may hold anything.

    python -I -S package_query.py ROOT DATABASE PROGRAM [ARGUMENT ...]

DATABASE is a folder below ROOT, given to the program in the place of `{}`. What a link there leads out of the
root is not read; the program gets bounded memory. It ends with 0 when the program ended with 0 or 1, as
dpkg-query does when a pattern matches nothing.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.host.files_reading import inside

sys.path.pop()

MEMORY_BYTES = 512 * 1024 * 1024
"""Our choice: dpkg-query needs three times the size of its status file, which has 5 MB on a large node."""


def main() -> None:
    """Look for links, then ask."""
    root, database, *argv = sys.argv[1:]
    folder = inside(root, database)
    if leads_out(root, folder):
        sys.exit(f"{database} of {root} has a link that leads out of it")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.RLIM_INFINITY))
    sys.stdout.flush()
    try:
        code = subprocess.call([word.replace("{}", folder) for word in argv], stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.exit(f"{argv[0]}: {error.strerror}")
    sys.exit(0 if code in (0, 1) else f"{argv[0]} ended with exit code {code}")


def leads_out(root: str, folder: str) -> bool:
    """Whether a file of the database is really somewhere else."""
    below = os.path.realpath(root).rstrip("/") + "/"
    paths = (os.path.join(here, name) for here, _, names in os.walk(folder) for name in names)
    return any(os.path.islink(path) and not os.path.realpath(path).startswith(below) for path in paths)


if __name__ == "__main__":
    main()
