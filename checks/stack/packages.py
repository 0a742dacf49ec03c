"""Do the packages on top of torch fit the torch that is installed?"""

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.packages import Package
from nodedoctor.facts.stack.places import (
    package_said,
    pin_said,
    requirement_said,
    resolved_said,
    toolkit_said,
    torch_said,
)
from nodedoctor.facts.stack.requirements import Pin, Requirement, older, requirement, torch_pin, wheels_of
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.knowledge.versions import stack
from nodedoctor.knowledge.versions.torch_pins import torch_release
from nodedoctor.model import Finding, Fix, Status, Step
from nodedoctor.steps import look, without_entry

DISTURBS = "jobs that use this Python environment"


@check("stack.torchvision", "torchvision version", tags={"fast"})
def torchvision(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """torchvision's requirement on torch, and the CUDA both were built with.

    Why: it is compiled against one torch; with another one `operator torchvision::nms does not exist`.
    Fix disturbs: jobs that use this Python environment.
    Judges: FAIL when its requirement on torch is not met, WARN when it is built for another CUDA.
    Fix: Install the release for this torch.
    Threshold: The package's metadata, and the torch_pins table.
    False positives: None known.
    Error texts:
    - operator torchvision::nms does not exist
    """
    yield from _judge_companion(target, torch, "torchvision")


@check("stack.torchaudio", "torchaudio version", tags={"fast"})
def torchaudio(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """torchaudio's requirement on torch, and the CUDA both were built with.

    Why: it is compiled against one torch; with another one its library does not load (undefined symbol).
    Fix disturbs: jobs that use this Python environment.
    Judges: FAIL when its requirement on torch is not met, WARN when it is built for another CUDA.
    Fix: Install the release for this torch.
    Threshold: The package's metadata, and the torch_pins table.
    False positives: None known.
    """
    yield from _judge_companion(target, torch, "torchaudio")


@check("stack.triton", "triton version", tags={"fast"})
def triton(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """The installed triton against what this torch requires.

    Why: torch.compile generates code for one triton; with another one it fails at the first compiled step.
    Fix disturbs: jobs that use this Python environment.
    Judges: FAIL when triton is behind what torch requires or missing, WARN when it is ahead.
    Fix: Install the triton of this torch.
    Threshold: torch's metadata, and the torch_pins table.
    False positives: Jobs without torch.compile.
    """
    pin = next(
        (pin for name in ("triton", "pytorch-triton") if (pin := _torch_pin(target, torch, name))), None
    )
    installed = target.package("triton") or target.package("pytorch-triton")
    yield _judge_pin(target, torch, pin, installed, "triton")


@check("stack.cudnn", "cuDNN version", tags={"fast"})
def cudnn(target: TargetPython, torch: Torch, libraries: Libraries | None) -> Iterator[Finding]:
    """The installed nvidia-cudnn package against what this torch requires, and what the loader finds first.

    Why: torch refuses a cuDNN older than the one it was compiled with ("cuDNN version incompatibility").
    Fix disturbs: jobs that use this Python environment.
    Judges: FAIL when cuDNN is missing or behind what torch requires, WARN when it is ahead or another copy is
    found first.
    Fix: Install the cuDNN that torch requires; clean LD_LIBRARY_PATH.
    Threshold: torch's own metadata, and the torch_pins table.
    False positives: Newer cuDNN of the same major is accepted by torch.
    Error texts:
    - cuDNN version incompatibility
    """
    pin = torch_pin(target, torch, "cudnn")
    wheels = wheels_of(target, "cudnn")
    own = next((wheel for wheel in wheels if pin and wheel.name == pin.wanted.name), None)
    if torch.cuda == "":
        yield Finding.skip("this torch has no CUDA, so it uses no cuDNN")
        return
    yield _judge_pin(target, torch, pin, own or next(iter(wheels), None), "cuDNN")
    won = libraries.winner("libcudnn.so") if libraries else None
    if won and won[1] and won[0].rule in ("LD_PRELOAD", "LD_LIBRARY_PATH") and own:
        version = f" {won[1].version}" if won[1].version.count(".") > 1 else ""
        entry = won[0].path if won[0].rule == "LD_PRELOAD" else won[0].path.rpartition("/")[0]
        yield Finding.warn(
            f"{won[0].rule} loads cuDNN{version} from {won[0].path} before {own}",
            subject="library:libcudnn",
            evidence=resolved_said(won[0]),
            fix=Fix(
                f"Remove {entry} from {won[0].rule} where the job is started.",
                (without_entry(won[0].rule, entry),),
                "config",
            ),
        )


@check("stack.xformers", "xformers version", tags={"fast"})
def xformers(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """xformers' requirement on torch.

    Why: its kernels are compiled against one torch; with another they are silently skipped or crash.
    Fix disturbs: jobs that use this Python environment.
    Judges: FAIL or WARN when torch is outside the requirement.
    Fix: Install the release for this torch.
    Threshold: The package's metadata, and the stack_pins table.
    False positives: Builds from source.
    """
    yield _on_torch(target, torch, "xformers")


@check("stack.vllm", "vLLM version", tags={"fast"})
def vllm(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """vLLM's requirement on torch: every release since 0.6 needs one exact version.

    Why: its extension is compiled against one torch; with another one `vllm._C` fails with undefined symbol.
    Fix disturbs: jobs that use this Python environment.
    Judges: FAIL when torch is not the exact version that vLLM requires.
    Fix: Install vLLM's own torch, or the vLLM for this torch.
    Threshold: The package's metadata, and the stack_pins table.
    False positives: Builds from source against another torch.
    """
    yield _on_torch(target, torch, "vllm")


@check("stack.bitsandbytes", "bitsandbytes version", tags={"fast"})
def bitsandbytes(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """bitsandbytes' requirement on torch.

    Why: it loads its own library per CUDA version; outside its range 8-bit optimisers fail at import.
    Fix disturbs: jobs that use this Python environment.
    Judges: FAIL or WARN when the installed torch is outside the package's requirement.
    Fix: Install the release that fits this torch.
    Threshold: The package's own metadata, and the stack_pins table.
    False positives: Builds from source with changed requirements.
    """
    yield _on_torch(target, torch, "bitsandbytes")


@check("stack.deepspeed", "DeepSpeed build requirements", tags={"fast"})
def deepspeed(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """DeepSpeed's requirement on torch, and the CUDA toolkit it compiles its operators with.

    Why: it compiles on first use, and fails when nvcc and torch's CUDA differ (op_builder/builder.py).
    Fix disturbs: jobs that use this Python environment.
    Judges: FAIL when torch is outside the requirement; WARN when the toolkit differs from torch's CUDA.
    Fix: Install the toolkit of torch's CUDA, or use prebuilt operators.
    Threshold: op_builder/builder.py of DeepSpeed.
    False positives: Jobs that use no compiled operators.
    """
    package = target.package("deepspeed")
    if package is None:
        yield _not_installed(target, "deepspeed")
        return
    yield _on_torch(target, torch, "deepspeed")
    tool = target.toolkit
    if tool is None or not tool.version or not torch.cuda:
        return
    nvcc, own = tool.version.split("."), torch.cuda.split(".")
    if nvcc[:2] != own[:2] and (nvcc[0] != own[0] or nvcc[0] not in ("10", "11", "12")):
        yield Finding.warn(
            f"{package} cannot compile: nvcc is {tool.version} ({tool.why}), torch has CUDA {torch.cuda}",
            subject="toolkit:deepspeed",
            evidence=toolkit_said(target),
            fix=Fix(
                f"Set CUDA_HOME to a toolkit for CUDA {torch.cuda}.",
                (look("ls -d /usr/local/cuda-*"),),
                "config",
                DISTURBS,
            ),
        )


def _judge_companion(target: TargetPython, torch: Torch, name: str) -> Iterator[Finding]:
    """torchvision and torchaudio come in pairs with torch, and in the same builds."""
    package = target.package(name)
    if package is None:
        yield _not_installed(target, name)
        return
    fits = _on_torch(target, torch, name)
    yield fits
    ours, theirs = torch.version.partition("+")[2], package.version.partition("+")[2]
    if (
        fits.status is Status.PASS
        and ours
        and theirs
        and ours != theirs
        and {ours[:2], theirs[:2]} <= {"cu", "cp"}
    ):
        command = target.install(
            f"{name}=={package.version.partition('+')[0]}+{ours}",
            "--index-url",
            f"https://download.pytorch.org/whl/{ours}",
        )
        yield Finding.warn(
            f"{name} is built for {theirs}, torch for {ours}",
            subject=f"build:{name}",
            evidence=[*package_said(target, package), *torch_said(target, "version")],
            fix=Fix(f"Install the {ours} build of {name}.", (command,), "config", DISTURBS),
        )


def _on_torch(target: TargetPython, torch: Torch, name: str) -> Finding:
    package = target.package(name)
    if package is None:
        return _not_installed(target, name)
    need = requirement(target, name, "torch")
    if need is None:
        return _by_pairs(target, torch, package)
    subject, evidence = f"package:{name}", requirement_said(target, need)
    allowed = need.wanted.allows(torch.version)
    if allowed is None:
        return Finding.unknown("unparsable", f"torch {torch.version} cannot be compared", subject=subject)
    if allowed:
        summary = f"{package} allows torch {torch.version}"
        return Finding.ok(summary, subject=subject, evidence=evidence)
    fix = Fix(
        f"Install the {name} for torch {torch.public_version}, or the torch it requires.",
        _either_version(target, torch, name, need),
        "config",
        DISTURBS,
        f"nodedoctor stack.{name}",
    )
    summary = f"{package} requires {need.wanted}, installed is torch {torch.version}"
    return Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)


def _by_pairs(target: TargetPython, torch: Torch, package: Package) -> Finding:
    """Where the metadata was not seen: the table of releases that belong together."""
    subject, evidence = f"package:{package.name}", package_said(target, package)
    release = torch_release(torch.version)
    partner = getattr(release, package.name, "") if release else ""
    if package.requires or stack.release(package.name, package.version):
        summary = f"{package} has no requirement on torch's version"
        return Finding.ok(summary, subject=subject, evidence=evidence)
    if not partner:
        summary = f"{package}: its requirement on torch is unknown"
        return Finding.unknown("not-visible-here", summary, subject=subject, evidence=evidence)
    if package.version.partition("+")[0] == partner:
        summary = f"{package} matches torch {torch.public_version}"
        return Finding.ok(summary, subject=subject, evidence=evidence)
    same_minor = package.version.split(".")[:2] == partner.split(".")[:2]
    judge = Finding.info if same_minor else Finding.fail
    command = target.install(f"{package.name}=={partner}")
    return judge(
        f"{package} is installed, torch {torch.public_version} needs {partner}",
        subject=subject,
        evidence=evidence,
        fix=Fix("Install the matching version.", (command,), "config", DISTURBS),
    )


def _either_version(target: TargetPython, torch: Torch, name: str, need: Requirement) -> tuple[Step, ...]:
    release = torch_release(torch.version)
    partner = getattr(release, name, "") if release and name in ("torchvision", "torchaudio") else ""
    fitting = [row.version for row in stack.releases_for_torch(name, torch.version) if not row.yanked]
    best = partner or next(iter(fitting), "")
    first = (target.install(f"{name}=={best}"),) if best else ()
    return (*first, target.install(str(need.wanted)))


def _torch_pin(target: TargetPython, torch: Torch, name: str) -> Pin | None:
    """What torch requires of a package that is no wheel of NVIDIA's."""
    need = requirement(target, "torch", name)
    if need is not None:
        return Pin(need.wanted, need.said_by)
    return torch_pin(target, torch, name)


def _judge_pin(
    target: TargetPython, torch: Torch, pin: Pin | None, package: Package | None, what: str
) -> Finding:
    """A pin of torch's: behind it is broken, ahead of it untested."""
    if pin is None:
        if package is None:
            return Finding.skip(f"this torch requires no {what}, none is installed")
        return Finding.skip(f"this torch requires no {what} in its visible metadata ({package})")
    subject = f"package:{pin.wanted.name}"
    evidence = pin_said(target, pin.wanted.name)
    if package is None and not target.complete:
        return Finding.skip(f"the paste lists no {what}")
    fix = Fix("Install the version torch requires.", (target.install(str(pin.wanted)),), "config", DISTURBS)
    if package is None:
        summary = f"{pin.wanted.name} is missing (torch {torch.version} requires {pin.wanted})"
        return Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    evidence += package_said(target, package)
    if package.name == pin.wanted.name and pin.wanted.allows(package.version):
        summary = f"{package}, as torch {torch.version} requires"
        return Finding.ok(summary, subject=subject, evidence=evidence)
    behind = older(package.version, pin.wanted.exact or "") or package.name != pin.wanted.name
    summary = f"{package} is installed, torch {torch.version} requires {pin.wanted}"
    judge = Finding.fail if behind else Finding.warn
    return judge(summary, subject=subject, evidence=evidence, fix=fix)


def _not_installed(target: TargetPython, name: str) -> Finding:
    return Finding.skip(f"{name} is not installed in {target.label}, as far as seen")
