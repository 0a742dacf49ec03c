"""Write standard input to a file, whole or not at all: `write.py PATH`.

A child of its own because the file may lie on a file system that hangs.
"""

import os
import sys
import tempfile


def main() -> int:
    """Write beside the target, then rename over it; 1 with one line on stderr when that fails."""
    path = os.path.abspath(sys.argv[1])
    data = sys.stdin.buffer.read()
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            # A device or a pipe (/dev/stdout, a fifo) is written to, never replaced.
            with open(path, "wb") as file:
                file.write(data)
            return 0
        replace(path, data)
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        return 1
    return 0


def replace(path: str, data: bytes) -> None:
    """Put data in a new file beside path, with the mode a plain open would give, and rename it to path."""
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".nodedoctor-")
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


if __name__ == "__main__":
    sys.exit(main())
