"""The Python that trains, asked by real children in real environments."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from fake_python import add_package, add_torch, ask, make_env, observe, site_of
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.probe import ImportedTorch, target_python, target_torch
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.model import Observation, Outcome, Unseen

PROBES = Path(sys.modules["nodedoctor"].__file__ or "").parent / "probes" / "stack"
IN_TARGET = ("target_elf", "target_libraries", "target_python")
NOTHING = Observation("collect-env", Outcome.MISSING)
NO_LIST = Observation("pip-list", Outcome.MISSING)


def target(seen: Observation) -> TargetPython:
    found = TargetPython.parse(seen, NOTHING, NO_LIST)
    assert isinstance(found, TargetPython), found
    return found


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    """An environment with a torch and a few packages."""
    folder = tmp_path_factory.mktemp("env") / "venv"
    site = make_env(folder)
    add_torch(site)
    add_package(site, "nvidia-nccl-cu12", "2.27.5")
    add_package(site, "ray", "2.51.1", ["protobuf>=3.20.3", "click>=7.0; extra == 'default'"], INSTALLER="uv")
    add_package(site, "leaf", "1.0", ["nothing-that-matters"])
    add_package(site, "vllm", "0.11.0", direct_url_json='{"url": "https://user:secret@example.org/vllm"}')
    return folder


def test_everything_about_an_environment(env):
    seen = target(observe("--python", str(env / "bin" / "python")))
    assert seen.path == str(env / "bin" / "python") and seen.prefix == str(env)
    assert seen.explicit and seen.why == "named with --python"
    assert seen.version == ".".join(map(str, sys.version_info[:3]))
    assert str(site_of(env)) in seen.folders
    assert {p.name: p.version for p in seen.packages if p.location == str(site_of(env))} == {
        "leaf": "1.0",
        "nvidia-nccl-cu12": "2.27.5",
        "ray": "2.51.1",
        "torch": "2.9.0",
        "vllm": "0.11.0",
    }
    ray, vllm, leaf = seen.package("ray"), seen.package("vllm"), seen.package("leaf")
    assert ray and vllm and leaf
    assert ray.requires[0] == "protobuf>=3.20.3" and ray.installer == "uv"
    assert leaf.requires == ()  # only what matters is opened
    assert vllm.url == "https://example.org/vllm"
    assert [str(wanted) for wanted in seen.wanted("ray")] == ["protobuf>=3.20.3"]
    torch = Torch.parse(seen)
    assert isinstance(torch, Torch)
    assert (torch.version, torch.cuda, torch.public_version) == ("2.9.0+cu128", "12.8", "2.9.0")
    assert torch.location == str(site_of(env))
    json.dumps(seen.public())


def test_it_runs_by_its_path_too(env):
    done = subprocess.run(
        [env / "bin" / "python", "-I", PROBES / "target_python.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["torch"]["version"] == "2.9.0+cu128"


@pytest.mark.parametrize("name", IN_TARGET)
def test_old_interpreters_can_read_the_program(name):
    ast.parse((PROBES / f"{name}.py").read_text(), feature_version=(3, 7))


@pytest.mark.parametrize("version", ["3.7", "3.8", "3.9", "3.12", "3.13", "3.14"])
def test_other_interpreters_answer(version):
    names = [f"/usr/bin/python{version}", *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    python = next((str(name) for name in names if Path(name).exists()), None)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    seen = target(observe("--python", python))
    assert seen.version.startswith(version + ".") and seen.packages is not None


def test_a_python_too_old_says_so():
    code = "import sys; sys.version_info = (3, 6, 15)\n"
    namespace: dict[str, object] = {}
    sys.path.insert(0, str(PROBES))
    try:
        exec("from find_python import _program", namespace)
    finally:
        sys.path.remove(str(PROBES))
    source = namespace["_program"]({}, False, {})[4]  # type: ignore[operator]
    done = subprocess.run([sys.executable, "-c", code + source], capture_output=True, text=True, check=True)
    seen = Observation("target-python", text=done.stdout, rc=0)
    found = TargetPython.parse(seen, NOTHING, NO_LIST)
    assert isinstance(found, Unseen) and "Python 3.6" in found.note and found.reason == "unparsable"


def test_four_hundred_packages(tmp_path):
    site = make_env(tmp_path / "venv")
    for number in range(400):
        (site / f"package_{number}-{number}.0.dist-info").mkdir()
    seen = target(observe("--python", str(tmp_path / "venv")))
    ours = [package for package in seen.packages if package.location == str(site)]
    assert len(ours) == 400 and seen.package("package-399") is not None


def test_eggs_count_too(tmp_path):
    site = make_env(tmp_path / "venv")
    (site / "ray-2.9.0-py3.8.egg-info").write_text("Name: ray\nVersion: 2.9.0\n")
    (site / "deepspeed.egg-info").mkdir()
    (site / "deepspeed.egg-info" / "PKG-INFO").write_text("Name: deepspeed\nVersion: 0.14.0\n")
    (site / "deepspeed.egg-info" / "requires.txt").write_text("torch\nninja\n\n[dev]\nblack\n")
    seen = target(observe("--python", str(tmp_path / "venv")))
    ray, deepspeed = seen.package("ray"), seen.package("deepspeed")
    assert ray and deepspeed
    assert (ray.version, deepspeed.version, deepspeed.requires) == ("2.9.0", "0.14.0", ("torch", "ninja"))


def test_what_does_not_matter_to_training_tells_its_version_only(tmp_path):
    site = make_env(tmp_path / "venv")
    (site / "web.egg-info").mkdir()
    (site / "web.egg-info" / "PKG-INFO").write_text("Name: web\nVersion: 1.2\nRequires-Dist: flask\n")
    web = target(observe("--python", str(tmp_path / "venv"))).package("web")
    assert web and (web.version, web.requires) == ("1.2", ())


HOSTILE = "import os; open(os.environ['MARK'], 'a').write(__name__)\n"


@pytest.mark.parametrize("how", ["found", "named", "exec"])
def test_nothing_in_the_working_directory_is_ever_run(env, tmp_path, how):
    names = (
        "json",
        "torch",
        "re",
        "glob",
        "os",
        "target_elf",
        "target_owner",
        "sitecustomize",
        "usercustomize",
        "struct",
    )
    for name in names:
        (tmp_path / f"{name}.py").write_text(HOSTILE)
    for name in ("python3", "python", "timeout", "env"):
        (tmp_path / name).write_text("#!/bin/sh\necho ran >> $MARK\n")
        (tmp_path / name).chmod(0o755)
    mark = tmp_path / "mark"
    args = {
        "found": [],
        "named": ["--python", str(env)],
        "exec": ["--", "env", f"PATH={env}/bin:{os.environ['PATH']}"],
    }
    more = {"VIRTUAL_ENV": str(env)} if how == "found" else {}
    told = ask(
        "stack/find_python", *args[how], cwd=tmp_path, env={"MARK": str(mark), "PYTHONPATH": ":.", **more}
    )
    assert told["torch"]["version"] == "2.9.0+cu128"
    assert not mark.exists()


def test_a_relative_path_item_does_not_choose_the_interpreter(tmp_path):
    (tmp_path / "python3").write_text("#!/bin/sh\ntouch $MARK\n")
    (tmp_path / "python3").chmod(0o755)
    mark = tmp_path / "mark"
    path = f".:{os.path.dirname(sys.executable)}:/usr/bin:/bin"
    told = ask("stack/find_python", cwd=tmp_path, env={"PATH": path, "MARK": str(mark)})
    assert told["executable"].startswith(os.path.dirname(sys.executable)) and not mark.exists()


def test_pythonpath_and_user_site_are_where_training_sees_them(env, tmp_path):
    extra = tmp_path / "extra"
    add_package(extra, "ray", "2.49.0")
    seen = target(observe("--python", str(env), env={"PYTHONPATH": f"{extra}::."}))
    assert [package.version for package in seen.copies("ray")] == ["2.49.0", "2.51.1"]
    assert seen.folders[0] == str(extra) and "" not in seen.folders


def test_the_order_of_candidates(env, tmp_path):
    bare, project = tmp_path / "bare", tmp_path / "project"
    make_env(bare)
    make_env(project / ".venv")
    both = {"VIRTUAL_ENV": str(bare), "CONDA_PREFIX": str(project / ".venv")}
    told = ask("stack/find_python", env=both)
    assert told["prefix"] == str(bare) and told["found"]["why"] == "VIRTUAL_ENV"
    assert told["found"]["others"][0]["why"] == "CONDA_PREFIX"
    told = ask("stack/find_python", env={"CONDA_PREFIX": str(bare)}, cwd=project)
    assert told["found"]["why"] == "CONDA_PREFIX"
    told = ask("stack/find_python", cwd=project)
    assert told["found"]["why"] == ".venv of the working directory" and not told["found"]["explicit"]
    told = ask("stack/find_python", env={"VIRTUAL_ENV": str(bare), "CONDA_PREFIX": str(env)})
    assert told["prefix"] == str(env)  # of two guesses, the one with torch


def test_the_interpreter_of_a_running_process(env):
    code = "import json, mmap, sys; f = open(sys.argv[1]); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)"
    mapped = next(site_of(env).glob("torch/version.py"))
    process = subprocess.Popen(
        [env / "bin" / "python", "-c", f"{code}; print(flush=True); input()", mapped],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        told = ask("stack/find_python", "--pid", f"rank:{process.pid}", "--pid", "raylet:99999999")
    finally:
        process.kill()
        process.wait()
    running = target(Observation("target-python", text=json.dumps(told))).running
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert [(r.role, r.pid, r.prefix, r.python, r.ray) for r in running] == [
        ("rank", process.pid, str(env), minor, "2.51.1")
    ]
    assert told["prefix"] == str(env) and told["found"]["why"] == f"runs rank {process.pid}"


def test_a_process_in_another_container_is_only_named(env):
    command = ["unshare", "--mount", str(env / "bin" / "python"), "-c", "print(flush=True); input()"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            pytest.skip("no mount namespaces for us here")
        told = ask("stack/find_python", "--pid", f"rank:{process.pid}")
    finally:
        process.kill()
        process.wait()
    (other,) = (item for item in told["found"]["others"] if item["why"] == f"runs rank {process.pid}")
    assert other["problem"] == "it runs in another container: reach it with --exec"


def test_an_active_environment_without_an_interpreter_is_named(env, tmp_path):
    told = ask("stack/find_python", env={"VIRTUAL_ENV": str(tmp_path), "CONDA_PREFIX": str(env)})
    assert told["prefix"] == str(env)
    assert told["found"]["others"][0]["problem"] == "there is no interpreter"


def test_what_a_prefix_prints_first_is_passed_over(env, tmp_path):
    prefix = tmp_path / "reach"
    prefix.write_text(f'#!/bin/sh\necho Welcome\nPATH={env}/bin:$PATH exec "$@"\n')
    prefix.chmod(0o755)
    seen = observe("--", str(prefix))
    assert seen.text.startswith("Welcome") and target(seen).prefix == str(env)


def test_a_shim_is_resolved(env, tmp_path):
    shim = tmp_path / "python3"
    shim.write_text(f'#!/bin/sh\nexec {env}/bin/python "$@"\n')
    shim.chmod(0o755)
    told = ask("stack/find_python", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert told["executable"] == str(env / "bin" / "python")
    shim.write_text("#!/bin/sh\necho nothing good\n")
    told = ask("stack/find_python", "--python", str(shim))
    assert "does not lead to an interpreter" in told["error"]["note"]


@pytest.fixture
def pyenv(env, tmp_path):
    """A pyenv of two versions; its program leaves a mark and runs a third."""
    root = tmp_path / "pyenv"
    for version in ("3.8.1", "3.9.1"):
        (root / "versions" / version / "bin").mkdir(parents=True)
        (root / "versions" / version / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
    for folder in ("libexec", "shims", "hooks/version-name"):
        (root / folder).mkdir(parents=True)
    (root / "hooks" / "version-name" / "mine.bash").write_text("")
    run, shim = root / "libexec" / "pyenv", root / "shims" / "python3"
    run.write_text(f'#!/bin/sh\ntouch {root}/was-run\nshift 2\nexec {env}/bin/python "$@"\n')
    lines = ("#!/usr/bin/env bash", "set -e", 'program="${0##*/}"', "", f'export PYENV_ROOT="{root}"')
    shim.write_text("\n".join((*lines, f'exec "{run}" exec "$program" "$@"', "")))
    for file in (run, shim):
        file.chmod(0o755)
    (root / "version").write_text("# global\n\n3.8.1 3.9.1\n")
    return root


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "told, local, version",
    [
        ({}, "", "3.8.1"),  # pyenv's own file
        ({"PYENV_VERSION": "3.9.1:3.8.1"}, "3.8.1", "3.9.1"),
        ({}, "3.9.1\r\n", "3.9.1"),  # .python-version of a folder above
        ({"PYENV_VERSION": "3.9"}, "", None),  # a prefix, which pyenv resolves
        ({"PYENV_VERSION": "system"}, "", None),
        ({"PYENV_VERSION": "../versions/3.9.1"}, "", None),
        ({"PYENV_VERSION": "3.7.7:3.9.1"}, "", None),  # not installed
        ({}, "# nothing\n", None),
        ({"PYENV_DIR": "/"}, "", None),
        ({"PYENV_HOOK_PATH": "/nowhere:{root}/hooks"}, "", None),
    ],
)
def test_a_plain_shim_of_pyenv_is_read_and_any_other_is_run(pyenv, tmp_path, told, local, version):
    below = tmp_path / "job" / "src"
    below.mkdir(parents=True)
    if local:
        (tmp_path / "job" / ".python-version").write_text(local)
    told = {name: value.format(root=pyenv) for name, value in told.items()}
    path = f"{pyenv / 'shims'}:{os.environ['PATH']}"
    seen = ask("stack/find_python", env={"PATH": path, "PWD": str(below), **told}, cwd=below)
    assert (pyenv / "was-run").exists() is (version is None)
    if version:
        assert seen["executable"] == str(pyenv / "versions" / version / "bin" / "python3")


@pytest.mark.skipif(not Path("~/.pyenv/libexec/pyenv").expanduser().exists(), reason="no pyenv in ~/.pyenv")
@pytest.mark.parametrize("version", ["", "3", "system", "3.99.99"])
def test_what_is_read_of_a_shim_is_what_pyenv_says(tmp_path, version):
    shim = Path("~/.pyenv/shims/python3").expanduser()
    code = (
        f"import sys; sys.path.insert(0, {str(PROBES)!r}); from pyenv_shim import behind; "
        f"print(behind({str(shim)!r}, {str(tmp_path)!r}) or '')"
    )
    told = {**os.environ, "PYENV_VERSION": version}
    read = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True)
    argv = [shim.parent.parent / "libexec" / "pyenv", "which", "python3"]
    says = subprocess.run(argv, env=told, cwd=tmp_path, capture_output=True, text=True)
    assert read.stdout.strip() in (says.stdout.strip(), "") and read.returncode == 0


def test_a_prefix_reaches_the_far_side(env, tmp_path):
    log = tmp_path / "log"
    prefix = tmp_path / "reach"
    prefix.write_text(f'#!/bin/sh\necho "$1 $2 $3" > {log}\nPATH={env}/bin:$PATH exec "$@"\n')
    prefix.chmod(0o755)
    told = ask("stack/find_python", "--limit", "7", "--", str(prefix))
    assert told["prefix"] == str(env) and told["found"]["why"] == f"reached with --exec {prefix}"
    assert log.read_text() == "timeout 7 python3\n"
    told = ask("stack/find_python", "--python", str(env / "bin" / "python"), "--", str(prefix))
    assert log.read_text() == f"timeout 10 {env}/bin/python\n" and told["found"]["explicit"]


def test_what_cannot_be_asked_says_why(tmp_path):
    for python in (str(tmp_path / "none"), "no-such-python"):
        found = TargetPython.parse(observe("--python", python), NOTHING, NO_LIST)
        assert isinstance(found, Unseen) and found.reason == "crash" and python in found.note
    found = TargetPython.parse(observe("--", "/no/such/prefix"), NOTHING, NO_LIST)
    assert isinstance(found, Unseen) and "/no/such/prefix" in found.note
    empty = {"PATH": str(tmp_path)}
    told = ask("stack/find_python", env=empty, cwd=tmp_path)
    found = TargetPython.parse(Observation("target-python", text=json.dumps(told)), NOTHING, NO_LIST)
    assert isinstance(found, Unseen) and not found.applies


@pytest.fixture
def elsewhere():
    """A folder that every user may enter; an interpreter that every user may run."""
    python = next((p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if os.path.exists(p)), "")
    if os.geteuid() != 0 or not python:
        pytest.skip("needs root, and a Python that others may run")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        subprocess.run([python, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        yield folder


def chown(folder: Path, uid: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


def test_root_becomes_the_owner_of_the_environment(elsewhere):
    site = next((elsewhere / "venv").glob("lib/python3*/site-packages"))
    mark = elsewhere / "venv" / "mark"
    (site / "spy.pth").write_text(f"import os; open({str(mark)!r}, 'a').write(str(os.geteuid()))\n")
    chown(elsewhere / "venv", 12345)
    told = ask(
        "stack/find_python", "--python", str(elsewhere / "venv"), env={"MY_TOKEN": "secret", "LANG": "C"}
    )
    assert told["uid"] == 12345 and told["owner"] == 12345
    assert not mark.exists()  # nothing of it is run, not even as its owner
    (site / "torch.py").write_text("raise ImportError('no such library')\n")
    told = ask("stack/find_python", "--deep", "--python", str(elsewhere / "venv"))
    assert told["deep"]["error"] == "ImportError: no such library"
    assert set(mark.read_text().split("12345")) == {""}


def test_root_does_not_import_what_belongs_to_others(elsewhere):
    (elsewhere / "theirs").mkdir()
    os.chown(elsewhere / "theirs", 12345, 12345)
    add_torch(elsewhere / "theirs")
    env = {"PYTHONPATH": str(elsewhere / "theirs")}
    seen = observe("--deep", "--python", str(elsewhere / "venv"), env=env)
    found = ImportedTorch.parse(seen)
    assert isinstance(found, Unseen) and found.reason == "denied" and "theirs" in found.note


def test_root_does_not_run_what_others_may_write(elsewhere):
    (elsewhere / "venv" / "lib").chmod(0o777)
    assert ask("stack/find_python", "--python", str(elsewhere / "venv"))["uid"] == 65534


def test_what_nobody_may_run_as_its_owner_is_unknown(elsewhere):
    chown(elsewhere / "venv", 12345)
    elsewhere.chmod(0o700)
    seen = Observation(
        "target-python", text=json.dumps(ask("stack/find_python", "--python", str(elsewhere / "venv")))
    )
    found = TargetPython.parse(seen, NOTHING, NO_LIST)
    assert isinstance(found, Unseen) and found.reason == "denied"


def test_root_does_not_run_a_shim_of_somebody_else(elsewhere):
    shim, mark = elsewhere / "python3", elsewhere / "mark"
    shim.write_text(f"#!/bin/sh\ntouch {mark}\n")
    shim.chmod(0o755)
    os.chown(shim, 12345, 12345)
    told = ask("stack/find_python", env={"PATH": f"{elsewhere}:/usr/bin:/bin"})
    assert told["error"]["reason"] == "none" and not mark.exists()
    assert "another user" in told["found"]["others"][0]["problem"]


def test_a_project_environment_of_somebody_else_is_not_used(elsewhere):
    shutil.move(elsewhere / "venv", elsewhere / ".venv")
    chown(elsewhere / ".venv", 12345)
    told = ask("stack/find_python", cwd=elsewhere, env={"PATH": "/usr/bin:/bin"})
    assert told["executable"] in ("/usr/bin/python3", "/usr/bin/python")
    assert told["found"]["others"][0]["problem"] == "it belongs to uid 12345, not to us"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(), []),
        (Options(python="/opt/env"), ["--python", "/opt/env"]),
        (Options(exec_prefix=("docker", "exec", "x")), ["--limit", "14", "--", "docker", "exec", "x"]),
    ],
)
def test_the_plan(options, words):
    planned = target_python(options, Observation("processes", Outcome.MISSING))
    assert (
        list(planned.argv)[-len(words) :] == words if words else planned.argv[-1].endswith("find_python.py")
    )


def test_the_plan_names_ranks_that_answer():
    rows = [
        {"pid": 7, "program": "python", "environment": {"RANK": "0", "WORLD_SIZE": "2"}},
        {"pid": 8, "program": "python", "environment": {"RANK": "1", "WORLD_SIZE": "2"}, "stuck_at": "maps"},
        {"pid": 9, "program": "raylet"},
    ]
    seen = Observation("processes", text=json.dumps({"processes": rows}))
    assert isinstance(Processes.parse(seen), Processes)
    assert target_python(Options(), seen).argv[-4:] == ("--pid", "rank:7", "--pid", "raylet:9")
    assert "--pid" not in target_python(Options(root="/host"), seen).argv


def test_torch_is_imported_only_when_there_is_time(env):
    told = observe("--python", str(env))
    assert isinstance(target_torch(Options(), told), Observation)
    assert isinstance(target_torch(Options(deep=True), Observation("target-python")), Observation)
    planned = target_torch(Options(deep=True), told)
    assert isinstance(planned, Command) and planned.argv[-1] == str(env / "bin" / "python")


def test_imported_torch_is_asked(env, tmp_path):
    module = tmp_path / "torch"
    module.mkdir()
    (module / "__init__.py").write_text(
        "from types import SimpleNamespace as S\n__version__ = '2.9.0+cu128'\nversion = S(cuda='12.8')\n"
        "def init(): raise RuntimeError('No CUDA GPUs are available')\n"
        "cuda = S(get_arch_list=lambda: ['sm_90'], is_available=lambda: False, device_count=lambda: 0,\n"
        "         nccl=S(version=lambda: (2, 27, 5)), init=init)\n"
    )
    seen = observe("--deep", "--python", str(env), env={"PYTHONPATH": str(tmp_path)})
    found = ImportedTorch.parse(seen)
    assert isinstance(found, ImportedTorch)
    assert found == ImportedTorch(
        "2.9.0+cu128",
        "12.8",
        ("sm_90",),
        ("2", "27", "5"),
        False,
        0,
        "RuntimeError: No CUDA GPUs are available",
    )
    assert isinstance(ImportedTorch.parse(Observation("target-torch", Outcome.SKIPPED)), Unseen)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
KEYS = re.findall(
    r"\w+",
    "executable version torch toolkit libraries found distributions environ error folders owner uid copies "
    "resolved others running name requires reason note home pid cuda archs deep",
)
documents = st.dictionaries(
    st.sampled_from(KEYS),
    json_values | st.dictionaries(st.sampled_from(KEYS), json_values, max_size=5),
    max_size=8,
)


@given(documents.map(json.dumps) | st.text())
def test_any_answer_gives_facts_or_a_reason(text):
    seen = Observation("target-python", text=text)
    found = TargetPython.parse(seen, NOTHING, NO_LIST)
    assert isinstance(found, TargetPython | Unseen)
    assert isinstance(Torch.parse(found), Torch | Unseen)
    assert isinstance(Libraries.parse(seen), Libraries | Unseen)
    assert isinstance(ImportedTorch.parse(seen), ImportedTorch | Unseen)
    if isinstance(found, TargetPython):
        json.dumps(found.public())
