"""The single file's own part, around small contents: where it unpacks, what it refuses, what it mends."""

import ast
import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
import zipimport
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

TOOLS = Path(__file__).parents[2] / "tools" / "pyz"
MACHINE = os.uname().machine
CLI = """\
import json, os, sys, nodedoctor, native_one
from nodedoctor import single_file
def main():
    told = {"argv": sys.argv[1:], "path": sys.path, "file": nodedoctor.__file__, "native": native_one.KIND}
    print(json.dumps({**told, "pyz": str(single_file.path()), "cached": native_one.__cached__}))
    return 2
"""
CONTENTS = {
    "nodedoctor/__init__.py": b"",
    "nodedoctor/__main__.py": b"from nodedoctor.cli.main import main",
    "nodedoctor/cli/main.py": CLI.encode(),
    "nodedoctor/single_file.py": (TOOLS.parents[1] / "nodedoctor" / "single_file.py").read_bytes(),
    "nodedoctor/data/table.json": b"{}",
    "nodedoctor/empty.py": b"",
    f"native/{MACHINE}/native_one.py": f"KIND = {MACHINE!r}".encode(),
    "native/pdp11/native_one.py": b"KIND = 'pdp11'",
    f"native/{MACHINE}/bin/tool": b"#!/bin/sh\necho works",
}


@pytest.fixture(scope="module")
def build():
    sys.path.insert(0, str(TOOLS))
    spec = importlib.util.spec_from_file_location("pyz_build", TOOLS / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(TOOLS))


@pytest.fixture
def place(build):
    module = importlib.import_module("nodedoctor_place")
    return importlib.reload(module)


@pytest.fixture(scope="module")
def archive(build, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "nodedoctor.pyz"
    build.write(path, CONTENTS)
    return path


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def start(archive, *words, python=(sys.executable,), **env):
    """Start it as a shell would, in an environment with nothing else in it."""
    argv = [*python, str(archive), *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, cwd="/")


def told(done):
    """What the contents said when they ran."""
    assert (done.returncode, done.stderr) == (2, "")
    return json.loads(done.stdout)


def refused(done):
    """The one line on stderr of a start that could not be."""
    assert (done.returncode, done.stdout) == (69, "")
    (line,) = done.stderr.splitlines()
    return line


def contents(folder):
    """The one folder that was unpacked below our private one."""
    (found,) = folder.iterdir()
    return found


# A first start and the next one


def test_it_unpacks_into_a_private_folder_and_runs_from_there(archive, home):
    said = told(start(archive, "--json", "a b", HOME=str(home)))
    private = home / ".cache" / "nodedoctor"
    folder = contents(private)
    assert said["argv"] == ["--json", "a b"]
    assert said["pyz"] == str(archive)
    assert said["file"] == str(folder / "nodedoctor" / "__init__.py")
    assert said["native"] == MACHINE
    assert [oct(path.stat().st_mode & 0o7777) for path in (private, folder)] == ["0o700", "0o700"]
    assert folder.name.endswith(f"-{MACHINE}")


def test_the_next_start_writes_nothing(archive, home):
    told(start(archive, HOME=str(home)))
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    told(start(archive, HOME=str(home)))
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before


@pytest.mark.parametrize(
    "python", [(sys.executable,), (sys.executable, "-I", "-S"), ("/usr/bin/env", "python3")]
)
def test_its_own_folder_comes_first_and_the_archive_is_searched_no_more(archive, home, python):
    env = {"HOME": str(home), "PYTHONPATH": "/nowhere", "PATH": os.environ["PATH"]}
    said = told(start(archive, python=python, **env))
    assert said["path"][0] == str(contents(home / ".cache" / "nodedoctor"))
    assert str(archive) not in said["path"]


def test_it_starts_by_itself_and_by_a_relative_path(archive, home):
    for argv in (["./nodedoctor.pyz"], [sys.executable, "nodedoctor.pyz"]):
        env = {"HOME": str(home), "PATH": os.environ["PATH"]}
        done = subprocess.run(argv, cwd=archive.parent, env=env, capture_output=True, text=True, timeout=60)
        said = told(done)
        assert said["pyz"] == str(archive)
        assert not [path for path in said["path"] if path.endswith(".pyz")]


def test_what_is_compiled_is_kept_whatever_the_environment_says(archive, home):
    env = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(home / "elsewhere")}
    said = told(start(archive, HOME=str(home), **env))
    assert said["cached"].startswith(str(home / ".cache"))
    assert Path(said["cached"]).is_file()
    told(start(archive, HOME=str(home), **env))  # and is no damage


def test_another_version_gets_a_folder_of_its_own(build, archive, home, tmp_path):
    told(start(archive, HOME=str(home)))
    build.write(tmp_path / "new.pyz", {**CONTENTS, "more.py": b"1"})
    told(start(tmp_path / "new.pyz", HOME=str(home)))
    assert len(list((home / ".cache" / "nodedoctor").iterdir())) == 2


# Where to


def test_the_cache_folder_of_the_desktop_is_made_and_used(archive, home, tmp_path):
    told(start(archive, HOME=str(home), XDG_CACHE_HOME=str(tmp_path / "cache")))
    assert contents(tmp_path / "cache" / "nodedoctor").is_dir()
    assert not list(home.iterdir())


def test_a_relative_cache_folder_is_ignored(archive, home):
    told(start(archive, HOME=str(home), XDG_CACHE_HOME="cache"))
    assert contents(home / ".cache" / "nodedoctor").is_dir()


def placed(place, archive, monkeypatch, tmp_path, **env):
    """Where it unpacks to when the folders that everybody shares are two of the test's."""
    shared = [tmp_path / "first", tmp_path / "second"]
    for folder in shared:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
    monkeypatch.setattr(place, "SHARED", tuple(map(str, shared)))
    for name in ("HOME", "XDG_CACHE_HOME", "NODEDOCTOR_UNPACK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, str(value))
    found = Path(place.place(zipimport.zipimporter(str(archive))))
    assert (found / "nodedoctor" / "cli" / "main.py").read_bytes() == CLI.encode()
    return found


OURS = f"nodedoctor-{os.geteuid()}"


@pytest.mark.parametrize("which", ["unset", "empty", "relative", "missing", "a file", "below a file", "proc"])
def test_without_a_home_it_is_a_shared_folder(place, archive, monkeypatch, tmp_path, which):
    (tmp_path / "file").write_text("")
    homes = {"empty": "", "relative": "home", "missing": tmp_path / "no", "a file": tmp_path / "file"}
    homes |= {"below a file": tmp_path / "file" / "home", "proc": "/proc"}
    env = {} if which == "unset" else {"HOME": homes[which]}
    found = placed(place, archive, monkeypatch, tmp_path, **env)
    assert found.parent == tmp_path / "first" / OURS
    assert not (tmp_path / "no").exists()


def test_the_name_service_is_not_asked(archive, tmp_path):
    code = "import sys, zipimport; sys.path.insert(0, sys.argv[1]); import nodedoctor_place as p\n"
    code += "print(list(p.candidates()), 'pwd' in sys.modules)"
    argv = [sys.executable, "-I", "-S", "-c", code, str(TOOLS)]
    done = subprocess.run(argv, env={}, capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")


def test_a_home_on_a_network_is_the_last_choice_and_not_even_looked_at(
    place, archive, monkeypatch, tmp_path, home
):
    mounts = tmp_path / "mountinfo"
    row = "36 35 98:0 / {} rw,noatime master:1 - {} somewhere rw\n"
    mounts.write_text(row.format("/", "ext4") + row.format(home, "nfs4"))
    monkeypatch.setattr(place, "MOUNTS", str(mounts))
    (tmp_path / "link").symlink_to(home)
    looked = []
    plain = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path, **more: (looked.append(str(path)), plain(path, **more))[1])
    for path in (home, tmp_path / "link"):
        found = placed(place, archive, monkeypatch, tmp_path, HOME=path)
        assert found.parent == tmp_path / "first" / OURS
    assert not [path for path in looked if path.startswith(str(home))]
    with mounts.open("a") as file:
        file.write(row.format(tmp_path / "first", "lustre") + row.format(tmp_path / "second", "fuse.sshfs"))
    assert placed(place, archive, monkeypatch, tmp_path, HOME=home).parent == home / ".cache" / "nodedoctor"


def test_a_folder_that_was_named_is_the_only_one(place, archive, monkeypatch, tmp_path, home):
    there = tmp_path / "there"
    found = placed(place, archive, monkeypatch, tmp_path, HOME=home, NODEDOCTOR_UNPACK=there)
    assert found.parent == there / OURS
    (tmp_path / "file").write_text("")
    line = refused(start(archive, HOME=str(home), NODEDOCTOR_UNPACK=str(tmp_path / "file" / "x")))
    assert line.startswith(f"nodedoctor: no private folder to unpack into ({tmp_path}/file/x: ")
    assert not list(home.iterdir())


def test_a_folder_that_was_named_keeps_its_mode(archive, tmp_path):
    tmp_path.chmod(0o755)
    told(start(archive, NODEDOCTOR_UNPACK=str(tmp_path)))
    assert tmp_path.stat().st_mode & 0o777 == 0o755


# What is refused


def spoil(ours: Path, how: str, tmp_path: Path) -> None:
    """Do to our folder what somebody else would, before we come."""
    other = tmp_path / "theirs"
    other.mkdir(mode=0o700)
    if how == "symlink":
        ours.symlink_to(other)
    elif how == "file":
        ours.write_text("")
    else:
        ours.mkdir()
        ours.chmod(0o770 if how == "group" else 0o707 if how == "others" else 0o700)
    if how == "owner":
        os.chown(ours, 12345, 12345)


HOWS = ["symlink", "file", "group", "others"]
if os.geteuid() == 0:
    HOWS.append("owner")


@pytest.mark.parametrize("how", HOWS)
def test_a_folder_in_which_somebody_has_a_hand_is_refused(place, archive, monkeypatch, tmp_path, how):
    (tmp_path / "first").mkdir()
    spoil(tmp_path / "first" / OURS, how, tmp_path)
    before = os.lstat(tmp_path / "first" / OURS)
    found = placed(place, archive, monkeypatch, tmp_path)
    assert found.parent == tmp_path / "second" / OURS
    after = os.lstat(tmp_path / "first" / OURS)
    assert (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns)
    assert not list((tmp_path / "theirs").iterdir())


def test_a_folder_that_others_may_read_is_closed(place, archive, monkeypatch, tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / OURS).mkdir(mode=0o755)
    found = placed(place, archive, monkeypatch, tmp_path)
    assert found.parent == tmp_path / "first" / OURS
    assert found.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode, good", [(0o777, False), (0o775, False), (0o1777, True), (0o755, True)])
def test_a_folder_above_that_others_can_write_to_must_be_sticky(
    place, archive, monkeypatch, tmp_path, home, mode, good
):
    home.chmod(mode)
    found = placed(place, archive, monkeypatch, tmp_path, HOME=home)
    assert found.is_relative_to(home) is good


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("what", ["folder", "link"])
def test_a_folder_above_that_is_somebody_elses_is_refused(place, archive, monkeypatch, tmp_path, home, what):
    path = home
    if what == "link":
        path = tmp_path / "link"
        path.symlink_to(home)
    os.chown(path, 12345, 12345, follow_symlinks=False)
    found = placed(place, archive, monkeypatch, tmp_path, HOME=path)
    assert found.parent == tmp_path / "first" / OURS


def test_links_of_ours_are_followed_and_loops_are_not(place, archive, monkeypatch, tmp_path, home):
    (tmp_path / "big").mkdir()
    (home / ".cache").symlink_to("../big")
    found = placed(place, archive, monkeypatch, tmp_path, HOME=home)
    assert found.parent == tmp_path / "big" / "nodedoctor"
    (home / ".cache").unlink()
    (home / ".cache").symlink_to(".cache")
    found = placed(place, archive, monkeypatch, tmp_path, HOME=home)
    assert found.parent == tmp_path / "first" / OURS


# Damage


def damage(folder: Path, how: str) -> None:
    """What cleaners, crashes and curious people do to a folder."""
    module = folder / "nodedoctor" / "cli" / "main.py"
    if how in ("missing", "empty", "longer", "folder", "link"):
        module.unlink()
    if how == "empty":
        module.write_text("")
    elif how == "longer":
        module.write_text(CLI + "#")
    elif how == "folder":
        (module / "deep").mkdir(parents=True)
        (module / "deep" / "file").write_text("")
    elif how == "link":
        module.symlink_to("single_file.py")
    elif how == "no program":
        (folder / "bin" / "tool").chmod(0o600)
    elif how == "extra":
        for name in ("json", *(f"copy{number}" for number in range(200))):
            (folder / f"{name}.py").write_text("raise SystemExit('not ours')")
    elif how == "no folder":
        shutil.rmtree(folder / "nodedoctor")
    elif how == "a file instead":
        shutil.rmtree(folder)
        folder.write_text("")
    elif how == "a link instead":
        folder.rename(folder.with_name("moved"))
        folder.symlink_to("moved")
    elif how == "nothing":
        shutil.rmtree(folder)


DAMAGES = ["missing", "empty", "longer", "folder", "link", "extra", "no folder", "nothing", "no program"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", [*DAMAGES, "a file instead", "a link instead"])
def test_damage_is_mended(archive, home, how):
    told(start(archive, HOME=str(home)))
    folder = contents(home / ".cache" / "nodedoctor")
    table = folder / "nodedoctor" / "data" / "table.json"
    before = table.stat().st_ino
    damage(folder, how)
    told(start(archive, HOME=str(home)))
    assert not folder.is_symlink()
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    wanted = {name.replace(f"native/{MACHINE}/", "") for name in CONTENTS if "pdp11" not in name}
    assert {name for name in found if "__pycache__" not in name} == wanted
    assert subprocess.run([folder / "bin" / "tool"], capture_output=True).stdout == b"works\n"
    if how in ("missing", "empty", "longer", "folder", "link", "extra", "no program"):
        assert table.stat().st_ino == before  # others may be running from it: what is whole stays
    assert not list(folder.parent.glob(".unpacking-*"))


@pytest.mark.slow
@pytest.mark.race
def test_many_may_start_at_once_also_on_damage(archive, home):
    with ThreadPoolExecutor(8) as pool:
        for how in (None, "missing", "no folder", "nothing", "extra"):
            if how:
                damage(contents(home / ".cache" / "nodedoctor"), how)
            many = list(pool.map(lambda _: start(archive, HOME=str(home)), range(8)))
            assert len({told(done)["file"] for done in many}) == 1
            contents(home / ".cache" / "nodedoctor")  # one folder, and no litter


def test_litter_of_a_start_that_was_killed_is_removed_a_day_later(archive, home):
    private = home / ".cache" / "nodedoctor"
    for name in (".unpacking-old", ".unpacking-now"):
        (private / name / "deep").mkdir(parents=True)
    private.chmod(0o700)
    long_ago = time.time() - 100_000
    os.utime(private / ".unpacking-old", (long_ago, long_ago))
    told(start(archive, HOME=str(home)))
    assert {path.name for path in private.iterdir() if path.name[0] == "."} == {".unpacking-now"}


def test_an_archive_that_was_damaged_says_so(archive, home, tmp_path):
    with zipfile.ZipFile(archive) as outer:
        at = outer.getinfo("contents.zip")
    data = bytearray(archive.read_bytes())
    middle = data.index(b"nodedoctor/cli/main.py", at.header_offset) + 60
    data[middle] ^= 0xFF
    (tmp_path / "bad.pyz").write_bytes(data)
    line = refused(start(tmp_path / "bad.pyz", HOME=str(home)))
    assert line.startswith(f"nodedoctor: {tmp_path}/bad.pyz is damaged (") and line.endswith(
        "): copy it anew"
    )
    assert not list((home / ".cache" / "nodedoctor").iterdir())


# File systems


def in_namespace(script: str, *words: str):
    """Run a shell as root of its own mounts; skips where that is not allowed."""
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    with contextlib.suppress(OSError):
        probe = [*unshare, "mount", "-t", "tmpfs", "none", "/mnt"]
        if subprocess.run(probe, capture_output=True).returncode == 0:
            # The interpreter itself: a virtual environment may lie below what is mounted over.
            argv = [*unshare, "sh", "-c", script, "sh", os.path.realpath(sys.executable), *words]
            return subprocess.run(argv, capture_output=True, text=True, timeout=60)
    pytest.skip("no mount namespaces here")


@pytest.mark.parametrize("options", ["noexec", "size=8k", "ro"])
def test_a_home_without_libraries_room_or_leave_is_passed_over(archive, tmp_path, home, options):
    mount = f'mount -t tmpfs -o {options} none "$3" && mount -t tmpfs none /var/tmp && chmod 1777 /var/tmp'
    done = in_namespace(f'{mount} && HOME=$3 exec "$1" "$2"', str(archive), str(home))
    assert told(done)["file"].startswith(f"/var/tmp/{'nodedoctor-0'}/")


def test_a_folder_without_libraries_is_better_than_none(archive, home):
    mount = 'mount -t tmpfs -o noexec none "$3" && NODEDOCTOR_UNPACK=$3'
    done = in_namespace(f'{mount} exec "$1" "$2"', str(archive), str(home))
    assert told(done)["file"].startswith(str(home))


def test_when_nothing_is_left_one_line_says_what_was_tried(archive):
    # The archive may lie in /tmp: it is put where nothing is unpacked to.
    full = 'mount -t tmpfs none /mnt && cp "$2" /mnt/it.pyz && mkdir /mnt/home && cd /mnt || exit 9;'
    full += (
        " for at in /mnt/home /var/tmp /dev/shm /tmp; do mount -t tmpfs -o size=8k none $at || exit 9; done"
    )
    line = refused(in_namespace(f'{full}; HOME=/mnt/home exec "$1" /mnt/it.pyz', str(archive)))
    for folder in ("/mnt/home/.cache", "/var/tmp", "/tmp", "/dev/shm"):
        assert f"{folder}: No space left on device" in line
    assert "NODEDOCTOR_UNPACK=DIR" in line


# Pythons and machines


def test_an_old_python_can_read_what_says_that_it_is_too_old():
    source = (TOOLS / "main.py").read_text()
    ast.parse(source, feature_version=(3, 4))
    assert not any(isinstance(node, (ast.JoinedStr, ast.AnnAssign)) for node in ast.walk(ast.parse(source)))


def as_old(path: str) -> subprocess.CompletedProcess:
    """Run the first lines as if by Python 3.9."""
    code = "import sys; sys.version_info = (3, 9, 2); sys.argv = ['/x/nodedoctor.pyz', '--json']\n"
    code += (TOOLS / "main.py").read_text()
    argv = [sys.executable, "-I", "-S", "-c", code]
    return subprocess.run(argv, env={"PATH": path}, capture_output=True, text=True, timeout=60)


def test_an_old_python_says_in_one_line_that_it_is_too_old(tmp_path):
    line = refused(as_old(str(tmp_path)))
    assert line == f"nodedoctor: needs Python 3.10 or newer, and {sys.executable} is Python 3.9"


def test_an_old_python_hands_over_to_a_newer_one_that_works(tmp_path):
    for minor, script in ((13, "echo pyenv >&2; exit 127"), (12, 'echo newer "$@"'), (9, "echo older")):
        program = tmp_path / f"python3.{minor}"
        program.write_text(
            f'#!/bin/sh\n[ "$1" = -c ] && {"exit 127" if minor == 13 else "exit 0"}\n{script}\n'
        )
        program.chmod(0o755)
    done = as_old(str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "newer /x/nodedoctor.pyz --json\n", "")


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8"])
def test_a_real_old_python(archive, version):
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")) or shutil.which(
        f"python{version}"
    )
    if not found:
        pytest.skip(f"no Python {version}")
    python = found if isinstance(found, str) else str(found[0])
    line = refused(start(archive, python=(python,), PATH="/nowhere"))
    assert line == f"nodedoctor: needs Python 3.10 or newer, and {python} is Python {version}"


def test_only_what_is_for_this_machine_is_unpacked(build):
    contents = importlib.import_module("nodedoctor_contents")
    assert contents.unpacked("native/x86_64/psutil/__init__.py", "x86_64") == "psutil/__init__.py"
    assert contents.unpacked("native/x86_64/psutil/__init__.py", "riscv64") == ""
    assert contents.unpacked("nodedoctor/native.py", "riscv64") == "nodedoctor/native.py"
    name, files = contents.manifest(f"cafe\n3 a b.py\n4 native/{MACHINE}/n.so\n5 native/pdp11/n.so\n")
    assert (name, files) == (f"cafe-{MACHINE}", {"a b.py": 3, "n.so": 4})


# Mounts


@given(st.text())
def test_any_list_of_mounts_can_be_read(text):
    sys.path.insert(0, str(TOOLS))
    import nodedoctor_place as place

    sys.path.remove(str(TOOLS))
    for path in ("/", "/home/me", text):
        assert place.locality(place.mounts(text))(path) in (True, False)


def test_mounts_are_found_by_the_longest_name_and_the_last_line(place):
    rows = [("/", "ext4"), ("/home", "autofs"), ("/home/a\\040b", "xfs"), ("/mnt", "nfs"), ("/mnt", "tmpfs")]
    text = "".join(f"1 2 0:1 / {point} rw shared:2 - {kind} dev rw\n" for point, kind in rows)
    is_local = place.locality(place.mounts(text))
    local = {"/": True, "/homes": True, "/home": False, "/home/a": False, "/home/a b/c": True, "/mnt/x": True}
    assert {path: is_local(path) for path in local} == local


# The build


def test_two_builds_are_the_same_bytes(build, tmp_path):
    for name, files in (("one", CONTENTS), ("two", dict(reversed(CONTENTS.items())))):
        build.write(tmp_path / name, files)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "path",
    [
        "rich/console.py",
        "nodedoctor/tui/look.tcss",
        "psutil-7.2.2.dist-info/METADATA",
        "psutil-7.2.2.dist-info/LICENSE",
        "rich-15.0.0.dist-info/licenses/LICENSE.txt",
        "pygments-2.21.0.dist-info/licenses/AUTHORS",
        "typing_extensions.py",
    ],
)
def test_what_of_a_wheel_ships(build, path):
    assert build.place_of(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "psutil/tests/test_all.py",
        "rich/__pycache__/console.cpython-311.pyc",
        "rich-15.0.0.dist-info/RECORD",
        "x-1.data/data/share/x",
        "x-1.data/scripts/",
        "example.py",
    ],
)
def test_what_of_a_wheel_stays_behind(build, path):
    assert build.place_of(path) == ""


def test_programs_of_a_wheel_have_a_folder_of_their_own(build):
    assert build.place_of("py_spy-0.4.3.data/scripts/py-spy") == "bin/py-spy"


def test_every_package_is_pinned_by_hash_and_within_our_requirements(build):
    from importlib import metadata

    from packaging.requirements import Requirement

    wheels = importlib.import_module("wheels")
    pins = dict(line.split()[0].split("==") for line in wheels.PINS.read_text().splitlines() if "==" in line)
    for line in metadata.requires("nodedoctor"):
        wanted = Requirement(line)
        if wanted.marker is None:
            assert wanted.specifier.contains(pins[wanted.name])
    hashes = wheels.PINS.read_text().count("--hash=sha256:")
    assert hashes == len(pins) + 2  # psutil's and py-spy's are two each
