"""Were compiled extensions built for this torch and this CUDA, and can more be built?"""

from collections.abc import Iterator
from urllib.parse import unquote

from nodedoctor.declare.registry import check
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.packages import Package, numbers
from nodedoctor.facts.stack.places import package_said, resolved_said, toolkit_said
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.knowledge.versions.stack import Build, build_of
from nodedoctor.knowledge.versions.torch_pins import torch_release
from nodedoctor.model import Finding, Fix, reading
from nodedoctor.patterns import regex
from nodedoctor.steps import look, repair
from nodedoctor.wording import first_few, short_path

DISTURBS = "jobs that use this Python environment"
_BUILDS = regex(r"deepspeed|flashinfer-python|apex|megatron-.*|flash-attn")
"""Packages that compile when they are installed or first used."""
FA_WHEELS = "https://github.com/Dao-AILab/flash-attention/releases"


@check("stack.flash-attn", "flash-attn build", tags={"fast"})
def flash_attn(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """What flash-attn's version or wheel says it was built for: CUDA major, torch minor, C++ ABI.

    Why: a wheel for another torch fails at import with an undefined symbol that begins with `_ZN3c10`.
    Fix disturbs: jobs that use this Python environment; building it takes an hour.
    Judges: FAIL when the wheel was built for another torch, CUDA or C++ ABI.
    Fix: Install the wheel for this torch, or build it.
    Threshold: The names of the project's wheels.
    False positives: Builds from source that keep the name of a wheel.
    Error texts:
    - flash_attn_2_cuda undefined symbol: _ZN3c10
    """
    package = target.package("flash-attn")
    if package is None:
        yield Finding.skip(f"flash-attn is not installed in {target.label}, as far as seen")
        return
    wheel = unquote(package.url.rpartition("/")[2])
    built = build_of("flash-attn", package.version) or build_of("flash-attn", wheel)
    evidence = package_said(target, package)
    subject = "package:flash-attn"
    if built is None:
        summary = f"{package}: build target unknown (compiled at installation)"
        yield Finding.info(summary, subject=subject, evidence=evidence)
        return
    wrong = list(_wrong_versions(built, torch))
    if not wrong:
        yield Finding.ok(f"{package} is built for this torch", subject=subject, evidence=evidence)
        return
    fix = Fix(
        "Install the matching wheel, or compile it against this torch.",
        (target.install("--no-build-isolation", "--force-reinstall", "--no-deps", "flash-attn"),),
        "config",
        DISTURBS,
        "nodedoctor stack.flash-attn",
        FA_WHEELS,
    )
    summary = f"{package} is built for {', '.join(wrong)}: import fails with undefined symbol"
    yield Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)


def _wrong_versions(built: Build, torch: Torch) -> Iterator[str]:
    minor = ".".join(torch.version.split(".")[:2])
    if built.torch and built.torch != minor:
        yield f"torch {built.torch}, installed is {torch.version}"
    own = numbers(torch.cuda or "")[:1]
    if own and own[0] != built.cuda_major:
        yield f"CUDA {built.cuda_major}, torch has CUDA {torch.cuda}"
    release = torch_release(torch.version)
    if release is None or built.cxx11_abi is None:
        return
    abi = release.cxx11_abi if release.cxx11_abi is not None else True
    if abi != built.cxx11_abi:
        yield f"the {'new' if built.cxx11_abi else 'old'} C++ ABI, torch has the other one"


@check("stack.transformer-engine", "Transformer Engine packages", tags={"fast"})
def transformer_engine(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """The versions of Transformer Engine's packages, and the CUDA of its core against torch's.

    Why: its torch part is compiled against one torch and one core; others fail at import.
    Fix disturbs: jobs that use this Python environment.
    Judges: FAIL when its packages differ in version or CUDA, WARN where only one sign was seen.
    Fix: Reinstall all its packages in one version.
    Threshold: The packages' own metadata.
    False positives: Builds from source.
    """
    packages = [package for package in target.packages if package.name.startswith("transformer-engine")]
    if not packages:
        yield Finding.skip(f"Transformer Engine is not installed in {target.label}, as far as seen")
        return
    evidence = package_said(target, *packages)
    subject = "package:transformer-engine"
    versions = {package.version.partition("+")[0] for package in packages}
    cores = [package for package in packages if _core_major(package)]
    own = numbers(torch.cuda or "")[:1]
    strangers = [core for core in cores if own and _core_major(core) != own[0]]
    newest = max(versions, key=numbers)
    wanted = f"transformer-engine[pytorch,core_cu{own[0]}]" if own else "transformer-engine[pytorch]"
    fix = Fix(
        "Remove all Transformer Engine packages and install one set, compiled against this torch.",
        (
            target.uninstall(*dict.fromkeys(package.name for package in packages)),
            target.install("--no-build-isolation", f"{wanted}=={newest}"),
        ),
        "config",
        DISTURBS,
    )
    if len(versions) > 1:
        summary = f"its packages have different versions: {', '.join(sorted(versions))}"
        yield Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    elif strangers and len(strangers) == len(cores):
        summary = f"{strangers[0]} is for CUDA {_core_major(strangers[0])}, torch has CUDA {torch.cuda}"
        yield Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    elif len(cores) > 1:
        summary = f"two core packages are installed: {', '.join(map(str, cores))}"
        yield Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
    else:
        yield Finding.ok(f"{packages[0]}, one version", subject=subject, evidence=evidence)


def _core_major(package: Package) -> int | None:
    """The CUDA major of a core (transformer-engine-cu12), None for the other packages."""
    tail = package.name.rpartition("-cu")[2]
    return int(tail) if "-cu" in package.name and tail.isdecimal() and len(tail) < 9 else None


@check("stack.toolkit", "CUDA toolkit", tags={"fast"})
def toolkit(target: TargetPython, torch: Torch) -> Iterator[Finding]:
    """The nvcc that torch's extensions would be compiled with (CUDA_HOME, PATH), against torch's CUDA.

    Why: torch does not compile extensions with a toolkit of another CUDA major; running needs no toolkit.
    Fix disturbs: nothing.
    Judges: WARN when the nvcc of the path is of another major than torch's CUDA and something here compiles;
    else a note.
    Fix: Set CUDA_HOME to the toolkit of torch's CUDA.
    Threshold: torch.utils.cpp_extension refuses another major.
    False positives: Jobs that compile nothing need no toolkit.
    Error texts:
    - mismatches the version that was used to compile PyTorch
    - does not match the version torch was compiled with
    """
    tool = target.toolkit
    if torch.hip or not torch.cuda:
        yield Finding.skip("this torch has no CUDA to build for")
    elif tool is None:
        yield Finding.info("no CUDA toolkit (needed only to compile extensions)")
    elif not numbers(tool.version):
        summary = f"{tool.home or 'the toolkit'} ({tool.why}) does not report its version"
        yield Finding.unknown("not-visible-here", summary, subject="toolkit")
    else:
        builds = next((p.name for p in target.packages if _BUILDS.fullmatch(p.name)), "")
        matters = tool.why in ("CUDA_HOME", "CUDA_PATH") or bool(builds)
        yield _judge_toolkit(target, torch, tool.version, matters)


def _judge_toolkit(target: TargetPython, torch: Torch, version: str, matters: bool) -> Finding:
    """torch.utils.cpp_extension, _check_cuda_version: another major raises, another minor warns.

    A toolkit that no variable names, beside packages that compile nothing, does no harm.
    """
    ours, theirs = numbers(torch.cuda or "")[:2], numbers(version)[:2]
    what = f"nvcc is for CUDA {version}, torch for CUDA {torch.cuda}"
    evidence = toolkit_said(target)
    if ours[:1] != theirs[:1]:
        text = f"Only for building extensions: set CUDA_HOME to a toolkit for CUDA {torch.cuda}."
        fix = Fix(text, (repair("export CUDA_HOME=/usr/local/cuda-{}", torch.cuda),), "config", "new builds")
        summary = f"{what}: extensions do not compile"
        judge = Finding.warn if matters else Finding.info
        return judge(summary, subject="toolkit", evidence=evidence, fix=fix)
    if ours != theirs:
        return Finding.info(f"{what}: works (same CUDA major)", subject="toolkit", evidence=evidence)
    return Finding.ok(what, subject="toolkit", evidence=evidence)


@check("stack.undefined-symbol", "NCCL symbols torch needs", tags={"fast"})
def undefined_symbol(target: TargetPython, torch: Torch, libraries: Libraries | None) -> Iterator[Finding]:
    """The NCCL functions libtorch_cuda.so needs against those the libnccl exports that would be loaded.

    Why: import torch ends with `undefined symbol: nccl...` when an older libnccl comes first.
    Fix disturbs: jobs that use this Python environment; running jobs keep what they have loaded.
    Judges: FAIL when the NCCL that is loaded lacks functions that torch calls.
    Fix: Remove the older libnccl from the search path.
    Threshold: The symbol tables of the two files.
    False positives: None known.
    Error texts:
    - undefined symbol: nccl
    """
    won = libraries.winner("libnccl.so") if libraries else None
    if torch.cuda == "":
        yield Finding.skip("this torch has no CUDA, so it calls no NCCL")
    elif libraries is None or libraries.nccl_missing is None:
        linked = libraries.nccl_built_in if libraries else ""
        if linked:
            yield Finding.skip(f"NCCL {linked} is linked into torch")
        else:
            summary = "NCCL symbols in torch's library could not be read"
            fix = Fix(
                "Run nodedoctor where that Python is installed.",
                (look("nodedoctor stack.undefined-symbol"),),
                "none",
            )
            yield Finding.unknown("not-visible-here", summary, fix=fix)
    elif libraries.nccl_missing and won:
        version = won[1].version if won[1] else ""
        missing = libraries.nccl_missing
        evidence = [*resolved_said(won[0]), reading(target.source, "libraries.nccl_missing")]
        rule = won[0].rule
        command = (repair("unset {}", rule),) if rule.startswith("LD_") else ()
        text = f"Remove {won[0].path} from {rule}." if command else "Install the NCCL torch requires."
        yield Finding.fail(
            f"import torch fails: undefined symbol: {first_few(missing, 3)}; NCCL {version or '?'} of "
            f"{won[0].path} ({rule}) does not have what torch {torch.version} calls",
            subject="library:libnccl",
            evidence=evidence,
            fix=Fix(text, command, "config", "new processes", "nodedoctor stack.undefined-symbol"),
        )
    else:
        where = f" ({short_path(won[0].path)})" if won else ""
        yield Finding.ok(f"all NCCL functions of torch {torch.version} found{where}")
