"""Find the Python that trains, become its owner where we must, and have it describe itself.

    python -I find_python.py [--python PATH] [--pid ROLE:PID]... [--limit SECONDS] [--deep] [-- PREFIX...]

Without --python the candidates are, in this order: VIRTUAL_ENV, CONDA_PREFIX, a .venv of the working
directory that is ours, the interpreters of the given processes, python3 on PATH. The first one with torch is
taken, else the first one, and the others are listed. Shims are resolved to the binary behind them. Root never
runs what another user can write (target_owner.py): it becomes that user first, or says that it does not.
With a PREFIX (docker exec) the interpreter is started on the far side, below timeout(1), because killing the
prefix leaves its child.
The answer is that of target_python.py, or an object with `error`.
"""

from __future__ import annotations

import glob
import json
import marshal
import os
import re
import subprocess
import sys
import zlib
from binascii import b2a_base64
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER
from typing import Any, NamedTuple, NoReturn

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.children.untrusted_files import Writer, is_root
from nodedoctor.probes.plain_json import with_count
from nodedoctor.probes.stack.pyenv_shim import behind
from nodedoctor.probes.stack.target_owner import (
    LOADED,
    WAY_OUT,
    become,
    owner_to_become,
    read_text,
    trusted_loading,
    who_else_writes,
)
from nodedoctor.probes.stack.target_running import Running, running

sys.path.pop()

PARTS = ("target_elf", "target_libraries", "target_python")
SHIM_TIMEOUT_S = 2.0  # seconds for a shim to name its binary

_START = """import sys
if sys.version_info < (3, 7):
    note = "Python %d.%d, and 3.7 is needed" % sys.version_info[:2]
    sys.stdout.write('{"error": {"reason": "unparsable", "note": "%s"}}' % note)
    sys.exit()
__import__("os").environ.update(ENVIRON)
try:
    from _frozen_importlib_external import MAGIC_NUMBER
    assert MAGIC_NUMBER == MAGIC
    from binascii import a2b_base64
    from marshal import loads
    from zlib import decompress
    CODES = loads(decompress(a2b_base64(CODES)))
except (AssertionError, ImportError):
    CODES = [compile(text, name, "exec") for name, text in PARTS]
for (name, _), code in zip(PARTS[:-1], CODES):
    sys.modules[name] = type(sys)(name)
    exec(code, sys.modules[name].__dict__)
exec(CODES[-1])
"""
"""How an interpreter takes our text: where it compiles as ours does (most often they are of one version), as
we have it compiled, which saves a quarter of its time."""


class Interpreter(NamedTuple):
    """An interpreter that may be the one that trains; with a `problem` it is listed but not used."""

    path: str
    why: str
    torch: str = ""
    problem: str = ""


class NoPython(Exception):
    """The interpreter cannot be asked: the model's word for the reason, and the words for people."""

    def __init__(self, reason: str, note: str) -> None:
        super().__init__(note)
        self.reason = reason


def main() -> None:
    """Replace this process by the target interpreter, or print why that cannot be."""
    argv = sys.argv[1:]
    at = argv.index("--") if "--" in argv else len(argv)
    options, prefix = _parse_arguments(argv[:at]), argv[at + 1 :]
    choice: dict[str, Any] = {}
    try:
        if prefix:
            choice.update(why=f"reached with --exec {' '.join(prefix)}", explicit=True)
            ask = ["timeout", f"{options.limit:g}", options.python or "python3"]
            _exec_python([*prefix, *ask, *_program(choice, options.deep, {})], dict(os.environ))
        processes = running(options.pid) if options.pid else []
        candidates = list(_drop_duplicates(_list_candidates(processes)))
        if not options.python and not any(c.torch and not c.problem for c in candidates):
            candidates = [_behind_shim(candidate) for candidate in candidates]
        choice.update(others=[candidate._asdict() for candidate in candidates], running=processes)
        chosen = _named_python(options.python) if options.python else _choose_interpreter(candidates)
        choice.update(why=chosen.why, explicit=bool(options.python))
        choice["others"] = [entry for entry in choice["others"] if entry["path"] != chosen.path]
        _exec_as_owner(os.path.abspath(_real_binary(chosen.path)), choice, options.deep)
    except NoPython as error:
        document = {"error": {"reason": error.reason, "note": str(error)}, "found": choice}
        print(json.dumps(with_count(document)))


class PythonRequest(NamedTuple):
    """What the command line says. Read by hand: importing argparse takes as long as finding a Python."""

    python: str = ""
    pid: tuple[str, ...] = ()
    limit: float = 10.0
    deep: bool = False


def _parse_arguments(words: list[str]) -> PythonRequest:
    request, rest = PythonRequest(), list(words)
    while rest:
        word = rest.pop(0)
        if word == "--deep":
            request = request._replace(deep=True)
        elif word == "--python" and rest:
            request = request._replace(python=rest.pop(0))
        elif word == "--pid" and rest:
            request = request._replace(pid=(*request.pid, rest.pop(0)))
        elif word == "--limit" and rest:
            request = request._replace(limit=float(rest.pop(0)))
        else:
            sys.stderr.write(f"{__doc__}\n")
            sys.exit(2)
    return request


def _choose_interpreter(candidates: list[Interpreter]) -> Interpreter:
    usable = [candidate for candidate in candidates if not candidate.problem]
    if not usable:
        raise NoPython("none", "no Python was found: no environment is active, and none is on PATH")
    return next((candidate for candidate in usable if candidate.torch), usable[0])


def _named_python(text: str) -> Interpreter:
    """The interpreter that --python names: a path, the folder of an environment, or a command."""
    path = os.path.expanduser(text)
    if os.path.isdir(path):
        path = os.path.join(path, "bin", "python")
    path = path if "/" in path else _on_path(path)
    if not os.path.exists(path):
        raise NoPython("crash", f"--python {text}: there is no such interpreter")
    return Interpreter(os.path.abspath(path), "named with --python")


def _list_candidates(processes: list[Running]) -> Iterator[Interpreter]:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(name):
            yield from _environment_python(os.environ[name], name)
    yield from _project_python()
    for process in processes:
        why = f"runs {process['role']} {process['pid']}"
        yield from _environment_python(process["prefix"], why, process.get("problem", ""))
    name = next((name for name in ("python3", "python") if _on_path(name)), "")
    if name:
        path = _on_path(name)
        yield Interpreter(path, f"{name} on PATH", _torch_below(_python_prefix(path)))


def _drop_duplicates(candidates: Iterator[Interpreter]) -> Iterator[Interpreter]:
    paths = set()
    for candidate in candidates:
        if candidate.path not in paths:
            paths.add(candidate.path)
            yield candidate


def _environment_python(prefix: str, why: str, problem: str = "") -> Iterator[Interpreter]:
    paths = [os.path.join(os.path.abspath(prefix), "bin", name) for name in ("python", "python3")]
    path = next((path for path in paths if os.path.isfile(path)), "")
    problem = problem or ("" if path else "there is no interpreter")
    yield Interpreter(path or paths[0], why, "" if problem else _torch_below(prefix), problem)


def _project_python() -> Iterator[Interpreter]:
    """A .venv of the working directory, if it is ours: anybody can leave one in a shared folder."""
    folder = os.path.join(os.getcwd(), ".venv")
    try:
        owner = os.lstat(folder).st_uid
    except OSError:
        return
    problem = "" if owner == os.geteuid() else f"it belongs to uid {owner}, not to us"
    yield from _environment_python(folder, ".venv of the working directory", problem)


def _on_path(name: str) -> str:
    """Where a command is; relative items of PATH would let the working directory decide."""
    folders = (os.environ.get("NODEDOCTOR_CALLER_PATH") or os.environ.get("PATH", os.defpath)).split(
        os.pathsep
    )
    paths = (os.path.join(folder, name) for folder in folders if os.path.isabs(folder))
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), "")


def _python_prefix(python: str) -> str:
    return os.path.dirname(os.path.dirname(python))


def _behind_shim(candidate: Interpreter) -> Interpreter:
    """The same with the path of the binary; costs a process for a shim, so only done to find a torch."""
    try:
        path = candidate.path if candidate.problem else _real_binary(candidate.path)
    except NoPython as error:
        return candidate._replace(problem=str(error))
    if path == candidate.path:
        return candidate
    return candidate._replace(path=path, torch=_torch_below(_python_prefix(path)))


def _torch_below(prefix: str) -> str:
    """The version of the torch installed below a prefix, from its version.py."""
    folders = (
        "lib*/python3*/site-packages",
        "lib/python3*/dist-packages",
        "local/lib/python3*/dist-packages",
    )
    for folder in folders:
        for file in glob.iglob(f"{glob.escape(prefix)}/{folder}/torch/version.py"):
            version = re.search(r"^__version__ *= *'([^']*)'", read_text(file), re.M)
            return version.group(1) if version else "of unknown version"
    return ""


def _real_binary(python: str) -> str:
    """The program behind a shim or wrapper script; a real binary is returned as it is, links untouched."""
    if read_text(python, 2) != "#!":
        return python
    if is_root() and (writer := _who_else_writes_script(python)):
        note = f"{python} is a script of another user: {writer}; root does not run it"
        raise NoPython("denied", f"{note}; {WAY_OUT}")
    # A pyenv shim obeys the .python-version of the working directory, which may be anybody's.
    ours = os.stat(".").st_uid in (0, os.geteuid())
    if plain := behind(python, _working_directory() if ours else "/"):
        return plain
    ask = [python, "-I", "-S", "-c", "import sys; print(sys.executable)"]
    try:
        done = subprocess.run(
            ask, capture_output=True, text=True, timeout=SHIM_TIMEOUT_S, cwd=None if ours else "/"
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoPython("crash", f"{python} does not lead to an interpreter: {error}") from None
    if done.returncode or not os.path.isabs(done.stdout.strip()):
        raise NoPython("crash", f"{python} does not lead to an interpreter: {done.stderr.strip()[-200:]}")
    return done.stdout.strip()


def _working_directory() -> str:
    """As a shell has it: by the name it was entered with."""
    path = os.environ.get("PWD", "")
    return (
        path if os.path.isabs(path) and os.path.exists(path) and os.path.samefile(path, ".") else os.getcwd()
    )


def _who_else_writes_script(script: str) -> Writer | None:
    """As who_else_writes, of a script and the files that it names in full."""
    paths = [script, *re.findall(r"/[^\s\"'`;|&()<>$:={}]+", read_text(script))]
    writers = (who_else_writes(path) for path in paths if os.path.isfile(path))
    return next((writer for writer in writers if writer is not None), None)


def _exec_as_owner(python: str, choice: dict[str, Any], deep: bool) -> NoReturn:
    environ, note = dict(os.environ), ""
    hidden = {} if deep else {name: environ[name] for name in LOADED if name in environ}
    program = _program(choice, deep, hidden)  # read while we may: we may lie in a home of root's
    try:
        owner = owner_to_become(python, imports=deep, also=_search_path() if deep else ())
        if owner is None:
            environ = environ if deep else trusted_loading(environ)
        else:
            note = f", and root does not run it: {owner.writer}; {WAY_OUT}"
            environ = become(owner.uid, environ)
    except OSError as error:
        raise NoPython("denied", f"{python}: {error.strerror}{note}") from None
    os.chdir("/")
    try:
        _exec_python([python, *program], environ)
    except NoPython as refused:
        raise NoPython(refused.reason, f"{refused}{note}") from None


def _search_path() -> list[str]:
    """Folders that are on the search path of a training process by its environment; see target_python.py."""
    folders = [item for item in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(item)]
    local = os.path.join(os.path.expanduser("~"), ".local", "lib")
    return [*folders, *glob.glob(f"{glob.escape(local)}/python3*/site-packages")]


def _program(choice: dict[str, Any], deep: bool, environ: dict[str, str]) -> list[str]:
    """The arguments that make an interpreter run our text; our files it may neither see nor be let read.

    `environ` are variables to judge by, which it may be started without. Only to import torch does it read
    site-packages as Python does, which runs .pth files and sitecustomize.
    """
    folder = os.path.dirname(os.path.realpath(__file__))
    files = [os.path.join(folder, f"{name}.py") for name in PARTS]
    parts = list(zip(PARTS, map(read_text, files), strict=True))
    codes = [SourceFileLoader(*part).get_code(part[0]) for part in zip(PARTS, files, strict=True)]
    packed = b2a_base64(zlib.compress(marshal.dumps(codes)))
    values = {"PARTS": parts, "ENVIRON": environ, "MAGIC": MAGIC_NUMBER, "CODES": packed}
    source = "".join(f"{name} = {value!r}\n" for name, value in values.items()) + _START
    options = ["-I", "-B"] if deep else ["-I", "-S", "-B"]
    return [*options, "-c", source, *(["--deep"] if deep else []), json.dumps(choice)]


def _exec_python(argv: list[str], environ: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(argv[0], argv, environ)
    except OSError as error:
        reason = "denied" if isinstance(error, PermissionError) else "crash"
        raise NoPython(reason, f"{argv[0]}: {error.strerror}") from None


if __name__ == "__main__":
    main()
