"""Which libnccl torch would load: told from files, compared with what ld.so really does."""

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from examples import examples
from fake_python import add_package, add_torch, compile_library, make_env, make_nccl, observe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.probes.stack.target_elf import arch_list, nccl_version, read_elf

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

ORIGIN_NCCL = "$ORIGIN/../../nvidia/nccl/lib"
TAGS = {"RPATH": "-Wl,--disable-new-dtags", "RUNPATH": "-Wl,--enable-new-dtags"}

# What a process of that environment really maps.
REALLY = """
import ctypes, re, sys
try:
    ctypes.CDLL(sys.argv[1])
except OSError:
    sys.exit()
found = re.search(r"(/\\S*libnccl\\.so\\S*)", open("/proc/self/maps").read())
print(found.group(1) if found else "")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two environments whose torch needs libnccl.so.2 by RPATH and by RUNPATH, and other copies of NCCL."""
    here = tmp_path_factory.mktemp("libraries")
    make_nccl(here / "system" / "libnccl.so.2.18.1", "2.18.1", "12.1")
    (here / "system" / "libnccl.so.2").symlink_to("libnccl.so.2.18.1")
    make_nccl(here / "preload" / "libnccl.so.2", "2.30.7", "13.0")
    for kind, flag in TAGS.items():
        site = make_env(here / kind)
        torch = add_torch(site)
        add_package(site, "nvidia-nccl-cu12", "2.27.5")
        wheel = make_nccl(site / "nvidia" / "nccl" / "lib" / "libnccl.so.2")
        needs = (f"-L{wheel.parent}", "-l:libnccl.so.2", f"-Wl,-rpath,{ORIGIN_NCCL}", flag)
        code = "int ncclGetVersion(void); int cuda(void) { return ncclGetVersion(); }"
        compile_library(torch / "lib" / "libtorch_cuda.so", code, "-Wl,-soname,libtorch_cuda.so", *needs)
        flags = '{"std::string ipc_h" "sm_80 sm_90 sm_100a compute_120", "sm_90", "sm_%d"}'
        compile_library(torch / "lib" / "libtorch_python.so", f"const char *const flags[] = {flags};")
    return here


def libraries(env: Path, **variables: str) -> Libraries:
    found = Libraries.parse(observe("--python", str(env), env=variables))
    assert isinstance(found, Libraries), found
    return found


def site(env: Path) -> Path:
    return next(env.glob("lib/python3*/site-packages"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", TAGS)
@pytest.mark.parametrize(
    ("variables", "wins"),
    [
        ({}, {"RPATH": "wheel", "RUNPATH": "wheel"}),
        ({"LD_LIBRARY_PATH": "{here}/system"}, {"RPATH": "wheel", "RUNPATH": "system"}),
        ({"LD_LIBRARY_PATH": "/nowhere:{here}/system"}, {"RPATH": "wheel", "RUNPATH": "system"}),
        ({"LD_PRELOAD": "{here}/preload/libnccl.so.2"}, {"RPATH": "preload", "RUNPATH": "preload"}),
        (
            {"LD_PRELOAD": "{here}/preload/libnccl.so.2", "LD_LIBRARY_PATH": "{here}/system"},
            {"RPATH": "preload", "RUNPATH": "preload"},
        ),
    ],
)
def test_the_winner_is_the_one_ld_so_takes(folder, kind, variables, wins):
    env = folder / kind
    told = {name: value.format(here=folder) for name, value in variables.items()}
    won = libraries(env, **told).winner("libnccl.so")
    assert won is not None and won[1] is not None
    really = subprocess.run(
        [env / "bin" / "python", "-c", REALLY, site(env) / "torch" / "lib" / "libtorch_cuda.so"],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=True,
    )
    assert os.path.realpath(won[0].path) == really.stdout.strip()
    versions = {"wheel": "2.27.5", "system": "2.18.1", "preload": "2.30.7"}
    rules = {"wheel": f"{kind} of libtorch_cuda.so", "system": "LD_LIBRARY_PATH", "preload": "LD_PRELOAD"}
    assert (won[1].version, won[0].rule) == (versions[wins[kind]], rules[wins[kind]])


def test_every_copy_is_listed_with_its_version_and_place(folder):
    told = {"LD_LIBRARY_PATH": f"{folder}/system", "VLLM_NCCL_SO_PATH": f"{folder}/preload/libnccl.so.2"}
    copies = {copy.version: copy for copy in libraries(folder / "RPATH", **told).family("nccl")}
    assert copies["2.27.5"].cuda == "12.9" and set(copies["2.27.5"].found) >= {"torch", "wheel"}
    assert copies["2.18.1"].found == ("LD_LIBRARY_PATH",)
    assert copies["2.18.1"].path.endswith("libnccl.so.2") and copies["2.18.1"].real.endswith("2.18.1")
    assert copies["2.30.7"].found == ("vLLM",) and copies["2.30.7"].soname == "libnccl.so.2"


def test_no_copy_at_all(folder, tmp_path):
    env = tmp_path / "env"
    shutil.copytree(folder / "RUNPATH", env, symlinks=True)
    shutil.rmtree(site(env) / "nvidia")
    won = libraries(env).winner("libnccl.so")
    if won is not None and won[0].rule in ("ld.so.cache", "default folders"):
        pytest.skip("this machine has an NCCL of its own")
    assert won is not None and won[0].path == "" and won[1] is None


def test_what_ld_so_skips_is_skipped(folder, tmp_path):
    (tmp_path / "libnccl.so.2").write_text("not a library")
    (tmp_path / "libcudart.so.12").mkdir()
    os.mkfifo(tmp_path / "libcudnn.so.9")
    foreign = bytearray((folder / "preload" / "libnccl.so.2").read_bytes())
    foreign[18:20] = struct.pack("<H", 0x2B)  # SPARC
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "libnccl.so.2").write_bytes(foreign)
    found = libraries(folder / "RUNPATH", LD_LIBRARY_PATH=f"{tmp_path}:{tmp_path}/other")
    won = found.winner("libnccl.so")
    assert won is not None and won[1] is not None and won[1].version == "2.27.5"


def test_nccl_linked_into_torch(tmp_path):
    torch = add_torch(make_env(tmp_path / "env"), "1.13.1+cu117", "11.7", requires=())
    code = 'const char *const banner = "NCCL version 2.14.3+cuda11.7";'
    compile_library(torch / "lib" / "libtorch_cuda.so", code)
    found = libraries(tmp_path / "env")
    assert found.nccl_built_in == "2.14.3" and found.winner("libnccl.so") is None


def test_architectures_are_read_from_the_library(folder):
    library = site(folder / "RPATH") / "torch" / "lib" / "libtorch_python.so"
    assert arch_list(str(library)) == ["sm_80", "sm_90", "sm_100a", "compute_120"]
    assert arch_list("/nowhere") == [] and arch_list(sys.executable) == []


def test_without_section_headers_the_version_is_still_found(folder, tmp_path):
    data = bytearray((folder / "preload" / "libnccl.so.2").read_bytes())
    data[40:48] = bytes(8)  # e_shoff
    stripped = tmp_path / "libnccl.so.2"
    stripped.write_bytes(data)
    elf = read_elf(str(stripped))
    assert elf is not None and elf.soname == "libnccl.so.2" and nccl_version(elf) == ("2.30.7", "13.0")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150))
@given(st.data())
def test_a_damaged_library_never_raises(folder, tmp_path, data):
    whole = (folder / "preload" / "libnccl.so.2").read_bytes()
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)), "length")])
    headers = [*range(64), *range(64, 700)]
    for at in data.draw(st.lists(st.sampled_from(headers), max_size=6), "where"):
        if at < len(damaged):
            damaged[at] = data.draw(st.integers(0, 255), "byte")
    file = tmp_path / "libnccl.so.2"
    file.write_bytes(damaged)
    elf = read_elf(str(file))
    assert elf is None or isinstance(nccl_version(elf), tuple)
    assert isinstance(arch_list(str(file)), list)


def test_the_toolkit_is_the_one_extensions_would_use(folder, tmp_path):
    env = folder / "RPATH"

    def version(**variables: str) -> tuple[str, str, str]:
        told = json.loads(observe("--python", str(env), env=variables).text)["toolkit"]
        return told["why"], told["home"], told["version"]

    home = tmp_path / "cuda-12.9"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").touch(0o755)
    (home / "version.json").write_text(
        '{"cuda": {"version": "12.9.1"}, "cuda_nvcc": {"name": "x", "version": "12.9.86"}}'
    )
    assert version(CUDA_HOME=str(home)) == ("CUDA_HOME", str(home), "12.9.86")
    wrapper = tmp_path / "bin" / "nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {home}/bin/nvcc "$@"\n')
    wrapper.chmod(0o755)
    assert version(PATH=f"{wrapper.parent}:/usr/bin:/bin") == ("nvcc on PATH", str(home), "12.9.86")
    (home / "version.json").unlink()
    (home / "include").mkdir()
    (home / "include" / "cuda.h").write_text("#define CUDA_VERSION 12090\n")
    assert version(CUDA_PATH=str(home)) == ("CUDA_PATH", str(home), "12.9")
