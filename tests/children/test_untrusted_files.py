"""Root runs nobody else's code: each way to plant some, tried for real with files of another user."""

from __future__ import annotations

import grp
import importlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_python import add_torch, ask

from nodedoctor.children.untrusted_files import Writers, mounted_by_users

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")

PYTHON = next((path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if os.path.exists(path)), "")
THEM = 12345  # nobody's uid on any machine we know
TEAM = 23456  # a group with a number of people's groups
PROBES = Path(__file__).parents[2] / "nodedoctor" / "probes"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder of root's that every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def mark(shared: Path) -> Path:
    """Where planted code leaves the uid it ran with; every user may write there."""
    (shared / "marks").mkdir()
    (shared / "marks").chmod(0o1777)
    return shared / "marks" / "mark"


@pytest.fixture
def planted(mark: Path) -> str:
    """A line of Python that leaves the mark."""
    return f"import os; open({str(mark)!r}, 'a').write(f'{{os.geteuid()}} ')\n"


@pytest.fixture
def venv(shared: Path) -> Path:
    """A virtual environment of root's."""
    if not PYTHON:
        pytest.skip("needs a Python that others may run")
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", shared / "venv"], check=True)
    return shared / "venv"


def site_of(venv: Path) -> Path:
    return next(venv.glob("lib/python3*/site-packages"))


def give(path: Path, uid: int = THEM, gid: int = THEM) -> Path:
    for one in (path, *(path.rglob("*") if path.is_dir() else ())):
        os.chown(one, uid, gid, follow_symlinks=False)
    return path


def test_an_environment_of_root_is_asked_by_root(venv, planted, mark):
    (site_of(venv) / "torch.py").write_text(planted + "raise ImportError('no such library')\n")
    assert ask("stack/find_python", "--python", str(venv))["uid"] == 0
    assert not mark.exists()
    assert "no such library" in ask("stack/find_python", "--deep", "--python", str(venv))["deep"]["error"]
    assert mark.read_text() == "0 "


@pytest.mark.skipif(not PYTHON, reason="needs a Python of the distribution")
def test_the_python_of_the_distribution_is_asked_by_root():
    assert ask("stack/find_python", "--python", PYTHON)["uid"] == 0


def test_packages_of_an_empty_group_are_asked_by_root(venv):
    """As Debian has it: /usr/local/lib/python3.x/dist-packages is root:staff, mode 2775."""
    staff = next((group for group in grp.getgrall() if group.gr_name == "staff" and not group.gr_mem), None)
    if staff is None:
        pytest.skip("no empty group of the system here")
    (site_of(venv) / "torch.py").write_text("raise ImportError('no such library')\n")
    for folder in (site_of(venv), site_of(venv).parent):
        os.chown(folder, 0, staff.gr_gid)
        folder.chmod(0o2775)
    assert ask("stack/find_python", "--python", str(venv))["uid"] == 0
    assert "no such library" in ask("stack/find_python", "--deep", "--python", str(venv))["deep"]["error"]


@pytest.mark.parametrize("deep", [[], ["--deep"]])
def test_an_environment_that_its_group_can_write(venv, planted, mark, deep):
    (site_of(venv) / "start.pth").write_text(planted)
    give(venv, 0, TEAM)
    subprocess.run(["chmod", "-R", "g+w", venv], check=True)
    told = ask("stack/find_python", *deep, "--python", str(venv))
    if deep:
        assert set(mark.read_text().split()) == {"65534"} and "error" in told["deep"]
    else:
        assert told["uid"] == 65534 and not mark.exists()


def test_a_group_environment_with_an_owner_is_asked_as_its_owner(venv, planted, mark):
    (site_of(venv) / "torch.py").write_text(planted)
    give(venv, THEM, TEAM)
    subprocess.run(["chmod", "-R", "g+w", venv], check=True)
    assert ask("stack/find_python", "--python", str(venv))["uid"] == THEM
    ask("stack/find_python", "--deep", "--python", str(venv))
    assert mark.read_text() == f"{THEM} "


def plant_pth(site: Path, _: Path, code: str) -> None:
    (site / "start.pth").write_text(code)
    give(site / "start.pth")


def plant_module(site: Path, _: Path, code: str) -> None:
    (site / "torch.py").write_text(code)
    give(site / "torch.py")


def plant_compiled(site: Path, _: Path, code: str) -> None:
    (site / "torch.py").write_text("raise ImportError\n")
    (site / "__pycache__").mkdir()
    give(site / "__pycache__")


def plant_below(site: Path, _: Path, code: str) -> None:
    (site / "torch" / "deeper").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("import torch.deeper\n")
    (site / "torch" / "deeper" / "__init__.py").write_text(code)
    give(site / "torch" / "deeper" / "__init__.py")


def plant_link(site: Path, theirs: Path, code: str) -> None:
    (theirs / "torch.py").write_text(code)
    (site / "torch.py").symlink_to(give(theirs) / "torch.py")


def plant_checkout(site: Path, theirs: Path, code: str) -> None:
    (theirs / "torch.py").write_text(code)
    (site / "__editable__.torch.pth").write_text(f"{give(theirs)}\n")


def plant_finder(site: Path, theirs: Path, code: str) -> None:
    (theirs / "torch.py").write_text(code)
    name = "__editable___torch_finder"
    mapping = f"MAPPING: dict[str, str] = {{'torch': '{give(theirs)}/torch'}}\n"
    install = "import sys\ndef install(): sys.path.append(MAPPING['torch'].rpartition('/')[0])\n"
    (site / f"{name}.py").write_text(mapping + install)
    (site / "__editable__.torch.pth").write_text(f"import {name}; {name}.install()\n")


def plant_line(site: Path, theirs: Path, code: str) -> None:
    (theirs / "torch.py").write_text(code)
    (site / "add.pth").write_text(f"import sys; sys.path.append('{give(theirs)}')\n")


def plant_archive(site: Path, theirs: Path, code: str) -> None:
    (theirs / "torch.py").write_text(code)
    subprocess.run([sys.executable, "-m", "zipfile", "-c", "a.zip", "torch.py"], cwd=theirs, check=True)
    (site / "add.pth").write_text(f"{give(theirs)}/a.zip\n")


PLANTED = [
    plant_pth,
    plant_module,
    plant_compiled,
    plant_below,
    plant_link,
    plant_checkout,
    plant_finder,
    plant_line,
    plant_archive,
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("plant", PLANTED)
def test_what_another_user_has_in_root_s_environment(venv, shared, mark, planted, plant):
    (shared / "theirs").mkdir()
    plant(site_of(venv), shared / "theirs", planted)
    assert ask("stack/find_python", "--python", str(venv))["uid"] == 0
    told = ask("stack/find_python", "--deep", "--python", str(venv))
    assert told["error"]["reason"] == "denied" and f"belongs to uid {THEM}" in told["error"]["note"]
    assert "run nodedoctor as the user who trains" in told["error"]["note"]
    told = ask("in_python", str(venv / "bin" / "python"), "measured/gemm")
    assert told["error"] == "denied" and f"belongs to uid {THEM}" in told["text"]
    assert not mark.exists()


def test_a_path_that_anybody_may_make(venv, shared):
    (site_of(venv) / "add.pth").write_text(f"/tmp/{shared.name}-not-there\n")
    told = ask("stack/find_python", "--deep", "--python", str(venv))
    assert "is not there, and others may make it" in told["error"]["note"]


def their_installation(shared: Path, code: str) -> Path:
    """A Python installation of another user, whose standard library runs the code."""
    library = Path(
        subprocess.run(
            [PYTHON, "-c", "import os; print(os.path.dirname(os.__file__))"], capture_output=True, text=True
        ).stdout.strip()
    )
    leave_out = shutil.ignore_patterns("*-packages", "test", "__pycache__", "config-*", "*customize*")
    shutil.copytree(library, shared / "theirs" / "lib" / library.name, ignore=leave_out)
    (shared / "theirs" / "bin").mkdir()
    shutil.copy2(os.path.realpath(PYTHON), shared / "theirs" / "bin" / library.name)
    (shared / "theirs" / "bin" / "python3").symlink_to(library.name)
    with (shared / "theirs" / "lib" / library.name / "glob.py").open("a") as file:
        file.write(code)
    return give(shared / "theirs")


def test_the_installation_behind_a_copied_environment(shared, mark, planted):
    theirs = their_installation(shared, planted)
    subprocess.run([PYTHON, "-m", "venv", "--copies", "--without-pip", shared / "venv"], check=True)
    config = shared / "venv" / "pyvenv.cfg"
    config.write_text(f"home = {theirs}/bin\ninclude-system-site-packages = false\n")
    assert ask("stack/find_python", "--python", str(shared / "venv"))["uid"] == THEM
    assert set(mark.read_text().split()) == {str(THEM)}


def test_a_link_on_path_to_somebody_s_python(shared, mark, planted):
    theirs = their_installation(shared, planted)
    (shared / "bin").mkdir()
    (shared / "bin" / "python3").symlink_to(theirs / "bin" / "python3")
    assert ask("stack/find_python", env={"PATH": f"{shared}/bin:/usr/bin:/bin"})["uid"] == THEM
    assert set(mark.read_text().split()) == {str(THEM)}


def test_a_script_of_root_that_starts_somebody_s_python(shared, mark):
    theirs = shared / "theirs"
    theirs.write_text(f"#!/bin/sh\nid -u >> {mark}\n")
    theirs.chmod(0o755)
    give(theirs)
    shim = shared / "python3"
    shim.write_text(f'#!/bin/sh\nexec {theirs} "$@" 2>/dev/null\n')
    shim.chmod(0o755)
    told = ask("stack/find_python", "--python", str(shim))
    assert told["error"]["reason"] == "denied" and not mark.exists()


def test_variables_make_root_run_nothing(venv, shared, mark, planted):
    theirs = shared / "theirs"
    (theirs / ".local" / "lib" / site_of(venv).parent.name / "site-packages").mkdir(parents=True)
    for name in ("sitecustomize", "usercustomize", "json", "torch", "glob"):
        for folder in (theirs, next(theirs.glob(".local/lib/*/*"))):
            (folder / f"{name}.py").write_text(planted)
    (next(theirs.glob(".local/lib/*/*")) / "start.pth").write_text(planted)
    give(theirs)
    env = {"PYTHONPATH": str(theirs), "HOME": str(theirs), "PYTHONSTARTUP": f"{theirs}/json.py"}
    told = ask("stack/find_python", "--python", PYTHON, env=env)
    assert told["uid"] == 0 and str(theirs) in told["folders"]
    told = ask("stack/find_python", "--deep", "--python", PYTHON, env=env)
    assert told["error"]["reason"] == "denied"
    env = {"PYTHONHOME": str(theirs), "LD_LIBRARY_PATH": f":{theirs}:."}
    told = ask("stack/find_python", "--python", str(venv), env=env, cwd=theirs)
    assert told["uid"] == 0 and told["environ"]["LD_LIBRARY_PATH"] == env["LD_LIBRARY_PATH"]
    assert not mark.exists()


def test_a_library_of_another_user_is_not_loaded(venv, shared, mark):
    """What LD_LIBRARY_PATH holds is told, and the interpreter is started without it."""
    source = f'__attribute__((constructor)) static void f(void) {{ fclose(fopen("{mark}", "w")); }}'
    library = shared / "theirs" / "libz.so.1"
    library.parent.mkdir()
    argv = ["gcc", "-shared", "-fPIC", "-include", "stdio.h", "-x", "c", "-", "-o", library]
    subprocess.run(argv, input=source, text=True, check=True)
    give(library.parent)
    loads = {"LD_PRELOAD": str(library)}
    subprocess.run([PYTHON, "-c", ""], env=loads, check=True)
    assert mark.exists()
    code = (
        f"import sys; sys.path.insert(0, {str(PROBES)!r}); import os; from stack import find_python as f; "
        f"os.environ.update({loads!r}); f._exec_as_owner({str(venv / 'bin' / 'python')!r}, {{}}, False)"
    )
    mark.unlink()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert str(library) in done.stdout and not mark.exists()


def test_what_a_bare_start_imports_is_looked_at(venv, monkeypatch):
    monkeypatch.syspath_prepend(str(PROBES))
    looked_at = importlib.import_module("stack.target_owner").BARE
    code = (
        "import sys, os, runpy; sys.argv[1:] = []; sys.stdout = open(os.devnull, 'w')\n"
        f"runpy.run_path({str(PROBES / 'stack' / 'target_python.py')!r}, run_name='__main__')\n"
        "sys.stdout = sys.__stdout__\n"
        "print(*[getattr(m, '__file__', None) for m in list(sys.modules.values())], sep='\\n')\n"
        "print(os.path.dirname(os.__file__))"
    )
    argv = [venv / "bin" / "python", "-I", "-S", "-B", "-c", code]
    *files, library = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    below = {os.path.dirname(os.path.relpath(file, library)) for file in files if file.startswith(library)}
    below.discard("")
    below = {name for folder in below for name in folder.split("/")}
    assert "json" in below and below <= {*looked_at}


def writers(path: Path) -> list[str]:
    seen = Writers()
    seen.tree(str(path))
    return [str(writer) for writer in seen.found]


def test_a_tree_of_root(shared):
    (shared / "a" / "b").mkdir(parents=True)
    (shared / "a" / "b" / "c.py").write_text("")
    (shared / "a" / "loop").symlink_to("..")
    assert writers(shared / "a") == []


def by_list(path: Path) -> None:
    """What `setfacl -m u:12345:rw` does: version 2; owner, that user, group, mask, others."""
    rows = [(1, 6, -1), (2, 6, THEM), (4, 4, -1), (16, 6, -1), (32, 4, -1)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)
    try:
        os.setxattr(path, "system.posix_acl_access", packed)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: os.chown(file, THEM, 0), f"belongs to uid {THEM}"),
        (lambda file: os.chown(file.parent, THEM, 0), f"belongs to uid {THEM}"),
        (lambda file: file.chmod(0o666), "by everybody"),
        (lambda file: file.parent.chmod(0o777), "by everybody"),
        (lambda file: (os.chown(file, 0, TEAM), file.chmod(0o664)), f"those of group {TEAM}"),
        (lambda file: file.with_name("x").symlink_to("/tmp/nodedoctor-not-there"), "others may make it"),
        (lambda file: file.with_name("x").symlink_to("x"), "leads nowhere"),
        (by_list, "access control list"),
    ],
)
def test_one_thing_others_can_write(shared, change: Callable[[Path], object], words):
    file = shared / "a" / "b" / "c.py"
    file.parent.mkdir(parents=True)
    file.write_text("")
    change(file)
    assert any(words in line for line in writers(shared / "a")), writers(shared / "a")


def test_a_folder_above_that_others_can_write(shared):
    (shared / "a" / "b").mkdir(parents=True)
    (shared / "a").chmod(0o777)
    assert "by everybody" in writers(shared / "a" / "b")[0]
    (shared / "a").chmod(0o1777)  # only root can take away what is root's
    assert writers(shared / "a" / "b") == []


def test_what_is_too_large_is_not_trusted(shared):
    for number in range(30):
        (shared / f"{number}.py").write_text("")
    for most in ({"entries": 20}, {"seconds": -1.0}):
        seen = Writers(**most)
        seen.tree(str(shared))
        assert "more files than can be looked at" in str(seen.found[0])


def test_nothing_of_root_s_torch_is_imported_unless_asked(venv):
    add_torch(site_of(venv))
    told = ask("stack/find_python", "--python", str(venv))
    assert told["torch"]["version"] == "2.9.0+cu128" and told["uid"] == 0


def test_a_file_system_of_a_user_s_own():
    rows = (
        "29 1 0:26 / /proc rw,nosuid - proc proc rw",
        "66 29 0:59 / /tmp/x rw,nosuid shared:1 - fuse.sshfs me@far:/ rw,user_id=1000,allow_other",
        "67 29 0:60 / /lustre rw - fuse.gcsfuse bucket rw,user_id=0,group_id=0,allow_other",
    )
    assert mounted_by_users("\n".join(rows)) == {os.makedev(0, 59): 1000}


def test_a_pipe_keeps_nobody_waiting(venv, shared):
    """Candidates are looked into before one is chosen, also those of other users."""
    torch = shared / "theirs" / "lib" / "python3.11" / "site-packages" / "torch"
    torch.mkdir(parents=True)
    os.mkfifo(torch / "version.py")
    (shared / "theirs" / "bin").mkdir()
    os.mkfifo(shared / "theirs" / "bin" / "python", 0o755)
    give(shared / "theirs")
    told = ask("stack/find_python", env={"VIRTUAL_ENV": str(shared / "theirs"), "PATH": f"{venv}/bin"})
    assert told["found"]["others"][0]["problem"] == "there is no interpreter"
    (shared / "theirs" / "bin" / "python").unlink()
    (shared / "theirs" / "bin" / "python").symlink_to(PYTHON)
    told = ask("stack/find_python", env={"VIRTUAL_ENV": str(shared / "theirs"), "PATH": f"{venv}/bin"})
    assert told["uid"] == THEM


def test_dots_after_a_link_do_not_mislead(shared, mark, planted):
    """/ROOT/link/../bin is what the link leads to, not /ROOT/bin."""
    theirs = their_installation(shared, planted)
    (shared / "ours" / "bin").mkdir(parents=True)
    (shared / "ours" / "bin" / "python3").symlink_to(PYTHON)
    (shared / "ours" / "link").symlink_to(theirs / "lib")
    told = ask("stack/find_python", env={"PATH": f"{shared}/ours/link/../bin:/usr/bin:/bin"})
    assert told["uid"] == 0 or told["uid"] == THEM
    assert "0" not in (mark.read_text().split() if mark.exists() else [])
    checks = shared / "ours" / "link" / ".." / "checks"
    (theirs / "checks").mkdir()
    (theirs / "checks" / "rack.py").write_text(planted)
    (shared / "ours" / "checks").mkdir()
    argv = [sys.executable, "-m", "nodedoctor", "--json", "--checks", str(checks), "doctor.plugins"]
    give(theirs)
    done = subprocess.run(argv, cwd=PROBES.parent.parent, capture_output=True, text=True)
    assert done.returncode == 64 and f"uid {THEM}" in done.stderr
