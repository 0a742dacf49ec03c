# ruff: noqa: UP031, UP036, RUF005
"""The __main__.py of the single file: an old Python, too, can read it and say that it is too old."""

import os
import sys

UNAVAILABLE = 69  # sysexits(3): what is needed to run is not here


def newer_python():
    """The newest python3.X on PATH that will do: RHEL and Ubuntu LTS may have one beside an older python3."""
    import subprocess

    try_it = ["-c", "import sys; sys.exit(sys.version_info < (3, 10))"]
    for minor in range(19, 9, -1):
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
            path = os.path.join(folder, "python3.%d" % minor)
            if os.path.isabs(path) and os.access(path, os.X_OK):
                with open(os.devnull, "w") as nowhere:  # pyenv's is there, and then finds no Python
                    if subprocess.call([path] + try_it, stderr=nowhere) == 0:
                        return path
    return None


if sys.version_info < (3, 10):
    found = newer_python()
    if found:
        os.execv(found, [found] + sys.argv)
    it = "%s is Python %d.%d" % (sys.executable, sys.version_info[0], sys.version_info[1])
    sys.stderr.write("nodedoctor: needs Python 3.10 or newer, and %s\n" % it)
    sys.exit(UNAVAILABLE)

import nodedoctor_place  # noqa: E402

try:
    folder = nodedoctor_place.place(__loader__)
except nodedoctor_place.NoPlace as error:
    sys.stderr.write("nodedoctor: %s\n" % error)
    sys.exit(UNAVAILABLE)

archive = os.path.abspath(__loader__.archive)
sys.path[:] = [folder] + [path for path in sys.path if path != __loader__.archive]
sys.dont_write_bytecode = False  # the folder is ours; a start that compiles everything takes a second more
sys.pycache_prefix = None

from nodedoctor import single_file  # noqa: E402
from nodedoctor.__main__ import main  # noqa: E402

single_file.tell(archive)
sys.exit(main())
