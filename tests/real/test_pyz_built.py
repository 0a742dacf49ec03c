"""The single file as it is built and shipped, run where there is no network, by every Python that is here."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import pytest
from test_tui_terminal import terminal

from nodedoctor.demo import folder as demo

pytestmark = pytest.mark.real
REPOSITORY = Path(__file__).parents[2]
LARGEST = 12 * 2**20  # half of it is py-spy for both machines
ELF_MACHINE = {"x86_64": 62, "aarch64": 183}  # e_machine in elf.h
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of what it is built from: somebody may be at work. The wheels are kept in the original."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("nodedoctor", "checks", "tools/pyz"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(REPOSITORY / name, folder)
    (REPOSITORY / "build" / "pyz").mkdir(parents=True, exist_ok=True)
    (folder / "build").symlink_to(REPOSITORY / "build")
    return folder


def make(sources: Path, path: Path) -> Path:
    """Build it as `make pyz` does; skips when the wheels cannot be had."""
    argv = [sys.executable, str(sources / "tools" / "pyz" / "build.py"), str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    if "cannot download" in done.stderr or "there is no pip" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def pyz(sources, tmp_path_factory):
    return make(sources, tmp_path_factory.mktemp("pyz") / "nodedoctor.pyz")


@pytest.fixture(scope="module")
def contents(pyz):
    with zipfile.ZipFile(pyz) as outer, zipfile.ZipFile(io.BytesIO(outer.read("contents.zip"))) as inner:
        return {name: inner.read(name) for name in inner.namelist()}


@pytest.fixture(scope="module")
def alone():
    """The words that start a program without network; none where that is not allowed."""
    words = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    try:
        return words if subprocess.run([*words, "true"], capture_output=True).returncode == 0 else []
    except OSError:
        return []


def interpreters() -> list[str]:
    """One Python of each version: those on PATH, and pyenv's."""
    found = {}
    for version in PYTHONS:
        known = [Path(place, f"python{version}") for place in os.environ.get("PATH", "").split(os.pathsep)]
        known = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), *known]
        for path in known:
            if "shims" not in path.parts and os.access(path, os.X_OK):
                found.setdefault(version, str(path))
    return sorted(found.values()) or [sys.executable]


@pytest.fixture(scope="module", params=interpreters())
def run(request, pyz, alone, tmp_path_factory):
    """Run the single file by one Python, with nothing in the environment but where to unpack."""
    private = tmp_path_factory.mktemp("unpacked")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = {"NODEDOCTOR_UNPACK": str(private)}
        argv = [*alone, request.param, str(pyz), *words]
        done = subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=120)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    run.program, run.private = [*alone, request.param, str(pyz)], private
    return run


def test_two_builds_are_the_same_bytes_and_not_too_many(sources, pyz, tmp_path):
    again = make(sources, tmp_path / "again.pyz")
    first, second = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (pyz, again))
    assert first == second
    assert pyz.stat().st_size < LARGEST


@pytest.mark.parametrize("path", ["psutil/.*[.]so", "bin/py-spy"])
def test_it_holds_psutil_and_py_spy_for_both_machines(contents, path):
    for machine, number in ELF_MACHINE.items():
        (native,) = (contents[name] for name in contents if re.match(f"native/{machine}/{path}", name))
        assert native[:4] == b"\x7fELF" and int.from_bytes(native[18:20], "little") == number


def test_with_nothing_on_path_it_names_a_line_of_a_process_that_nobody_prepared(run, tmp_path):
    job = tmp_path / "job.py"
    job.write_text("import time\ndef load_batch():\n    time.sleep(600)\nprint(flush=True)\nload_batch()\n")
    with subprocess.Popen([sys.executable, str(job)], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            done = run("triage", "--live", str(process.pid))
        finally:
            process.kill()
    assert f"in load_batch ({job}:3)" in done.stdout, done.stdout


def test_it_holds_the_licences_and_nothing_compiled(contents):
    packages = {name.partition(".dist-info/")[0] for name in contents if ".dist-info/" in name}
    assert len(packages) > 10
    for package in packages:
        assert f"{package}.dist-info/METADATA" in contents
        module = "nvidia_ml_py" in package  # its licence is the head of the module
        licences = [name for name in contents if name.startswith(f"{package}.dist-info/") and "LICEN" in name]
        assert module or licences, package
    assert b"Redistribution and use" in contents["pynvml.py"]
    assert not [name for name in contents if name.endswith(".pyc") or "/tests/" in name]


def test_it_diagnoses_this_machine(run):
    done = run("--json", "--tag", "fast")
    report = json.loads(done.stdout)
    assert done.returncode in (0, 2, 3)
    jsonschema.validate(report, json.loads(run("schema", "report").stdout))
    probes = {probe["name"]: probe for probe in report["probes"]}
    assert (probes["processes"]["outcome"], probes["processes"]["rc"]) == ("ok", 0)
    private = str(run.private)
    assert any(private in word for word in probes["processes"]["argv"])
    (loaded,) = (result for result in report["results"] if result["check"] == "doctor.plugins")
    assert loaded["status"] == "pass"


def test_it_lists_the_checks_of_the_checkout(sources, run):
    ask = ["list", "checks", "--json"]
    argv = [sys.executable, "-m", "nodedoctor", *ask]
    beside = subprocess.run(argv, cwd=sources, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(run(*ask).stdout) == json.loads(beside.stdout)


def test_knowledge_demos_and_triage_are_there(run, tmp_path):
    assert "fell off the PCIe bus" in run("explain", "XID:79").stdout
    assert run("demo", "nvlinks-down", "--text").returncode == 2
    (tmp_path / "rank0.log").write_text(
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB\n"
    )
    done = run("triage", "--json", "--no-node", str(tmp_path))
    assert json.loads(done.stdout)["schema"].startswith("nodedoctor.triage/1")


def test_check_files_of_a_site_and_the_file_that_we_are(run, pyz, tmp_path):
    folder = tmp_path / "checks"
    folder.mkdir()
    told = tmp_path / "told"
    code = f"from nodedoctor import single_file\nopen({str(told)!r}, 'w').write(str(single_file.path()))\n"
    (folder / "site.py").write_text(code)
    for path in (folder, folder / "site.py"):
        path.chmod(0o755)
    assert run("--checks", str(folder), "--text", "doctor").returncode == 0
    assert told.read_text() == str(pyz)


def test_it_starts_itself_to_read_what_was_recorded(run):
    run("--version")
    (unpacked,) = (run.private / f"nodedoctor-{os.geteuid()}").iterdir()
    code = f"import sys, asyncio; sys.path.insert(0, {str(unpacked)!r});"
    code += " from nodedoctor.tui.process import reading\n"
    code += f"print(asyncio.run(reading.document({str(demo('healthy'))!r}))['verdict'])"
    argv = [run.program[-2], "-I", "-c", code]
    done = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("pass\n", "")


def test_its_screen_opens(run):
    env = {"NODEDOCTOR_UNPACK": str(run.private)}
    with terminal("demo", "nvlinks-down", env=env, program=run.program) as screen:
        screen.wait_for(b"NVLinks up")
        screen.type("q")
        assert screen.end() == 2
