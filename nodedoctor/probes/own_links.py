"""Where a path leads that we are to write to, over no link of another user.

The owner of a link chooses what we write to: as root that is any file. The kernel refuses such links only in
folders like /tmp, and only where fs.protected_symlinks is set (proc_sys_fs(5)).
"""

from __future__ import annotations

import errno
import os
import stat

MOST_LINKS = 40  # as many as the kernel follows (path_resolution(7))


def followed(path: str) -> str:
    """The path without links, whose last parts need not be there; OSError for a link of another user."""
    rest, here, links = os.path.abspath(path).split("/")[::-1], "/", 0
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)
            continue
        there = os.path.join(here, name)
        try:
            about = os.lstat(there)
        except FileNotFoundError:
            return os.path.join(there, *rest[::-1])
        if not stat.S_ISLNK(about.st_mode):
            here = there
            continue
        if there.startswith("/proc/"):  # the kernel's own, which may lead to what has no path
            return os.path.join(there, *rest[::-1])
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if about.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, f"the link {there} belongs to uid {about.st_uid}")
        target = os.readlink(there)
        rest += target.split("/")[::-1]
        here = "/" if target.startswith("/") else here
    return here
