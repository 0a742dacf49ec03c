"""Software that must fit together: packages, libraries, driver and GPUs in, findings out."""

from dataclasses import replace

import pytest
from asking import brief, judge

from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.facts.stack.interpreter import OtherPython, RunningPython, TargetPython
from nodedoctor.facts.stack.libraries import Libraries, LibraryCopy, Resolved
from nodedoctor.facts.stack.packages import Package
from nodedoctor.facts.stack.probe import ImportedTorch
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.model import Expect

SITE = "/venv/lib/python3.11/site-packages"
ARCHS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
H100, L4, V100, B200, B300 = (
    "NVIDIA H100 80GB HBM3",
    "NVIDIA L4",
    "Tesla V100-SXM2-16GB",
    "NVIDIA B200",
    "NVIDIA B300",
)
RTX = "NVIDIA GeForce RTX 4090"
NO_NVIDIA = (Pci(()), Driver(loaded=False))


def target(*packages: str, requires: tuple[str, ...] = (), **more: object) -> TargetPython:
    """A Python with packages given as `name version`; torch requires what `requires` says."""
    made = [Package(*text.split(" "), location=SITE) for text in packages]
    made = [replace(package, requires=requires) if package.name == "torch" else package for package in made]
    base = TargetPython(
        "target-python", "/venv/bin/python", why="VIRTUAL_ENV", version="3.11.9", packages=tuple(made)
    )
    return replace(base, **more)  # type: ignore[arg-type]


TORCH = Torch("2.9.0+cu128", "12.8", location=SITE, archs=ARCHS)
PIN = ("nvidia-nccl-cu12==2.27.5; platform_system == 'Linux'",)


def gpus(*names: str, driver: str = "570.86.10", cuda: str = "12.8", cc: str | None = None) -> Gpus:
    shown = tuple(Gpu(index, name=name, compute_capability=cc) for index, name in enumerate(names))
    return Gpus("nvml", driver_version=driver, cuda_version=cuda, counted=len(shown), gpus=shown)


def cuda_libs(libcuda: str, version: str) -> Libraries:
    library = LibraryCopy("cuda", libcuda, libcuda, "libcuda.so.1", version)
    return Libraries((library,), (Resolved("libcuda.so.1", libcuda, libcuda, "LD_LIBRARY_PATH"),))


COMPAT = cuda_libs("/usr/local/cuda/compat/libcuda.so.1", "580.65.06")


@pytest.mark.parametrize(
    ("torch", "driver", "cuda", "expected"),
    [
        ("2.9.0+cu128 12.8", "570.86.10", "12.8", "pass"),
        ("2.9.0+cu128 12.8", "580.95.05", "13.0", "pass"),
        ("2.6.0+cu124 12.4", "575.51.03", "12.9", "pass"),
        ("2.9.0+cu128 12.8", "535.129.03", "12.2", "note"),  # one major: minor-version compatibility
        ("2.15.0+cu132 13.2", "580.95.05", "13.0", "note"),
        ("2.14.0+cu130 13.0", "570.86.10", "12.8", "fail"),
        ("2.14.0+cu130 13.0", "560.35.03", "12.6", "fail"),
        ("2.5.1+cu121 12.1", "470.82.01", "11.4", "fail"),
        # newer than every table: the driver's own word counts
        ("9.9.0+cu150 15.0", "999.10.01", "15.2", "pass"),
        ("9.9.0+cu153 15.3", "999.10.01", "15.2", "note"),
        ("9.9.0+cu160 16.0", "999.10.01", "15.2", "fail"),
        ("9.9.0+cu160 16.0", "570.86.10", "12.8", "fail"),
        ("2.9.0+cu128 12.8", "not-a-version", "", "unknown"),
    ],
)
def test_torch_and_driver(torch, driver, cuda, expected):
    built = Torch(*torch.split(" "))
    found = judge("stack.torch-driver", target(), built, gpus(H100, driver=driver, cuda=cuda))
    assert [status for status, _ in brief(found)] == [expected]
    if expected == "fail":
        assert built.version in found[0].summary and driver in found[0].summary and found[0].fix


def test_a_torch_for_the_driver_is_proposed():
    found = judge("stack.torch-driver", target(), Torch("2.14.0+cu130", "13.0"), gpus(H100))
    assert found[0].fix is not None
    assert found[0].fix.commands == (
        "/venv/bin/python -m pip install torch==2.14.0+cu126 --index-url https://download.pytorch.org/whl/cu126",
    )
    assert "580" in found[0].fix.text


@pytest.mark.parametrize(
    ("gpu", "driver", "libraries", "expected"),
    [
        (H100, "535.129.03", COMPAT, "note"),
        (H100, "535.129.03", cuda_libs("/usr/lib/libcuda.so.1", "535.129.03"), "fail"),
        (RTX, "535.129.03", COMPAT, "fail"),  # forward compatibility is for data-centre boards
        (H100, "560.35.03", COMPAT, "fail"),  # a branch NVIDIA does not name for it
    ],
)
def test_forward_compatibility(gpu, driver, libraries, expected):
    found = judge(
        "stack.torch-driver",
        target(),
        Torch("2.14.0+cu130", "13.0"),
        gpus(gpu, driver=driver, cuda="12.2"),
        libraries,
    )
    assert [status for status, _ in brief(found)] == [expected]


@pytest.mark.parametrize(
    ("torch", "facts", "expected"),
    [
        (Torch("2.9.0+cpu", ""), [gpus(H100)], "fail"),
        (Torch("2.9.0+cpu", ""), [Driver(loaded=True, version="570.86.10")], "fail"),
        (Torch("2.9.0+cpu", ""), NO_NVIDIA, "skip"),
        (Torch("2.9.0+cpu", ""), [], "unknown"),
        (Torch("2.9.0+rocm6.4", "", hip="6.4"), [gpus(H100)], "fail"),
        (Torch("2.9.0", None), [gpus(H100)], "unknown"),
        (TORCH, [gpus(H100, driver="")], "unknown"),
        (TORCH, NO_NVIDIA, "skip"),
    ],
)
def test_a_torch_without_cuda(torch, facts, expected):
    assert [status for status, _ in brief(judge("stack.torch-driver", target(), torch, *facts))] == [expected]


@pytest.mark.parametrize(
    ("expect", "explicit", "status"),
    [
        ({}, False, "skip"),
        ({}, True, "fail"),
        ({"torch": "yes"}, False, "fail"),
        ({"torch": "2.9"}, False, "fail"),
    ],
)
def test_no_torch(expect, explicit, status):
    other = OtherPython("/opt/train/bin/python", "runs rank 7", "2.9.0+cu128")
    python = target(explicit=explicit, others=(other,))
    found = judge("stack.torch-driver", python, gpus(H100), Expect(expect))
    assert [status for status, _ in brief(found)] == [status]
    assert "/venv/bin/python" in found[0].summary
    assert status == "fail" or "/opt/train/bin/python has torch 2.9.0+cu128" in found[0].summary


@pytest.mark.parametrize(
    ("version", "driver", "tag"),
    [
        ("2.5.1+cpu", "570.86.10", "2.5.1+cu124"),
        ("2.5.1+cpu", "470.82.01", "2.5.1+cu118"),
        ("9.9.0+cpu", "570.86.10", ""),
    ],
)
def test_a_build_with_cuda_is_proposed(version, driver, tag):
    (found,) = judge("stack.torch-driver", target(), Torch(version, ""), gpus(H100, driver=driver))
    assert found.fix is not None
    assert [f"torch=={tag} " in command for command in found.fix.commands] == ([True] if tag else [])


def test_what_torch_itself_says():
    asked = ImportedTorch(
        "2.9.0+cu128", "12.8", error="RuntimeError: Unexpected error from cudaGetDeviceCount()"
    )
    found = judge("stack.torch-driver", target(), TORCH, gpus(H100), asked)
    assert brief(found) == [("pass", "package:torch"), ("fail", "torch.cuda")]
    pasted = target(driver_version="570.86.10", cuda_available=False)
    assert brief(judge("stack.torch-driver", pasted, TORCH)) == [
        ("pass", "package:torch"),
        ("fail", "torch.cuda"),
    ]


@pytest.mark.parametrize(
    ("torch", "gpu", "cc", "expected"),
    [
        (TORCH, H100, "9.0", "pass"),
        (TORCH, L4, "8.9", "pass"),  # runs sm_86 code
        (TORCH, B300, "10.3", "pass"),  # runs sm_100 code
        (TORCH, H100, None, "pass"),  # known by its name
        (TORCH, "NVIDIA Nobody Knows", None, "unknown"),
        (replace(TORCH, archs=("sm_75", "sm_80")), V100, "7.0", "fail"),
        (replace(TORCH, archs=("sm_80", "sm_90")), B200, "10.0", "fail"),
        (replace(TORCH, archs=("sm_80", "sm_90", "compute_90")), B200, "10.0", "warn"),  # PTX
        (replace(TORCH, archs=("sm_90a",)), H100, "9.0", "pass"),
        (replace(TORCH, archs=("sm_100a",)), B300, "10.3", "fail"),
        (replace(TORCH, archs=("sm_100f",)), B300, "10.3", "pass"),
        (Torch("2.5.1+cu124", "12.4"), B200, "10.0", "fail"),  # from the table of wheels
        (Torch("2.5.1+cu124", "12.4"), H100, "9.0", "pass"),
        (Torch("2.5.1+cu999", "99.9"), H100, "9.0", "unknown"),  # no such official wheel
        (Torch("99.0+cu150", "15.0"), H100, "9.0", "unknown"),
        (Torch("99.0+cu150", "15.0", archs=("sm_90", "sm_150")), "NVIDIA Z9", "16.0", "warn"),
        (Torch("2.9.0+cpu", ""), H100, "9.0", "skip"),
    ],
)
def test_torch_and_architectures(torch, gpu, cc, expected):
    found = judge("stack.torch-arch", target(), torch, gpus(gpu, cc=cc))
    assert [status for status, _ in brief(found)] == [expected], found


def test_architectures_of_a_mixed_node():
    torch = replace(TORCH, archs=("sm_80", "sm_90"))
    found = judge("stack.torch-arch", target(), torch, gpus(H100, H100, V100, V100))
    assert brief(found) == [("pass", "gpu:0"), ("fail", "gpu:2")]
    assert brief(judge("stack.torch-arch", target(), torch)) == [("unknown", "")]
    assert brief(judge("stack.torch-arch", target(), torch, *NO_NVIDIA)) == [("skip", "")]
    assert brief(judge("stack.torch-arch", target(gpu_names=(H100, H100)), torch)) == [
        ("pass", "package:torch")
    ]


def test_architectures_that_torch_itself_names():
    asked = ImportedTorch(archs=("sm_80",))
    assert brief(judge("stack.torch-arch", target(), TORCH, gpus(H100), asked)) == [("fail", "package:torch")]


@pytest.mark.parametrize(
    ("version", "gpu", "command"),
    [
        ("2.14.0+cu130", V100, "torch==2.14.0+cu126 --index-url https://download.pytorch.org/whl/cu126"),
        ("2.5.1+cu124", B200, "torch==2.15.0+cu132 --index-url https://download.pytorch.org/whl/cu132"),
    ],
)
def test_a_torch_for_the_gpu_is_proposed(version, gpu, command):
    found = judge("stack.torch-arch", target(), Torch(version, "13.0", archs=("sm_80",)), gpus(gpu))
    assert found[0].fix is not None and found[0].fix.commands[0].endswith(command)


NCCL = "nvidia-nccl-cu12"


@pytest.mark.parametrize(
    ("packages", "requires", "torch", "expected"),
    [
        (["torch 2.9.0", f"{NCCL} 2.27.5"], PIN, TORCH, [("pass", f"package:{NCCL}")]),
        (["torch 2.9.0", f"{NCCL} 2.21.5"], PIN, TORCH, [("fail", f"package:{NCCL}")]),
        (["torch 2.9.0", f"{NCCL} 2.27.3"], PIN, TORCH, [("warn", f"package:{NCCL}")]),
        (["torch 2.9.0", f"{NCCL} 2.30.7"], PIN, TORCH, [("warn", f"package:{NCCL}")]),
        (["torch 2.9.0", f"{NCCL} broken!"], PIN, TORCH, [("unknown", f"package:{NCCL}")]),
        (["torch 2.9.0"], PIN, TORCH, [("fail", f"package:{NCCL}")]),
        (["torch 2.9.0", "nvidia-nccl-cu13 2.28.9"], PIN, TORCH, [("fail", f"package:{NCCL}")]),
        # its own metadata decides for a release no table knows
        (
            ["torch 99.0", "nvidia-nccl-cu15 3.1.0"],
            ("nvidia-nccl-cu15==3.1.0",),
            Torch("99.0+cu150", "15.0"),
            [("pass", "package:nvidia-nccl-cu15")],
        ),
        (
            ["torch 99.0", "nvidia-nccl-cu15 3.1.0"],
            (),
            Torch("99.0+cu150", "15.0"),
            [("unknown", "package:nccl")],
        ),
        # the table, where the metadata was not seen
        (["torch 2.9.0", f"{NCCL} 2.27.5"], (), TORCH, [("pass", f"package:{NCCL}")]),
        (["torch 2.3.0", f"{NCCL} 2.18.1"], (), Torch("2.3.0", "12.1"), [("fail", f"package:{NCCL}")]),
        (["torch 2.9.0"], ("filelock",), TORCH, [("skip", "")]),
        (["torch 2.9.0"], (), Torch("2.9.0+cpu", ""), [("skip", "")]),
    ],
)
def test_the_nccl_package(packages, requires, torch, expected):
    found = judge("stack.nccl-pin", target(*packages, requires=requires), torch)
    assert brief(found) == expected, found
    for finding in found:
        if finding.status.value in ("fail", "warn"):
            pin = requires[0].partition(";")[0] if requires else "==2."
            assert pin in finding.summary and finding.fix and "pip install" in finding.fix.commands[0]


def test_a_paste_that_lists_no_nccl():
    pasted = target("torch 2.9.0", complete=False)
    assert brief(judge("stack.nccl-pin", pasted, TORCH)) == [("unknown", f"package:{NCCL}")]


def nccl(path: str, version: str, cuda: str = "12.9", *found: str) -> LibraryCopy:
    return LibraryCopy("nccl", path, path, "libnccl.so.2", version, cuda, found or ("wheel",))


WHEEL = nccl(f"{SITE}/nvidia/nccl/lib/libnccl.so.2", "2.27.5")
RPATH = Resolved("libnccl.so.2", WHEEL.path, WHEEL.real, "RPATH of libtorch_cuda.so")


def by(copy: LibraryCopy, rule: str) -> Resolved:
    return Resolved("libnccl.so.2", copy.path, copy.real, rule)


def test_a_package_whose_file_was_overwritten():
    python = target("torch 2.9.0", f"{NCCL} 2.27.5", "nvidia-nccl-cu13 2.28.9", requires=PIN)
    other = replace(WHEEL, version="2.28.9", cuda="13.0")
    found = judge("stack.nccl-pin", python, TORCH, Libraries((other,), (RPATH,)))
    assert brief(found) == [("pass", f"package:{NCCL}"), ("fail", f"file:{WHEEL.path}")]
    assert found[1].fix is not None
    assert found[1].fix.commands == (
        f"/venv/bin/python -m pip uninstall -y {NCCL} nvidia-nccl-cu13",
        f"/venv/bin/python -m pip install {NCCL}==2.27.5",
    )
    assert brief(judge("stack.nccl-pin", python, TORCH, Libraries((WHEEL,), (RPATH,))))[1:] == []


OLD, NEW = nccl("/opt/nccl/libnccl.so.2", "2.18.1", "12.1"), nccl("/opt/new/libnccl.so.2", "2.30.7", "13.0")


@pytest.mark.parametrize(
    ("copies", "resolved", "expected"),
    [
        ([WHEEL], RPATH, "pass"),
        ([WHEEL, OLD], RPATH, "note"),
        ([WHEEL, OLD], by(OLD, "LD_LIBRARY_PATH"), "fail"),
        ([WHEEL, NEW], by(NEW, "LD_PRELOAD"), "warn"),
        ([replace(WHEEL, version="")], RPATH, "unknown"),
        ([], Resolved("libnccl.so.2"), "fail"),
    ],
)
def test_the_nccl_that_wins(copies, resolved, expected):
    python = target("torch 2.9.0", f"{NCCL} 2.27.5", requires=PIN)
    found = judge("stack.nccl-copies", python, TORCH, Libraries(tuple(copies), (resolved,)))
    assert brief(found) == [(expected, "library:libnccl")], found
    shown = [evidence.path for evidence in found[0].evidence]
    assert all(any(f"[path={copy.path}]" in path for path in shown) for copy in copies)
    if expected == "fail" and copies:
        assert found[0].fix is not None and "grep -vxF" in found[0].fix.commands[0]


def test_the_nccl_that_torch_reports():
    libraries, python = Libraries((WHEEL,), (RPATH,)), target("torch 2.9.0", f"{NCCL} 2.27.5", requires=PIN)
    same, other = ImportedTorch(nccl=("2", "27", "5")), ImportedTorch(nccl=("2", "18", "1"))
    assert brief(judge("stack.nccl-copies", python, TORCH, libraries, same)) == [("pass", "library:libnccl")]
    found = judge("stack.nccl-copies", python, TORCH, libraries, other)
    assert brief(found)[1:] == [("warn", "library:libnccl-imported")]


def test_an_nccl_that_nobody_pinned():
    conda = nccl("/opt/conda/lib/libnccl.so.2", "2.21.5", "12.4", "conda")
    python = target("torch 2.5.1", requires=("filelock",))
    found = judge(
        "stack.nccl-copies", python, TORCH, Libraries((conda,), (by(conda, "RPATH of libtorch_cuda.so"),))
    )
    assert brief(found) == [("pass", "library:libnccl")]


def test_an_nccl_linked_into_torch():
    found = judge("stack.nccl-copies", target(), Torch("1.13.1", "11.7"), Libraries(nccl_built_in="2.14.3"))
    assert brief(found) == [("pass", "library:libnccl")] and "2.14.3" in found[0].summary


def test_copies_without_files():
    assert brief(judge("stack.nccl-copies", target(), TORCH)) == [("unknown", "")]
    assert brief(judge("stack.nccl-copies", target(), TORCH, Libraries())) == [("unknown", "library:libnccl")]
    assert brief(judge("stack.nccl-copies", target(), Torch("2.9.0+cpu", ""))) == [("skip", "")]


def test_the_second_nccl_of_old_vllm():
    python = target("torch 2.3.0", f"{NCCL} 2.20.5", "vllm-nccl-cu12 2.18.1.0.4.0", source="collect-env")
    found = judge("stack.nccl-copies", python, Torch("2.3.0", "12.1"))
    assert brief(found) == [("warn", "package:vllm-nccl-cu12"), ("unknown", "")]
    assert "load NCCL 2.18.1, torch" in found[0].summary
    assert "2.18.1" in found[0].summary and "2.20.5" in found[0].summary
    other = replace(OLD, found=("vLLM",))
    found = judge("stack.nccl-copies", target(), TORCH, Libraries((WHEEL, other), (RPATH,)))
    assert brief(found)[0] == ("note", f"file:{OLD.path}")


@pytest.mark.parametrize(
    ("packages", "torch", "expected"),
    [
        (
            [f"{NCCL} 2.27.5", "nvidia-cuda-runtime-cu12 12.8.90", "cupy-cuda12x 13.6.0"],
            TORCH,
            [("pass", "")],
        ),
        (
            ["nvidia-cudnn-cu13 9.24.0", "nvidia-cuda-runtime 13.0.96"],
            Torch("2.14.0", "13.0"),
            [("pass", "")],
        ),
        (["nvidia-cudnn-cu13 9.24.0", "nvidia-cufft 12.0.0"], Torch("2.14.0", "13.0"), [("pass", "")]),
        ([f"{NCCL} 2.27.5", "nvidia-cublas-cu11 11.11"], TORCH, [("warn", "cuda:11")]),
        ([f"{NCCL} 2.27.5", "nvidia-nccl-cu11 2.21.5"], TORCH, [("warn", "cuda:11")]),
        ([f"{NCCL} 2.27.5", "nvidia-cuda-runtime 13.0.96"], TORCH, [("warn", "cuda:13")]),
        (
            ["nvidia-nccl-cu13 2.28.9", "cupy-cuda12x 13.6.0"],
            Torch("2.14.0", "13.0"),
            [("warn", "package:cupy-cuda12x")],
        ),
        ([f"{NCCL} 2.27.5", "cupy-cuda11x 13.6.0", "cupy-cuda12x 13.6.0"], TORCH, [("warn", "package:cupy")]),
        (
            ["transformer-engine-cu12 2.9.0", "nvidia-nccl-cu13 2.28.9"],
            Torch("2.14.0", "13.0"),
            [("warn", "cuda:12")],
        ),
        ([f"{NCCL} 2.27.5", "nvidia-nccl-cu13 2.28.9"], Torch("2.9.0", None), [("warn", "package:torch")]),
        ([f"{NCCL} 2.27.5"], Torch("2.9.0", None), [("pass", "")]),
        (["numpy 2.0.0", "nvidia-ml-py 13.0.0"], Torch("2.9.0+cpu", ""), [("skip", "")]),
    ],
)
def test_cuda_majors(packages, torch, expected):
    found = judge("stack.cuda-mixed", target(*packages), torch)
    assert brief(found) == expected, found
    for finding in found:
        if finding.status.value == "warn" and finding.subject.startswith("cuda:"):
            assert finding.fix is not None and "uninstall" in finding.fix.commands[0]


def test_leftovers_that_share_files_are_named_with_what_asked_for_them():
    jax = Package("jax-cuda12-plugin", "0.8.0", SITE, requires=("nvidia-nccl-cu12>=2.20",))
    python = target(f"{NCCL} 2.27.5", "nvidia-nccl-cu13 2.28.9")
    python = replace(python, packages=(*python.packages, jax))
    (found,) = judge("stack.cuda-mixed", python, Torch("2.14.0", "13.0"))
    assert (
        found.fix is not None
        and "then reinstall nvidia-nccl-cu13: the packages for CUDA 12" in found.fix.text
    )
    assert found.fix is not None and "Required by jax-cuda12-plugin." in found.fix.text
    assert found.fix.commands[1] == "/venv/bin/python -m pip install nvidia-nccl-cu13==2.30.7"


def test_a_paste_that_names_no_cuda():
    assert brief(judge("stack.cuda-mixed", target("numpy 2.0.0", complete=False), TORCH)) == [("unknown", "")]


def test_which_python_it_is_and_what_else_was_found():
    other = OtherPython("/usr/bin/python3", "python3 on PATH")
    mine = OtherPython(
        "/job/.venv/bin/python", ".venv of the working directory", problem="it belongs to uid 7, not to us"
    )
    (found,) = judge("stack.python", target(others=(other, mine)))
    assert found.note and found.summary == "/venv/bin/python, Python 3.11.9: VIRTUAL_ENV"
    places = ["found.others[path=/usr/bin/python3].why", "found.others[path=/job/.venv/bin/python].problem"]
    assert [line.path for line in found.evidence] == places


def twice(first: str, second: str) -> TargetPython:
    copies = tuple(
        Package("torch", v, place, ("filelock",)) for v, place in (("2.9.0", first), ("2.3.0", second))
    )
    return replace(target(), packages=copies)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("/home/me/.local/lib/python3.11/site-packages", SITE, "warn"),
        (SITE, SITE, "warn"),
        (SITE, "/usr/lib/python3/dist-packages", "note"),
    ],
)
def test_a_package_installed_twice(first, second, expected):
    found = judge("stack.python", twice(first, second), TORCH)
    assert brief(found)[1:] == [(expected, "package:torch")]
    assert "2.9.0" in found[1].summary and first in found[1].summary and "2.3.0" in found[1].summary


@pytest.mark.parametrize(
    ("expect", "failing"),
    [
        ({"torch": "2.9"}, []),
        ({"torch": "2.9.0"}, []),
        ({"torch": "yes", "ray": "2.51"}, []),
        ({"torch": "2.90"}, ["package:torch"]),
        ({"torch": "2"}, []),
        ({"ray": "2.5"}, ["package:ray"]),
    ],
)
def test_expected_versions(expect, failing):
    found = judge("stack.python", target("torch 2.9.0", "ray 2.51.1"), TORCH, Expect(expect))
    assert [subject for status, subject in brief(found) if status == "fail"] == failing


def ray(*processes: str, own: str = "2.51.1", **more: object) -> TargetPython:
    """A Python with Ray, and processes given as `role ray python`."""
    running = [
        RunningPython(*text.split(" ")[:1], 100 + i, "/opt/ray", *text.split(" ")[:0:-1])
        for i, text in enumerate(processes)
    ]
    return target(*([f"ray {own}"] if own else []), running=tuple(running), **more)


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        (ray(), [("pass", "package:ray")]),
        (ray("raylet 2.51.1 3.11", "ray-worker 2.51.1 3.11"), [("pass", "package:ray")]),
        (ray("raylet 2.49.0 3.11", explicit=True), [("fail", "pid:100")]),
        (ray("raylet 2.49.0 3.11"), [("warn", "pid:100")]),
        (ray("raylet 2.51.1 3.12", explicit=True), [("fail", "pid:100")]),
        (ray("raylet 2.51.1 3.11", "ray-worker 2.49.0 3.11"), [("fail", "ray"), ("warn", "pid:101")]),
        (ray("raylet 2.51.1 3.11", own=""), [("pass", "package:ray")]),
        (ray("rank 2.49.0 3.11"), [("pass", "package:ray")]),
        (ray(own=""), [("skip", "")]),
        (ray(own="", complete=False), [("skip", "")]),
    ],
)
def test_ray_versions(python, expected):
    found = judge("ray.version", python)
    assert brief(found) == expected, found
    for finding in found:
        if finding.subject.startswith("pid:"):
            assert "2.51.1" in finding.summary and finding.evidence


def test_ray_that_is_expected():
    assert brief(judge("ray.version", ray(own=""), Expect({"ray": "yes"}))) == [("fail", "package:ray")]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("novaskyai/skyrl-train-ray-2.51.1-py3.11-cu12.8", ["pass"]),
        ("novaskyai/skyrl-train-ray-2.49.0-py3.12-cu12.8", ["warn", "warn", "pass"]),
        ("ubuntu:24.04", ["pass"]),
    ],
)
def test_ray_and_the_promise_of_the_image(image, expected):
    container = Container(runtime="docker", image=image, image_said_by="PYXIS_CONTAINER_IMAGE")
    assert [status for status, _ in brief(judge("ray.version", ray(), container))] == expected
