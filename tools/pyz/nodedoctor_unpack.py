"""Unpack the single file, or mend what was unpacked: the part that only a first start needs.

Nothing is locked, so that a start never waits for another: each unpacks into a folder of its own, and one
rename decides who was first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
import zipfile
import zlib

from nodedoctor_contents import PROGRAMS, Files, NoPlace, intact, present, unpacked

FRESH = ".unpacking-"
TRIES = 5  # while others mend the same folder, a listing of it may miss what they just replaced
IN_THE_WAY = (errno.EEXIST, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY)
ABANDONED = 24 * 3600  # seconds after which a folder that somebody was unpacking into is litter


def unpack(archive: str, folder: str, files: Files) -> None:
    """Make the folder hold the archive's files; OSError when it cannot, NoPlace when the archive is damaged.

    Folders of other versions are left alone: a process that was started long ago may still load from them.
    Nothing is compiled ahead: Python does it for what is used, a tenth of the whole.
    """
    base = os.path.dirname(folder)
    _remove_litter(base)
    for _ in range(TRIES):
        fresh = tempfile.mkdtemp(prefix=FRESH, dir=base)
        try:
            _extract(archive, fresh)
            _put(fresh, folder, files)
        except OSError as error:
            if error.errno not in IN_THE_WAY:  # another start was at the same place: look again
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        if intact(folder, files):
            return
    raise OSError(0, f"{folder} was unpacked and is not whole")


def _put(fresh: str, folder: str, files: Files) -> None:
    try:
        os.rename(fresh, folder)
    except OSError:  # there is one already: another start was first, or it is damaged
        mend(folder, fresh, files)


def mend(folder: str, fresh: str, files: Files) -> None:
    """Put every file that is missing or has another size in its place, and remove what is none of ours.

    File by file, because processes may be running from this folder.
    """
    if os.path.islink(folder) or not os.path.isdir(folder):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder)
        os.rename(fresh, folder)
        return
    found = present(folder)
    for path in found.keys() - files.keys():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, path))
    for path in sorted(files):
        if found.get(path) != files[path]:
            target = os.path.join(folder, path)
            _make_way(folder, path)
            os.replace(os.path.join(fresh, path), target)


def _make_way(folder: str, path: str) -> None:
    target = os.path.join(folder, path)
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)


def _extract(archive: str, folder: str) -> None:
    machine = os.uname().machine
    made = {folder}
    try:
        with (
            zipfile.ZipFile(archive) as outer,
            outer.open("contents.zip") as stored,
            zipfile.ZipFile(stored) as inner,
        ):
            for member in inner.infolist():
                path = unpacked(member.filename, machine)
                if path:
                    target = os.path.join(folder, path)
                    parent = os.path.dirname(target)
                    if parent not in made:
                        os.makedirs(parent, mode=0o700, exist_ok=True)
                        made.add(parent)
                    with open(target, "xb") as file:
                        file.write(inner.read(member))
                        if path.startswith(PROGRAMS):
                            os.fchmod(file.fileno(), 0o700)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise NoPlace(f"{archive} is damaged ({error}): copy it anew") from error


def _remove_litter(base: str) -> None:
    with os.scandir(base) as entries:
        for entry in entries:
            if entry.name.startswith(FRESH):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED:
                        shutil.rmtree(entry.path, ignore_errors=True)
