"""Packages around torch, what ranks have mapped, what is known against an NCCL, and Lambda Stack."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from asking import ask, brief, judge, said, write
from fake_python import compile_library, make_nccl
from hypothesis import given
from hypothesis import strategies as st
from in_turn import in_turn
from test_stack_checks import H100, TORCH, gpus, target

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.packages import DriverPackage, DriverPackages
from nodedoctor.facts.host.limits import Bound, Limits
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.facts.host.system_packages import SystemPackages, system_packages
from nodedoctor.facts.stack.interpreter import TargetPython, Toolkit
from nodedoctor.facts.stack.libraries import Libraries, LibraryCopy, Resolved
from nodedoctor.facts.stack.loaded_nccl import LoadedNccl, Mapped, mapped_nccl
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.probes.stack.target_elf import symbols


def having(requires: dict[str, tuple[str, ...]], *packages: str, **more: object) -> TargetPython:
    """A Python where each package named has the requirements given."""
    made = target(*packages, **more)
    listed = [replace(p, requires=requires.get(p.name, ()), installer="pip") for p in made.packages]
    return replace(made, packages=tuple(listed))


def statuses(check: str, *facts: object) -> list[str]:
    return [status for status, _ in brief(judge(check, *facts))]


@in_turn(
    ("check", "packages", "requires", "expected"),
    [
        ("torchvision", ["torchvision 0.24.0"], {"torchvision": ("torch==2.9.0",)}, ["pass"]),
        ("torchvision", ["torchvision 0.23.0"], {"torchvision": ("torch==2.8.0",)}, ["fail"]),
        ("torchvision", ["torchvision 0.24.0+cu128"], {"torchvision": ("torch==2.9.0",)}, ["pass"]),
        ("torchvision", ["torchvision 0.24.0+cu126"], {"torchvision": ("torch==2.9.0",)}, ["pass", "warn"]),
        ("torchvision", ["torchvision 0.24.0"], {}, ["pass"]),  # by the table of releases
        ("torchvision", ["torchvision 0.20.1"], {}, ["fail"]),
        ("torchvision", [], {}, ["skip"]),
        (
            "torchvision",
            ["torchvision 9.9.0"],
            {"torchvision": ("torch>=2.9",)},
            ["pass"],
        ),  # newer than tables
        ("torchvision", ["torchvision 9.9.0"], {"torchvision": ("numpy",)}, ["pass"]),
        ("torchaudio", ["torchaudio 2.9.0"], {"torchaudio": ("torch==2.9.0",)}, ["pass"]),
        ("torchaudio", ["torchaudio 2.5.1"], {}, ["fail"]),
        ("torchaudio", ["torchaudio 2.11.0"], {}, ["pass"]),  # needs no particular torch
        ("vllm", ["vllm 0.11.2"], {"vllm": ("torch==2.9.0",)}, ["pass"]),
        ("vllm", ["vllm 0.10.2"], {"vllm": ("torch==2.8.0",)}, ["fail"]),
        ("vllm", ["vllm 0.10.2"], {}, ["fail"]),
        ("vllm", ["vllm 0.99.0"], {}, ["unknown"]),
        ("xformers", ["xformers 0.0.32"], {"xformers": ("torch==2.8.0",)}, ["fail"]),
        ("bitsandbytes", ["bitsandbytes 0.48.0"], {"bitsandbytes": ("torch<3,>=2.3",)}, ["pass"]),
        ("bitsandbytes", ["bitsandbytes 0.48.0"], {"bitsandbytes": ("torch<2.9",)}, ["fail"]),
        ("deepspeed", ["deepspeed 0.18.0"], {"deepspeed": ("torch",)}, ["pass"]),
        ("triton", ["torch 2.9.0", "triton 3.5.0"], {"torch": ("triton==3.5.0",)}, ["pass"]),
        ("triton", ["torch 2.9.0", "triton 3.2.0"], {"torch": ("triton==3.5.0",)}, ["fail"]),
        ("triton", ["torch 2.9.0", "triton 3.6.0"], {"torch": ("triton==3.5.0",)}, ["warn"]),
        ("triton", ["torch 2.9.0"], {"torch": ("triton==3.5.0",)}, ["fail"]),
        (
            "cudnn",
            ["torch 2.9.0", "nvidia-cudnn-cu12 9.10.2.21"],
            {"torch": ("nvidia-cudnn-cu12==9.10.2.21",)},
            ["pass"],
        ),
        (
            "cudnn",
            ["torch 2.9.0", "nvidia-cudnn-cu12 9.1.0.70"],
            {"torch": ("nvidia-cudnn-cu12==9.10.2.21",)},
            ["fail"],
        ),
        ("flash-attn", ["flash-attn 2.8.3+cu12torch2.9cxx11abiTRUE"], {}, ["pass"]),
        ("flash-attn", ["flash-attn 2.8.3+cu12torch2.8cxx11abiTRUE"], {}, ["fail"]),
        ("flash-attn", ["flash-attn 2.8.3+cu12torch2.9cxx11abiFALSE"], {}, ["fail"]),
        ("flash-attn", ["flash-attn 2.8.3+cu13torch2.9cxx11abiTRUE"], {}, ["fail"]),
        ("flash-attn", ["flash-attn 2.8.3"], {}, ["note"]),
        ("transformer-engine", ["transformer-engine 2.9.0", "transformer-engine-cu12 2.9.0"], {}, ["pass"]),
        ("transformer-engine", ["transformer-engine 2.9.0", "transformer-engine-cu12 2.8.0"], {}, ["fail"]),
        ("transformer-engine", ["transformer-engine 2.9.0", "transformer-engine-cu13 2.9.0"], {}, ["fail"]),
        (
            "transformer-engine",
            [f"transformer-engine{tail} 2.9.0" for tail in ("", "-cu12", "-cu13")],
            {},
            ["warn"],
        ),
        ("metadata", ["ray 2.51.1", "click 8.1.0"], {"ray": ("click!=8.3.0,>=7.0",)}, ["pass"]),
        ("metadata", ["vllm 0.11.0", "numpy 1.0"], {"vllm": ("numpy>=2",)}, ["warn", "pass"]),
        ("metadata", ["vllm 0.11.0"], {"vllm": ("xgrammar==0.1",)}, ["warn", "pass"]),
        ("metadata", ["vllm 0.11.0"], {"vllm": ("xgrammar==0.1; extra == 'x'",)}, ["pass"]),
        ("metadata", ["numpy 1.0"], {}, ["skip"]),
        ("ray-protobuf", ["ray 2.51.1", "protobuf 6.0"], {"ray": ("protobuf>=3.20.3",)}, ["pass"]),
        ("ray-protobuf", ["ray 2.51.1", "protobuf 3.19.0"], {"ray": ("protobuf>=3.20.3",)}, ["fail"]),
        ("ray-protobuf", ["ray 2.51.1", "protobuf 3.19.0", "click 8.3.0"], {}, ["fail", "fail"]),  # the table
        ("ray-protobuf", ["ray 99.0.0", "protobuf 3.19.0"], {"ray": ("protobuf>=3",)}, ["pass"]),
        ("ray-protobuf", ["numpy 1.0"], {}, ["skip"]),
    ],
)
def test_packages(check, packages, requires, expected):
    made = having(requires, *packages)
    facts = (made,) if check == "ray-protobuf" else (made, TORCH)
    findings = judge(f"stack.{check}", *facts)
    assert [status for status, _ in brief(findings)] == expected, findings
    for finding in findings:
        if finding.status.value == "fail":
            assert finding.fix is not None and finding.fix.commands


RELEASES = st.sampled_from(["2.5.1", "2.5.1+cu124", "2.10.0", "2.6.0+rocm6.2.4"])
BUILDS = st.sampled_from(["2.5.0a0+e000cf0ad9.nv24.10", "2.6.0.dev20241112+cu124", "2.7.0a0", "2.6.0rc1"])
OLD = st.sampled_from(["0.16.0a0", "0.17.0a0+09e2690", "0.0.0"])
FITTING = st.sampled_from(["0.18.0", "2.5.0", "0.16.2+cpu", "2.6.0.dev20241111", "1.0.0"])
COMPILED = st.sets(st.sampled_from(["torchtext", "torch-tensorrt"]), min_size=1)


@given(RELEASES | BUILDS, COMPILED, OLD | FITTING)
def test_what_an_image_built_beside_a_release_of_torch_is_told_once(
    torch: str, names: set[str], version: str
):
    made = target(f"torch {torch}", *(f"{name} {version}" for name in names))
    built_elsewhere = version in ("0.16.0a0", "0.17.0a0+09e2690", "0.0.0")
    is_release = torch in ("2.5.1", "2.5.1+cu124", "2.10.0", "2.6.0+rocm6.2.4")
    findings = judge("stack.metadata", made, replace(TORCH, version=torch))
    warned = [found for found in findings if found.status.value == "warn"]
    assert len(warned) == (built_elsewhere and is_release)
    assert all(f"{name} {version}" in warned[0].summary for name in names if warned)


def test_a_conflict_names_both_versions_and_the_command():
    made = having({"vllm": ("torch==2.8.0",)}, "vllm 0.10.2")
    found = judge("stack.vllm", made, TORCH)[0]
    assert "torch==2.8.0" in found.summary and "2.9.0+cu128" in found.summary
    assert found.fix is not None
    assert any("vllm==0." in command for command in found.fix.commands)
    assert any("requires[^torch==2.8.0" in evidence.path for evidence in found.evidence)


@pytest.mark.parametrize(
    ("cuda", "tool", "expected"),
    [
        ("12.8", "12.8.93", "pass"),
        ("12.8", "12.4.1", "note"),
        ("12.8", "11.8", "warn"),
        ("13.0", "12.8", "warn"),
        ("12.8", "", "unknown"),
        ("", "12.8", "skip"),
    ],
)
def test_toolkit(cuda, tool, expected):
    made = target(toolkit=Toolkit("/usr/local/cuda", "CUDA_HOME", tool))
    assert statuses("stack.toolkit", made, Torch("2.9.0", cuda)) == [expected]


def test_a_toolkit_nobody_pointed_at_does_no_harm():
    tool = Toolkit("/usr/local/cuda", "default", "13.0")
    assert statuses("stack.toolkit", target("torch 2.9.0", toolkit=tool), TORCH) == ["note"]
    assert statuses("stack.toolkit", target("deepspeed 0.18.0", toolkit=tool), TORCH) == ["warn"]


def test_deepspeed_wants_nvcc_of_torchs_cuda():
    made = having(
        {"deepspeed": ("torch",)}, "deepspeed 0.18.0", toolkit=Toolkit("/c", "nvcc on PATH", "13.0")
    )
    found = judge("stack.deepspeed", made, TORCH)
    assert [status for status, _ in brief(found)] == ["pass", "warn"]
    assert "nvcc is 13.0" in found[1].summary


def winning(version: str, missing: tuple[str, ...] | None = ()) -> Libraries:
    copy = LibraryCopy("nccl", "/opt/old/libnccl.so.2", "/opt/old/libnccl.so.2", "libnccl.so.2", version)
    return Libraries(
        (copy,), (Resolved("libnccl.so.2", copy.path, copy.real, "LD_LIBRARY_PATH"),), "", missing
    )


def test_undefined_symbols():
    assert statuses("stack.undefined-symbol", target(), TORCH, winning("2.27.5")) == ["pass"]
    assert statuses("stack.undefined-symbol", target(), TORCH) == ["unknown"]
    found = judge("stack.undefined-symbol", target(), TORCH, winning("2.18.1", ("ncclCommSplit",)))[0]
    assert found.status.value == "fail"
    assert "undefined symbol: ncclCommSplit" in found.summary
    assert found.fix is not None and found.fix.commands == ("unset LD_LIBRARY_PATH",)


def test_symbols_are_read_from_real_objects(tmp_path: Path):
    code = "int ncclOld(void); int ncclNew(void); int f(void) { return ncclOld() + ncclNew(); }"
    needs = compile_library(tmp_path / "libtorch_cuda.so", code)
    has = compile_library(tmp_path / "libnccl.so.2", "int ncclOld(void) { return 1; }")
    assert symbols(str(needs), b"nccl", defined=False) == {"ncclOld", "ncclNew"}
    own = symbols(str(has), b"nccl", defined=True)
    assert own == {"ncclOld"}


@given(st.binary(max_size=200))
def test_any_file_is_no_trouble(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.so"
    path.write_bytes(b"\x7fELF\x02\x01" + data)
    found = symbols(str(path), b"", defined=True)
    assert found is None or isinstance(found, set)


def process(pid: int, *libraries: str, **more: object) -> Process:
    made = Process(pid, program="python3", script="train.py", role="rank", rank=pid, libraries=libraries)
    return replace(made, **more)  # type: ignore[arg-type]


def test_two_processes_that_map_different_libnccl(tmp_path: Path):
    """Real processes, real memory maps, real files."""
    from nodedoctor.facts.host.processes import running_processes

    files = {
        "2.27.5": make_nccl(tmp_path / "new" / "libnccl.so.2", "2.27.5"),
        "2.18.1": make_nccl(tmp_path / "old" / "libnccl.so.2", "2.18.1"),
    }
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('up', flush=True); sys.stdin.read()"
    started = []
    try:
        for rank, path in enumerate(files.values()):
            env = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "::1",
            }
            pipe = subprocess.PIPE
            argv = [sys.executable, "-c", code, str(path)]
            started.append(subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe))
        for one in started:
            assert one.stdout is not None and one.stdout.readline() == b"up\n"
        processes = ask(running_processes, name="processes")
        mapped = ask(mapped_nccl, processes, name="mapped-nccl")
    finally:
        for one in started:
            one.kill()
            one.communicate()
    seen = Processes.parse(processes)
    assert isinstance(seen, Processes)
    ours = {one.pid for one in started}
    loaded = LoadedNccl.parse(mapped, replace(seen, all=tuple(p for p in seen.all if p.pid in ours)))
    assert isinstance(loaded, LoadedNccl)
    assert loaded.versions == ("2.18.1", "2.27.5")
    found = judge("stack.nccl-loaded", loaded)
    assert [status for status, _ in brief(found)] == ["fail"]
    for version in files:
        assert f"NCCL {version} in rank" in found[0].summary


def test_equal_ranks_are_fine():
    seen = LoadedNccl(tuple(Mapped(pid, f"rank {pid}", "/v/libnccl.so.2", "2.27.5") for pid in range(8)))
    found = judge("stack.nccl-loaded", seen)
    assert brief(found) == [("pass", "ranks")]
    assert "all 8 processes" in found[0].summary
    told = judge("stack.nccl-loaded", seen, winning("2.18.1"))
    assert brief(told)[-1] == ("note", "library:libnccl")


def test_two_in_one_process_and_unread_ones():
    twice = LoadedNccl(tuple(Mapped(1, "rank 0", f"/{v}/libnccl.so.2", v) for v in ("2.18.1", "2.20.5")))
    assert statuses("stack.nccl-loaded", twice) == ["warn"]
    denied = LoadedNccl((), ("rank 0 (train.py, pid 7): EACCES",))
    assert statuses("stack.nccl-loaded", denied) == ["unknown"]
    assert statuses("stack.nccl-loaded", LoadedNccl()) == ["skip"]


def test_nothing_mapped_is_not_asked():
    nobody = Observation("processes", text='{"processes": []}')
    planned = mapped_nccl(Options(), nobody)
    assert isinstance(planned, Observation) and planned.outcome is Outcome.SKIPPED


@given(st.text() | st.just('{"mapped": [{"pid": 1, "path": null}, 3]}'))
def test_any_answer_about_mapped_files(text):
    made = LoadedNccl.parse(said(text), Processes((process(1, "/a/libnccl.so.2.18.1"),)))
    assert isinstance(made, LoadedNccl)
    assert made.versions == ("2.18.1",)  # by its name
    assert isinstance(LoadedNccl.parse(said(text), Unseen.skip("")), Unseen)


@pytest.mark.parametrize(
    ("version", "facts", "expected"),
    [
        ("2.27.5", [gpus(H100, cc="9.0")], ["note"]),  # FP8 kernels: fails at start with a message, if at all
        ("2.27.7", [gpus(H100, cc="9.0")], ["pass"]),
        ("2.18.1", [gpus(H100, cc="9.0")], ["warn"]),  # wrong data
        ("2.18.3", [gpus(H100, cc="9.0")], ["pass"]),
        ("2.21.5", [gpus("NVIDIA B200", cc="10.0")], ["warn"]),
        ("2.27.7", [Limits(rlimits={"stack_bytes": Bound(None, None)})], ["warn"]),
        ("2.27.7", [Limits(rlimits={"stack_bytes": Bound(8388608, None)})], ["pass"]),
        ("9.9.9", [gpus(H100, cc="9.0")], ["pass"]),
    ],
)
def test_known_bad(version, facts, expected):
    found = judge("stack.nccl-known-bad", target(), TORCH, winning(version), *facts)
    assert [status for status, _ in brief(found)] == expected, found


def test_known_bad_over_several_nodes():
    ranks = Processes(tuple(process(i, world_size=16, rank=i) for i in range(8)))
    found = judge("stack.nccl-known-bad", target(), TORCH, winning("2.28.3"), ranks)
    assert ("warn", "nccl:proxy-order") in brief(found)
    assert found[0].fix is not None and "2.28.9" in found[0].fix.text


def test_lambda_stack(tmp_path: Path):
    write(
        tmp_path / "etc/apt/sources.list.d/lambda-repository.list",
        "deb http://archive.lambdalabs.com/ubuntu jammy main\n",
    )
    write(tmp_path / "var/lib/dpkg/info/lambda-stack-cuda.list")
    seen = SystemPackages.parse(ask(system_packages, root=tmp_path))
    assert isinstance(seen, SystemPackages)
    assert seen.lambda_stack[0] == "lambda-stack-cuda is installed"
    apt = "/usr/lib/python3/dist-packages"
    both = target("torch 2.9.0", "torch 2.7.0")
    both = replace(both, packages=(both.packages[0], replace(both.packages[1], location=apt)))
    assert statuses("stack.lambda", seen, both, TORCH) == ["warn"]
    assert statuses("stack.lambda", seen, target("torch 2.9.0"), TORCH) == ["note"]
    loose = DriverPackages((DriverPackage("nvidia-driver-570", "570.86.10", "570.86.10", held=False),))
    on = Driver(loaded=True, unattended_upgrades=True)
    found = judge("stack.lambda", seen, loose, on)
    assert brief(found) == [("warn", "driver-packages")]
    assert found[0].fix is not None and "apt-mark hold nvidia-driver-570" in found[0].fix.commands[0]
    assert statuses("stack.lambda", SystemPackages()) == ["skip"]


def test_the_child_reads_a_file_once_per_root(tmp_path: Path):
    path = make_nccl(tmp_path / "libnccl.so.2", "2.20.5")
    words = [f"{os.getpid()}:{path}", f"{os.getpid()}:/none/libnccl.so.2"]
    done = subprocess.run([*child("stack/mapped_nccl"), *words], capture_output=True, text=True, check=True)
    assert '"version": "2.20.5"' in done.stdout and '"version": ""' in done.stdout
    assert isinstance(mapped_nccl(Options(), said('{"processes": []}')), (Command, Observation))
