"""Whose code an interpreter would run, and how root becomes that user before running it.

A part of find_python.py and in_python.py: standard library only. Text is read, nothing is run. Looked at are,
for a bare start (`python -I -S`): the program and what it links to, pyvenv.cfg and the installation it names,
the standard library, the shared libraries beside it, LD_LIBRARY_PATH. For a start that imports packages also
site-packages with every package, and the folders that .pth files and finders of editable installs name.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from errno import EPERM
from typing import NamedTuple

from nodedoctor.children.untrusted_files import Writer, Writers, is_root
from nodedoctor.probes.stack.target_elf import read_elf

NOBODY = 65534
WAY_OUT = "run nodedoctor as the user who trains"
KEPT = re.compile(
    r"(?:NODEDOCTOR_CALLER_)?PATH|LANG|LC_.*|LD_.*|CUDA_.*|NCCL_.*|PYTHONPATH|VIRTUAL_ENV|CONDA_PREFIX|TZ"
)
"""What goes along when root becomes somebody else: what decides the answer, and none of root's secrets."""
LOADED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT")
"""Lists of what the dynamic loader puts into every program."""
SYSTEM = ("/usr", "/usr/local")  # what a distribution's interpreter was compiled for
PACKAGES = ("site-packages", "dist-packages")
BARE = ("__pycache__", "collections", "encodings", "importlib", "json", "lib-dynload", "re")
"""Folders of the standard library that target_python.py imports from on a bare start."""
FOLDERS_ABOVE = 3  # a landmark is looked for in these too: lib/python3.x/os.py beside or above the program
_TEXT_BYTES = 4 * 1024 * 1024
_ABSOLUTE = re.compile(r"""['"](/[^'"\n]*)['"]""")


class Untrusted(PermissionError):
    """Root must not run this, and there is no user to run it as; `strerror` says why and the way out."""

    def __init__(self, writer: Writer) -> None:
        advice = f"{WAY_OUT}, or install {writer.path} again as root"
        if not writer.uid:
            advice = f"{WAY_OUT}, or let only root write there"
        super().__init__(EPERM, f"root does not import what others can write: {writer}; {advice}")


class Owner(NamedTuple):
    """The user to run an interpreter as, and what of it that user, or others, can write."""

    uid: int
    writer: Writer


def owner_to_become(python: str, *, imports: bool, also: Iterable[str] = ()) -> Owner | None:
    """The user to run this interpreter as; None to stay who we are.

    `python` is an absolute path. As root: None when only root can write what it runs. The owner when that is
    one user, or when the folder of the program is hers, who then chose all the rest. Uid 65534 when several
    can write it. With `imports` it is going to import packages, from the folders `also` too. Untrusted when
    there is no user to import them as.
    """
    if not is_root():
        return None
    writers, program = Writers(), os.path.normpath(python)
    writers.path(os.path.dirname(program))
    its_own = list(writers.found)
    if not its_own:
        _look_at_start(program, writers, () if imports else BARE)
        for path in _preload_paths(os.environ) if imports else ():
            writers.path(path)
    if writers.found:
        owners = {writer.uid for writer in its_own[:1] or writers.found}
        owner = Owner((owners.pop() if len(owners) == 1 else 0) or NOBODY, writers.found[0])
        for folder in also:  # the search path is root's, not that user's
            if (writer := who_else_writes(folder)) and writer.uid != owner.uid:
                raise Untrusted(writer)
        return owner
    if imports:
        _look_at_packages(program, writers)
        for folder in also:
            writers.tree(folder)
        if writers.found:
            raise Untrusted(writers.found[0])
    return None


def trusted_loading(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would make the dynamic loader load files of others; as root only."""
    trusted = dict(environ)
    if is_root():
        for name in LOADED:
            if name in trusted:
                paths = list(_preload_paths({name: trusted[name]}))
                trusted[name] = ":".join(path for path in paths if who_else_writes(path) is None)
                if not trusted[name]:
                    del trusted[name]  # empty it would be the working directory
    return trusted


def who_else_writes(path: str) -> Writer | None:
    """The first thing on the way to a file that others than root can write; None for none."""
    writers = Writers()
    writers.path(os.path.abspath(path))
    return next(iter(writers.found), None)


def _preload_paths(environ: Mapping[str, str]) -> Iterator[str]:
    for name in LOADED:
        yield from (path for path in re.split("[:; ]", environ.get(name, "")) if os.path.isabs(path))


def _look_at_start(python: str, writers: Writers, enter: Collection[str]) -> None:
    """Everything that the interpreter reads before the first line of a program, and its standard library."""
    programs = _link_chain(python)
    for program in programs:
        writers.path(program)
        for folder in _program_rpaths(program):
            writers.path(folder)
        # Files that move its standard library (Modules/getpath.py), for a build tree or an embedded Python.
        for file in (f"{program}._pth", f"{os.path.dirname(program)}/pybuilddir.txt"):
            if os.path.lexists(file):
                writers.found.append(Writer(file, 0, "decides what it runs, and is not understood"))
    for file in _config_files(programs):
        writers.path(file)
    for home in _base_homes(programs):
        writers.path(home)
        writers.path(f"{home}/{os.path.basename(programs[-1])}")
    for prefix in _library_prefixes(programs):
        for archive in glob.iglob(f"{glob.escape(prefix)}/lib*/py*3*.zip"):
            writers.path(archive)
        for library in glob.iglob(f"{glob.escape(prefix)}/lib*/py*3.*"):
            if os.path.isdir(library):
                writers.tree(library, enter=enter, leave_out=PACKAGES)
        if prefix not in SYSTEM and prefix != "/":
            for file in glob.iglob(f"{glob.escape(prefix)}/lib/*.so*"):
                writers.path(file)


def _look_at_packages(python: str, writers: Writers) -> None:
    """Everything that `import` can reach from site-packages."""
    programs = _link_chain(python)
    prefixes, waiting = _library_prefixes(programs), list[str]()
    config = "".join(map(read_text, _config_files(programs[:1])))
    if config and not re.search(r"^[ \t]*include-system-site-packages[ \t]*=[ \t]*true", config, re.M | re.I):
        prefixes = [os.path.dirname(os.path.dirname(python))]
    for prefix in prefixes:
        for pattern in ("lib*/py*3*/*-packages", "local/lib/python3*/*-packages"):
            waiting += sorted(glob.iglob(f"{glob.escape(prefix)}/{pattern}"))
    looked: set[str] = set()
    while waiting:
        folder = waiting.pop(0)
        if folder in looked:
            continue
        looked.add(folder)
        writers.tree(folder, leave_out=(".git",))
        if writers.found:
            return
        waiting += _named_by_startup_files(folder)


def _named_by_startup_files(folder: str) -> Iterator[str]:
    """What .pth files add to the search path, and the paths that their code and editable finders hold."""
    for file in glob.iglob(f"{glob.escape(folder)}/*.pth"):
        for line in read_text(file).splitlines():
            if line.startswith(("import ", "import\t")):
                yield from _ABSOLUTE.findall(line)
            elif line.strip() and not line.startswith("#"):
                yield os.path.normpath(os.path.join(folder, line.rstrip()))
    for pattern in ("__editable__*.py", "*finder*.py"):
        for file in glob.iglob(f"{glob.escape(folder)}/{pattern}"):
            yield from _ABSOLUTE.findall(read_text(file))


def _link_chain(python: str) -> list[str]:
    """The program and each file that it is a link to."""
    chain = [python]
    while os.path.islink(chain[-1]) and len(chain) < 40:
        chain.append(os.path.normpath(os.path.join(os.path.dirname(chain[-1]), os.readlink(chain[-1]))))
    return list(dict.fromkeys([*chain, os.path.realpath(python)]))


def _config_files(programs: list[str]) -> list[str]:
    folders = [os.path.dirname(program) for program in programs]
    return [f"{place}/pyvenv.cfg" for folder in folders for place in (folder, os.path.dirname(folder))]


def _base_homes(programs: list[str]) -> list[str]:
    """The folder of the installation that a virtual environment was made from, as pyvenv.cfg names it."""
    pattern = re.compile(r"^[ \t]*home[ \t]*=[ \t]*(\S.*)$", re.M | re.I)
    return [home.rstrip() for file in _config_files(programs) for home in pattern.findall(read_text(file))]


def _library_prefixes(programs: list[str]) -> list[str]:
    """Where a standard library may be found from these programs, most likely first."""
    prefixes: list[str] = []
    for folder in [*map(os.path.dirname, programs), *_base_homes(programs)]:
        for _ in range(FOLDERS_ABOVE):
            folder = os.path.dirname(folder)
            prefixes.append(folder)
    beside = any(glob.glob(f"{glob.escape(prefix)}/lib*/py*3*/os.py") for prefix in prefixes)
    return list(dict.fromkeys(prefixes if beside else [*prefixes, *SYSTEM]))


def _program_rpaths(program: str) -> list[str]:
    elf = read_elf(program)
    return [folder for folder in (*elf.rpath, *elf.runpath) if os.path.isabs(folder)] if elf else []


def read_text(file: str, limit: int = _TEXT_BYTES) -> str:
    """The beginning of a file that may be anybody's; empty when it cannot be read, is a pipe or a device."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, encoding="utf-8-sig", errors="surrogateescape") as opened:
            return opened.read(limit) if stat.S_ISREG(os.fstat(fd).st_mode) else ""
    except (OSError, ValueError):
        return ""


def become(uid: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Give up root for all that follows and return that user's environment; OSError when that cannot be."""
    try:
        user = pwd.getpwuid(uid)
        groups, gid, home = os.getgrouplist(user.pw_name, user.pw_gid), user.pw_gid, user.pw_dir
    except KeyError:  # a container or a file server knows users that we do not
        groups, gid, home = [], uid, "/"
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    return {**{name: value for name, value in environ.items() if KEPT.fullmatch(name)}, "HOME": home}
