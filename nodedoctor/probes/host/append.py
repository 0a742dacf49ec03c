"""Append what comes on standard input to a file, as it comes: `append.py PATH`.

A child of its own because the file may lie on a file system that hangs, and a process that has written there
cannot even be killed. It is reached over no link of another user. What goes wrong is one line on standard
output.
"""

import os
import sys

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.own_links import followed

sys.path.pop()


def main() -> int:
    """Append until there is nothing more to come; 1 when the file does not take it."""
    try:
        path = followed(sys.argv[1])
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        file = os.open(path, flags if path.startswith("/proc/") else flags | os.O_NOFOLLOW, 0o600)
        while data := os.read(0, 1 << 16):
            while data:
                data = data[os.write(file, data) :]
    except OSError as error:
        print(error.strerror or error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
