"""What the single file unpacks to: the archive's list of its files, and whether a folder holds them."""

from __future__ import annotations

import os
import stat

Files = dict[str, int]
"""The files unpacked and their sizes."""
PROGRAMS = "bin/"
"""The folder of what is run by itself and is no module."""


class NoPlace(Exception):
    """There is nowhere to unpack to; the message says why, in one line."""


def manifest(text: str) -> tuple[str, Files]:
    """The name of the folder and the files that are for this machine, from the archive's list of them.

    A home directory may be shared by machines of two kinds, so the folder's name has the machine in it.
    """
    machine = os.uname().machine
    digest, *lines = text.splitlines()
    files = {}
    for line in lines:
        size, _, member = line.partition(" ")
        path = unpacked(member, machine)
        if path:
            files[path] = int(size)
    return f"{digest}-{machine}", files


def unpacked(member: str, machine: str) -> str:
    """The path that a member of the archive gets, "" when it is for another kind of machine."""
    if not member.startswith("native/"):
        return member
    _, kind, path = member.split("/", 2)
    return path if kind == machine else ""


def intact(folder: str, files: Files) -> bool:
    """Whether the folder is ours and has exactly the files of the archive, each with its size.

    What is looked for is loss: cleaners of /tmp delete file by file, and files are empty after a crash.
    Contents are not read: who could change them could change anything else of ours. This takes 6 ms of
    processor time for 1400 files; reading them would take 40.
    """
    try:
        about = os.lstat(folder)
        return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and present(folder) == files
    except OSError:
        return False


def present(folder: str) -> Files:
    """The files below a folder and their sizes, without what Python compiled; -1 for one of another kind."""
    found: Files = {}
    left = [""]
    while left:
        below = left.pop()
        with os.scandir(os.path.join(folder, below)) as entries:
            for entry in entries:
                path = below + entry.name
                if entry.name.startswith(
                    ".nfs"
                ):  # NFS keeps a file that was removed while somebody had it open
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        left.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    about = entry.stat(follow_symlinks=False)
                    runs = about.st_mode & stat.S_IXUSR or not path.startswith(PROGRAMS)
                    found[path] = about.st_size if runs else -1
                else:
                    found[path] = -1
    return found
