"""Which folders of PATH only root can write, one line each as soon as it is known.

    python -I -S probes/host/path_folders.py FOLDER...    prints
    0 yes                      the first folder is root's alone
    1 belongs to uid 1000

A folder on a dead mount may block this program without end: what it said before is known by then.
Standard library only.
"""

from __future__ import annotations

import os
import sys

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.children.untrusted_files import Writers

sys.path.pop()

_NOT_THERE = "nodedoctor-looks-who-can-add-programs"
"""A name of no program. In a sticky folder, as /tmp, root's programs are safe, but others add theirs."""


def main() -> None:
    """Look at the folders in their order."""
    for number, folder in enumerate(sys.argv[1:]):
        writers = Writers()
        writers.path(folder)
        verdict = "yes"
        if writers.found:
            first = writers.found[0]
            verdict = first.how if first.path == folder else f"{first.path} {first.how}"
        else:
            writers.path(os.path.join(folder, _NOT_THERE))
            verdict = "lets others add programs" if writers.found else verdict
        print(number, verdict.replace("\n", "?"), flush=True)


if __name__ == "__main__":
    main()
