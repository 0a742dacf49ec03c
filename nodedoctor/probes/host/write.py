"""Write standard input to a file, whole or not at all: `write.py PATH [shared]`.

A child of its own because the file may lie on a file system that hangs. A new file is for its owner alone,
as a report names hosts, users and processes, or with `shared` as the umask has it; one that is there keeps
its mode.
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
        replace(path, data, shared=sys.argv[2:] == ["shared"])
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        return 1
    return 0


def replace(path: str, data: bytes, *, shared: bool) -> None:
    """Put data in a new file beside path, and rename it to path."""
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".nodedoctor-")
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.chmod(temporary, mode_of(path, shared))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def mode_of(path: str, shared: bool) -> int:
    """The mode of the file that is there, else of a new one."""
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask if shared else 0o600


if __name__ == "__main__":
    sys.exit(main())
