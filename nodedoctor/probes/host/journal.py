"""Append a line from standard input to the journal in a folder, or print it: `journal.py FOLDER append|read`.

A child of its own because the folder may lie on a file system that hangs. A journal that has become too large
is renamed to `journal.1`, of which there is one. Two writers take turns by flock; the line goes out by one
write, behind a line break where the line before was cut. What goes wrong is one line on standard output.
"""

import fcntl
import os
import sys

LARGEST = 5_000_000
NAME, OLDER = "journal", "journal.1"


def main() -> int:
    """Do what is asked; 1 when the folder does not take the line, or has no journal."""
    try:
        folder = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if sys.argv[2] == "read":
            show(folder)
        else:
            fcntl.flock(folder, fcntl.LOCK_EX)
            append(folder, sys.stdin.buffer.read(LARGEST))
    except OSError as error:
        print(error.strerror or error, flush=True)
        return 1
    return 0


def show(folder: int) -> None:
    """Print the older journal and the newer one, as far as they are there."""
    for name in (OLDER, NAME):
        try:
            file = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
        except FileNotFoundError:
            if name == NAME:
                raise
            continue
        with open(file, "rb") as lines:
            sys.stdout.buffer.write(lines.read(2 * LARGEST) + b"\n")


def append(folder: int, line: bytes) -> None:
    """Write the line at the end of the journal, or in a new one."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(NAME, flags, 0o600, dir_fd=folder)
    size = os.fstat(file).st_size
    if size and size + len(line) > LARGEST:
        os.replace(NAME, OLDER, src_dir_fd=folder, dst_dir_fd=folder)
        os.close(file)
        file = os.open(NAME, flags, 0o600, dir_fd=folder)
        size = 0
    torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    data = (b"\n" if torn else b"") + line
    written = os.write(file, data)
    if written < len(data):
        os.ftruncate(file, size)  # the disk is full: half a line would be of no use
        raise OSError(28, "No space left on device")


if __name__ == "__main__":
    sys.exit(main())
