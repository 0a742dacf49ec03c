"""Does torch's CUDA run on this node's driver?"""

from collections.abc import Iterator
from typing import Literal

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.nvidia_presence import NONE_HERE, nothing_here, signs
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.packages import numbers
from nodedoctor.facts.stack.places import torch_said
from nodedoctor.facts.stack.probe import ImportedTorch
from nodedoctor.facts.stack.torch_build import Torch, torch_index
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.knowledge.versions import cuda
from nodedoctor.knowledge.versions.torch_pins import TorchVariant, torch_release
from nodedoctor.model import Expect, Finding, Fix, Step, quoted_like, reading
from nodedoctor.record import replace
from nodedoctor.steps import look

_CUDA_SAID = quoted_like("collect-env", "^Is CUDA available: .*")
MINOR_DOCS = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
FORWARD_DOCS = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
DISTURBS = "jobs that use this Python environment; a new driver needs the GPUs idle"

_ROOTS = ("driver.answers@node", "driver.module-userspace@node", "driver.modules@node")
"""Why torch may not be able to start CUDA."""
Fit = Literal["native", "minor", "forward", "none"]


@check(
    "stack.torch-driver",
    "torch's CUDA against the driver",
    without=(ImportedTorch, Gpus, Pci, Driver, Libraries),
)
def torch_driver(
    target: TargetPython,
    torch: Torch | None,
    gpus: Gpus | None,
    driver: Driver | None,
    pci: Pci | None,
    libraries: Libraries | None,
    imported: ImportedTorch | None,
    expect: Expect,
) -> Iterator[Finding]:
    """The CUDA torch was built with, if any, against the newest one the driver runs.

    Why: with a CPU-only torch or a driver too old for it, torch.cuda.is_available() is False on every rank.
    Fix disturbs: jobs that use this Python environment; a new driver needs the GPUs idle.
    Judges: FAIL when torch has no CUDA, is too new for the driver, or could not start CUDA.
    Fix: Install a torch for this driver, or a newer driver.
    Threshold: NVIDIA's CUDA compatibility table (cuda_driver table).
    False positives: Forward-compatibility packages make a newer CUDA run on data-centre GPUs.
    Error texts:
    - The NVIDIA driver on your system is too old
    """
    version = (gpus and gpus.driver_version) or (driver and driver.version) or target.driver_version
    here = bool(version or (gpus and gpus.gpus) or target.gpu_names or signs(pci, driver))
    if torch is None:
        yield _no_torch(target, expect)
    elif not here and nothing_here(pci, driver):
        yield Finding.skip(NONE_HERE)
    elif not here:
        yield _no_gpu_told(target)
    elif torch.hip or torch.cuda == "":
        yield _without_cuda(target, torch, version or "")
    elif torch.cuda is None or not version:
        missing = "torch's CUDA version" if torch.cuda is None else "driver version"
        yield Finding.unknown("not-visible-here", f"{missing} not visible", subject="package:torch")
    else:
        reported = (gpus and gpus.cuda_version) or ""
        yield _judge_driver(target, torch, version, reported, _compat_note(libraries, version, gpus))
        yield from _said_by_torch(target, imported)


def _no_gpu_told(target: TargetPython) -> Finding:
    summary = "unknown whether this node has NVIDIA GPUs"
    if target.cuda_available is not False:
        return Finding.unknown("not-visible-here", summary)
    finding = Finding.unknown(
        "not-visible-here",
        f"torch.cuda.is_available() was False when this was pasted; {summary}",
        subject="torch.cuda",
        fix=Fix("See whether the driver answers on that node.", (look("nvidia-smi"),), action="none"),
    )
    return replace(finding, evidence=(_CUDA_SAID,))


def _no_torch(target: TargetPython, expect: Expect) -> Finding:
    summary = f"no torch in {target.label} ({target.why})"
    elsewhere = next((python for python in target.others if python.torch), None)
    if not target.explicit and expect.get("torch") is None:
        hint = f"; {elsewhere.path} has torch {elsewhere.torch} (use --python)" if elsewhere else ""
        return Finding.skip(summary + hint)
    text = "Install torch there, or pass the Python that has it with --python."
    return Finding.fail(
        summary, subject="package:torch", fix=Fix(text, (target.install("torch"),), "config", "nothing")
    )


def _without_cuda(target: TargetPython, torch: Torch, driver: str) -> Finding:
    kind = f"built for ROCm {torch.hip}" if torch.hip else "a CPU-only build"
    build = _build_for(torch, cuda.driver_version(driver))
    there = f": {build.torch} is there for CUDA {_dotted_version(build.cuda)}" if build else ""
    return Finding.fail(
        f"torch {torch.version} is {kind}, but this node has NVIDIA GPUs",
        subject="package:torch",
        evidence=torch_said(target, "version", "cuda"),
        fix=Fix(f"Install a build with CUDA{there}.", _install_steps(target, build), "config", DISTURBS),
    )


def _build_for(torch: Torch, driver: cuda.Driver | None) -> TorchVariant | None:
    """The build of the same release with the newest CUDA that runs on a driver; None when none is known."""
    release = torch_release(torch.version)
    builds = release.variants if release and driver else ()
    fitting = [build for build in builds if driver and cuda.fit(driver, build.cuda) in ("native", "minor")]
    return max(fitting, key=lambda build: build.cuda, default=None)


def _install_steps(target: TargetPython, build: TorchVariant | None) -> tuple[Step, ...]:
    """The local version makes installers replace another build of the same release."""
    if build is None:
        return ()
    return (target.install(f"torch=={build.torch}+{build.tag}", "--index-url", torch_index(build.tag)),)


def _judge_driver(target: TargetPython, torch: Torch, driver: str, reported: str, compat: str) -> Finding:
    """Compare; `compat` is what to say of the forward-compatibility libcuda that would be loaded, if any."""
    needed, version = cuda.cuda_version(torch.cuda or ""), cuda.driver_version(driver)
    if needed is None or version is None:
        return Finding.unknown("unparsable", f"cannot compare CUDA {torch.cuda} with driver {driver}")
    newest = cuda.max_cuda_of_driver(version)
    runs = reported if cuda.branch(version) is None and reported else _dotted_version(newest)
    what = f"torch {torch.version} needs CUDA {torch.cuda}, driver {driver} supports up to CUDA {runs}"
    evidence = torch_said(target, "version", "cuda")
    fit = _judge_fit(version, needed, reported)
    if fit == "native":
        return Finding.ok(what, subject="package:torch", evidence=evidence)
    asks = cuda.min_driver_for_cuda(needed)
    if fit == "minor":
        full = f" from {cuda.driver_text(asks.native)} on" if asks else ""
        fix = Fix(f"No change needed; a driver{full} supports all of it.", action="none", docs=MINOR_DOCS)
        note = f"{what}: works (same CUDA major), except PTX compiled at run time"
        return Finding.info(note, subject="package:torch", evidence=evidence, fix=fix)
    if compat and fit == "forward":
        return Finding.info(f"{what}; {compat}", subject="package:torch", evidence=evidence)
    return Finding.fail(
        what, subject="package:torch", evidence=evidence, fix=_fit_fix(target, torch, version)
    )


def _judge_fit(driver: cuda.Driver, needed: cuda.Cuda, reported: str) -> Fit:
    """How the build runs; what the tables do not know is judged by what the driver itself reports."""
    version = cuda.cuda_version(reported)
    newest = version if cuda.branch(driver) is None and version else cuda.max_cuda_of_driver(driver)
    if newest is not None and newest >= needed:
        return "native"
    by_table = cuda.fit(driver, needed)
    if by_table == "forward-only":
        return "forward"
    same_major = newest is not None and newest[0] == needed[0]
    return "minor" if by_table == "minor" or (by_table in ("native", "unknown") and same_major) else "none"


def _compat_note(libraries: Libraries | None, driver: str, gpus: Gpus | None) -> str:
    """What to say of a forward-compatibility libcuda that would be loaded; "" for none that may be."""
    winner = libraries.winner("libcuda.so") if libraries else None
    if winner is None or winner[1] is None or not numbers(winner[1].version) > numbers(driver):
        return ""
    models = [gpu_model(gpu.name or "") for gpu in gpus.gpus] if gpus else []
    if not all(model and model.datacentre for model in models):
        return ""  # error 804 on other boards
    return f"{winner[0].path} ({winner[1].version}) is NVIDIA's forward-compatibility library for it"


def _fit_fix(target: TargetPython, torch: Torch, driver: cuda.Driver) -> Fix:
    needed = cuda.cuda_version(torch.cuda or "") or (0, 0)
    asks, build = cuda.min_driver_for_cuda(needed), _build_for(torch, driver)
    newer = f"Update the driver to {cuda.driver_text(asks.minor)} or newer" if asks else "Update the driver"
    choice = (
        f"the same torch built with CUDA {_dotted_version(build.cuda)}"
        if build
        else "a torch for an older CUDA"
    )
    text = f"{newer}, or install {choice}."
    if cuda.fit(driver, needed) == "forward-only":
        text += " On data-centre GPUs NVIDIA's cuda-compat package also works."
    verify = "nodedoctor stack.torch-driver"
    return Fix(text, _install_steps(target, build), "config", DISTURBS, verify, FORWARD_DOCS)


def _said_by_torch(target: TargetPython, imported: ImportedTorch | None) -> Iterator[Finding]:
    """What torch itself answered: in a paste, or when it was imported with --deep."""
    if imported is not None and imported.error:
        yield Finding.fail(
            f"importing torch and starting CUDA raised {imported.error}",
            subject="torch.cuda",
            evidence=[reading("target-torch", "deep.error")],
            fix=Fix(
                "Read the error; the driver checks show whether the driver works.",
                (look("nodedoctor driver"),),
                verify="nodedoctor driver",
            ),
        ).explained_by(*_ROOTS)
    elif target.cuda_available is False:
        yield Finding.fail(
            "torch.cuda.is_available() was False when this was pasted",
            subject="torch.cuda",
            evidence=[_CUDA_SAID],
            fix=Fix("Run the driver checks on that node.", (look("nodedoctor driver"),)),
        ).explained_by(*_ROOTS)


def _dotted_version(version: cuda.Cuda | None) -> str:
    return f"{version[0]}.{version[1]}" if version else "?"
