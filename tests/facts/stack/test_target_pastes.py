"""What people paste about a Python, read as it comes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.packages import Package, Wanted, numbers, wanted
from nodedoctor.facts.stack.pastes import ALWAYS_THERE, collect_env, pip_list
from nodedoctor.facts.stack.requirements import older, same_release, torch_pin
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.knowledge.versions.stack import canonical
from nodedoctor.model import Observation, Outcome, Unseen

COLLECT_ENV = """Collecting environment information...
PyTorch version: 2.7.1+cu128
Is debug build: False
CUDA used to build PyTorch: 12.8
ROCM used to build PyTorch: N/A

OS: Ubuntu 24.04.2 LTS (x86_64)
Python version: 3.12.3 (main, Feb  4 2025, 14:48:35) [GCC 13.3.0] (64-bit runtime)
Python platform: Linux-6.8.0-60-generic-x86_64-with-glibc2.39
Is CUDA available: True
CUDA runtime version: 12.6.85
CUDA_MODULE_LOADING set to: LAZY
GPU models and configuration:
GPU 0: NVIDIA H200
GPU 1: NVIDIA H200

Nvidia driver version: 570.133.20
cuDNN version: Could not collect

Versions of relevant libraries:
[pip3] numpy==2.2.6
[pip3] nvidia-nccl-cu12==2.26.2
[pip3] torch==2.7.1+cu128
[pip3] triton==3.3.1
[conda] nvidia-nccl-cu12          2.26.2                   pypi_0    pypi
[conda] torch                     2.7.1+cu128              pypi_0    pypi
vLLM Version: 0.10.0
LD_LIBRARY_PATH=/opt/hpcx/lib:/usr/local/cuda/lib64
"""
MISSING = Observation("target-python", Outcome.MISSING, note="not in this recording")


def seen(text: str, probe: str = "collect-env") -> Observation:
    return Observation(probe, text=text)


def parse(env: str = "", pips: str = "") -> TargetPython | Unseen:
    return TargetPython.parse(MISSING, seen(env), seen(pips, "pip-list"))


def quoted(text: str) -> str:
    return "".join(f"> {line}\r\n" for line in text.splitlines())


def indented(text: str) -> str:
    return "```\n" + "".join(f"    {line}   \n" for line in text.splitlines()) + "```\n"


@pytest.mark.parametrize("damage", [str, quoted, indented])
def test_collect_env(damage):
    target = parse(damage(COLLECT_ENV))
    assert isinstance(target, TargetPython)
    assert {package.name: package.version for package in target.packages} == {
        "numpy": "2.2.6",
        "nvidia-nccl-cu12": "2.26.2",
        "torch": "2.7.1+cu128",
        "triton": "3.3.1",
    }
    assert (target.source, target.version, target.driver_version) == ("collect-env", "3.12.3", "570.133.20")
    assert target.gpu_names == ("NVIDIA H200", "NVIDIA H200") and target.cuda_available is True
    assert target.toolkit is not None and target.toolkit.version == "12.6.85"
    assert target.environ == {"LD_LIBRARY_PATH": "/opt/hpcx/lib:/usr/local/cuda/lib64"}
    assert not target.complete and not target.explicit
    assert Torch.parse(target) == Torch("2.7.1+cu128", "12.8")


@pytest.mark.parametrize(
    ("lines", "torch"),
    [
        (
            "PyTorch version: 2.5.1+cpu\nCUDA used to build PyTorch: Could not collect\n",
            Torch("2.5.1+cpu", ""),
        ),
        ("PyTorch version: 2.5.1\nCUDA used to build PyTorch: None\n", Torch("2.5.1", "")),
        (
            "PyTorch version: 2.5.1+rocm6.2\nCUDA used to build PyTorch: N/A\n"
            "ROCM used to build PyTorch: 6.2.41133\n",
            Torch("2.5.1+rocm6.2", "", hip="6.2.41133"),
        ),
        ("PyTorch version: 2.9.0a0+145a3a7\n", Torch("2.9.0a0+145a3a7", None)),
        ("[pip3] torch==2.4.0+cu121\n", Torch("2.4.0+cu121", "12.1")),
        ("[pip3] torch==2.4.0+cpu\n", Torch("2.4.0+cpu", "")),
        ("[pip3] torch==2.4.0\n[pip3] nvidia-cuda-runtime-cu12==12.1.105\n", Torch("2.4.0", "12.1")),
        ("[pip3] torch==2.4.0\n", Torch("2.4.0", None)),
    ],
)
def test_the_cuda_of_a_pasted_torch(lines, torch):
    assert Torch.parse(parse(lines)) == torch


def test_no_torch_in_a_paste():
    found = Torch.parse(parse("PyTorch version: N/A\n[pip3] numpy==1.26.4\n"))
    assert isinstance(found, Unseen) and not found.applies


LISTS = {
    "pip list": """Package            Version        Editable project location
------------------ -------------- -------------------------
torch              2.9.0+cu128
vllm_nccl_cu12     2.18.1.0.4.0
my.project         0.1.dev3+g1234 /home/me/project
""",
    "pip freeze": """torch==2.9.0+cu128
vllm_nccl_cu12==2.18.1.0.4.0
my.project @ file:///home/me/my_project-0.1.dev3+g1234-py3-none-any.whl
-e git+https://example.org/other.git@abc#egg=other
""",
    "pip list --format json": json.dumps(
        [
            {"name": "torch", "version": "2.9.0+cu128"},
            {"name": "vllm_nccl_cu12", "version": "2.18.1.0.4.0"},
            {"name": "my.project", "version": "0.1.dev3+g1234"},
        ]
    ),
    "conda list": """# packages in environment at /opt/conda:
#
# Name                    Version                   Build  Channel
torch                     2.9.0+cu128              pypi_0    pypi
vllm-nccl-cu12            2.18.1.0.4.0             pypi_0    pypi
my-project                0.1.dev3+g1234           pypi_0    pypi
""",
}


@pytest.mark.parametrize("form", LISTS)
def test_lists_of_packages(form):
    told = pip_list(seen(LISTS[form], "pip-list"))
    assert told is not None and not told.complete
    assert [(package.name, package.version) for package in told.packages] == [
        ("torch", "2.9.0+cu128"),
        ("vllm-nccl-cu12", "2.18.1.0.4.0"),
        ("my-project", "0.1.dev3+g1234"),
    ]


@given(st.sets(st.sampled_from(sorted(ALWAYS_THERE))), st.booleans())
def test_a_list_is_whole_where_it_has_what_nobody_asks_about(names: set[str], torch: bool):
    rows = [*names, *(["torch"] if torch else []), "ray"]
    told = pip_list(seen("".join(f"{name}==2.9.0\n" for name in rows), "pip-list"))
    assert told is not None and told.complete == (torch and names == ALWAYS_THERE)


def test_two_pastes_are_one_python():
    rest = "".join(f"{name}==1.0\n" for name in ALWAYS_THERE)
    target = parse(COLLECT_ENV, f"torch==2.7.1+cu128\nray==2.51.1\n{rest}")
    assert isinstance(target, TargetPython)
    assert target.source == "collect-env, pip-list" and target.complete
    assert target.package("ray") == Package("ray", "2.51.1") and target.package("triton") is not None


@pytest.mark.parametrize("text", ["", "bash: pip: command not found\n", "Nothing to see here.\n"])
def test_a_paste_without_packages_is_no_fact(text):
    found = parse(text, text)
    assert isinstance(found, Unseen) and found.reason == "missing-tool"


def test_what_the_interpreter_says_comes_first():
    live = seen('{"executable": "/opt/python", "version": "3.11.9"}', "target-python")
    found = TargetPython.parse(live, seen(COLLECT_ENV), seen(LISTS["pip list"], "pip-list"))
    assert isinstance(found, TargetPython) and found.path == "/opt/python" and found.packages == ()


@given(st.text() | st.text(alphabet="[]pip3conda=:>| \n.0129torchPyTVersionGUN@{}\"'", max_size=400))
def test_any_paste_is_read_or_refused(text):
    for paste in (collect_env(seen(text)), pip_list(seen(text, "pip-list"))):
        assert paste is None or paste.source in ("collect-env", "pip-list")
    found = parse(text, text)
    assert isinstance(found, TargetPython | Unseen)
    assert isinstance(Torch.parse(found), Torch | Unseen)
    if isinstance(found, TargetPython):
        for package in found.packages:
            list(found.wanted(package.name))


@given(st.text(max_size=60), st.text(max_size=20))
def test_any_requirement_and_version_can_be_compared(line, version):
    package = Package("torch", "1", requires=(line, f"nccl{line}", f"nccl=={version}"))
    for one in wanted(package, TargetPython("x").markers()):
        assert one.allows(version) in (True, False, None)
    assert isinstance(numbers(version), tuple)


def test_markers_choose_what_applies():
    lines = (
        "nvidia-nccl-cu12==2.27.5; platform_system == 'Linux' and platform_machine == 'x86_64'",
        "setuptools; python_version >= '3.12'",
        "optree>=0.13; extra == 'optree'",
        "not a requirement at all",
    )
    target = TargetPython("pip-list", version="3.11.4", packages=(Package("torch", "2.9.0", requires=lines),))
    assert [str(one) for one in target.wanted("torch")] == ["nvidia-nccl-cu12==2.27.5"]
    assert list(target.wanted("absent")) == []


def test_versions_and_names():
    assert Wanted("triton", "~=3.9.0").allows("3.9.4") is True
    assert Wanted("torch", "==2.9.0").allows("2.9.0+cu128") is True
    assert Wanted("torch", "==2.9.0").allows("nightly") is None
    assert Wanted("a", "==2.27.5").exact == "2.27.5" and Wanted("a", ">=2,<3").exact is None
    assert canonical("vllm_nccl.cu12") == "vllm-nccl-cu12"
    assert older("2.18.1", "2.20.5") and not older("2.20.3", "2.20.5") and not older("2.100.0", "2.20.5")
    assert same_release("2.26.2", "2.26.2.post1") and not same_release("2.26.2", "2.26.5")


def test_pins_come_from_metadata_and_then_from_the_table():
    own = Package("torch", "99.0", requires=("nvidia-nccl-cu14==3.1.2", "triton==9.0"))
    target = TargetPython("target-python", packages=(own,))
    pin = torch_pin(target, Torch("99.0+cu140", "14.0"), "nccl")
    assert pin is not None and str(pin.wanted) == "nvidia-nccl-cu14==3.1.2" and "own metadata" in pin.said_by
    assert torch_pin(target, Torch("99.0+cu140", "14.0"), "cudnn") is None
    bare = TargetPython("pip-list", packages=(Package("torch", "2.9.0"),))
    pin = torch_pin(bare, Torch("2.9.0", "12.8"), "nccl")
    assert pin is not None and str(pin.wanted) == "nvidia-nccl-cu12==2.27.5"
    assert torch_pin(bare, Torch("99.0", None), "nccl") is None


def test_commands_go_to_the_environment_they_are_for():
    plain, made_by_uv = (
        TargetPython("x", path="/venv/bin/python"),
        TargetPython("x", path="/venv/bin/python", uv=True),
    )
    assert plain.install("torch==2.9.0").command == "/venv/bin/python -m pip install torch==2.9.0"
    assert made_by_uv.install("torch").command == "uv pip install --python /venv/bin/python torch"
    assert plain.uninstall("a", "b").command == "/venv/bin/python -m pip uninstall -y a b"
    assert made_by_uv.uninstall("a").command == "uv pip uninstall --python /venv/bin/python a"
    spaced = TargetPython("x", path="/my env/$(reboot)/python")
    assert spaced.install("triton~=3.9").command == "'/my env/$(reboot)/python' -m pip install 'triton~=3.9'"
