"""What is shipped: one top-level name, all data, the same checks from a wheel and a checkout."""

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of the checkout, as `pip wheel --no-build-isolation` would."""
    source = tmp_path_factory.mktemp("source")
    for name in ("nodedoctor", "checks"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, source / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(REPOSITORY / name, source)
    (source / "checks" / ".env").write_text("SECRET=1")
    code = "import setuptools.build_meta as b; print(b.build_wheel('dist'))"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True, timeout=120)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment with nothing but the wheel; its dependencies are those of the tests' own environment."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "python"


@pytest.mark.slow
def test_the_only_top_level_name_is_ours(wheel):
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"nodedoctor"}


@pytest.mark.slow
def test_every_data_file_ships_and_no_stray_one(wheel):
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    for path in (REPOSITORY / "nodedoctor").rglob("*"):
        name = path.relative_to(REPOSITORY).as_posix()
        if path.is_file() and "__pycache__" not in name:
            assert name in shipped
    assert not [name for name in shipped if name.endswith(".env")]


def test_the_licence_ships_with_its_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        texts = {Path(name).name: archive.read(name) for name in archive.namelist() if "/licenses/" in name}
        (metadata,) = (archive.read(name) for name in archive.namelist() if name.endswith("/METADATA"))
    assert texts["LICENSE"] == (REPOSITORY / "LICENSE").read_bytes()
    assert b"Version 2.0, January 2004" in texts["LICENSE"]
    assert b"Copyright The nodedoctor authors" in texts["NOTICE"]
    assert b"License-Expression: Apache-2.0\n" in metadata


@pytest.mark.slow
def test_a_wheel_lists_the_checks_of_the_checkout(installed):
    ask = ["-m", "nodedoctor", "list", "checks", "--json"]
    ran = subprocess.run([installed, *ask], cwd="/", capture_output=True, text=True, timeout=60, check=True)
    beside = subprocess.run(
        [sys.executable, *ask], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(ran.stdout) == json.loads(beside.stdout)
    where = subprocess.run(
        [installed, "-c", "import nodedoctor; print(nodedoctor.__file__)"],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert str(installed.parent.parent) in where.stdout


@pytest.mark.slow
def test_a_wheel_diagnoses(installed):
    argv = [installed, "-m", "nodedoctor", "--json", "doctor"]
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["counts"]["pass"] == 2


@pytest.mark.slow
def test_the_checks_package_is_one_object_however_it_is_reached(installed):
    code = (
        "from nodedoctor.engine.plugins import discover\n"
        "known = discover().checks['doctor.plugins'].function\n"
        "from nodedoctor.checks.host import doctor\n"
        "assert doctor.plugins is known\n"
    )
    for python, folder in ((installed, "/"), (sys.executable, REPOSITORY)):
        subprocess.run([python, "-c", code], cwd=folder, check=True, timeout=60)
