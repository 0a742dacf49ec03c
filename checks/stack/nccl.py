"""Does torch run with the NCCL it was built for, and with no other one?"""

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.libraries import Libraries, LibraryCopy, Resolved
from nodedoctor.facts.stack.packages import Package
from nodedoctor.facts.stack.places import library_said, package_said, pin_said
from nodedoctor.facts.stack.probe import ImportedTorch
from nodedoctor.facts.stack.requirements import (
    Pin,
    older,
    requirements_seen,
    same_release,
    torch_pin,
    wheels_of,
)
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.model import Finding, Fix, reading
from nodedoctor.steps import look, without_entry
from nodedoctor.wording import comma_list

DISTURBS = "jobs that use this Python environment; running jobs keep the NCCL they have loaded"
VLLM_WHEEL = "vllm-nccl-"
"""vLLM 0.4 downloaded an NCCL of its own at install time, and loads that one for its collectives."""


@check("stack.nccl-pin", "NCCL package version", tags={"fast"}, without=(Libraries,))
def nccl_pin(target: TargetPython, torch: Torch, libraries: Libraries | None) -> Iterator[Finding]:
    """The installed nvidia-nccl package against torch's requirement, from its metadata or the table.

    Why: torch calls functions of the NCCL it was built with. An older one lacks them (undefined symbol at
    import) or has known bugs; ranks with different versions fail at init or hang.
    Fix disturbs: jobs that use this Python environment; running jobs keep the NCCL they have loaded.
    Judges: FAIL when NCCL is missing, overwritten or older than torch requires, WARN when it is another
    version.
    Fix: Reinstall the pinned nvidia-nccl package.
    Threshold: torch's metadata, and the torch_pins table.
    False positives: Newer NCCL of the same major, put in on purpose, is a note.
    """
    pin = torch_pin(target, torch, "nccl")
    installed = wheels_of(target, "nccl")
    if torch.cuda == "":
        yield Finding.skip("this torch has no CUDA, so it uses no NCCL")
    elif pin is None and requirements_seen(target):
        linked = libraries.nccl_built_in if libraries else ""
        yield Finding.skip(
            "this torch requires no NCCL package" + (f" ({linked} is built in)" if linked else "")
        )
    elif pin is None:
        yield _not_told(target, torch)
    else:
        package = next((package for package in installed if package.name == pin.wanted.name), None)
        yield (
            _missing_package(target, torch, pin, installed)
            if package is None
            else _judge_pin(target, torch, pin, package)
        )
        if package is not None and libraries is not None:
            yield from _judge_overwritten(target, pin, package, libraries)


def _not_told(target: TargetPython, torch: Torch) -> Finding:
    return Finding.unknown(
        "not-visible-here",
        f"which NCCL torch {torch.version} requires is not known: its metadata was not seen, and the table "
        "of official wheels has no such build",
        subject="package:nccl",
        fix=Fix(
            "Run nodedoctor where that Python is installed.", (look("nodedoctor stack.nccl-pin"),), "none"
        ),
    )


def _missing_package(target: TargetPython, torch: Torch, pin: Pin, others: tuple[Package, ...]) -> Finding:
    subject = f"package:{pin.wanted.name}"
    what = f"torch {torch.version} requires {pin.wanted}"
    if not target.complete and not others:
        return Finding.unknown("not-visible-here", f"{what}; the paste lists no NCCL", subject=subject)
    installed = f"installed: {comma_list(others)}" if others else "no NCCL package is installed"
    fix = Fix(
        "Install NCCL.", (target.install(str(pin.wanted)),), "config", DISTURBS, "nodedoctor stack.nccl-pin"
    )
    evidence = pin_said(target, pin.wanted.name)
    return Finding.fail(f"{what}, {installed}", subject=subject, evidence=evidence, fix=fix)


def _judge_pin(target: TargetPython, torch: Torch, pin: Pin, package: Package) -> Finding:
    """An older minor version lacks functions: FAIL. Any other difference was not tested together: WARN."""
    subject = f"package:{package.name}"
    evidence = [*pin_said(target, pin.wanted.name), *package_said(target, package)]
    allowed = pin.wanted.allows(package.version)
    if allowed:
        return Finding.ok(f"{package}, as torch {torch.version} requires", subject=subject, evidence=evidence)
    if allowed is None:
        summary = f"{package.name} {package.version!r} is no version to compare with {pin.wanted}"
        return Finding.unknown("unparsable", summary, subject=subject, evidence=evidence)
    summary = f"{package} is installed, torch {torch.version} requires {pin.wanted}"
    command = target.install(str(pin.wanted))
    fix = Fix(
        "Install the NCCL version torch was built with.",
        (command,),
        "config",
        DISTURBS,
        "nodedoctor stack.nccl-pin",
    )
    behind = older(package.version, pin.wanted.exact or "")
    judge = Finding.fail if behind else Finding.warn
    return judge(summary, subject=subject, evidence=evidence, fix=fix)


def _judge_overwritten(
    target: TargetPython, pin: Pin, package: Package, libraries: Libraries
) -> Iterator[Finding]:
    """All nvidia-nccl wheels write the same file: the last one installed wins, whatever the metadata says."""
    files = [
        copy for copy in libraries.family("nccl") if copy.path.startswith(f"{package.location}/nvidia/nccl/")
    ]
    for file in files:
        if file.version and not same_release(file.version, package.version):
            yield Finding.fail(
                f"{package} is installed, but its file is NCCL {file.version} for CUDA {file.cuda}: another "
                "package has overwritten it",
                subject=f"file:{file.path}",
                evidence=library_said(file),
                fix=Fix(
                    "Remove all NCCL packages and install the one torch requires.",
                    (
                        target.uninstall(*(wheel.name for wheel in wheels_of(target, "nccl"))),
                        target.install(str(pin.wanted)),
                    ),
                    "config",
                    DISTURBS,
                ),
            )


@check("stack.nccl-copies", "NCCL that torch loads", tags={"fast"}, without=(ImportedTorch,))
def nccl_copies(
    target: TargetPython, torch: Torch, libraries: Libraries | None, imported: ImportedTorch | None
) -> Iterator[Finding]:
    """Every libnccl on the search path, its version, which one torch loads in this environment, and why.

    Why: an LD_LIBRARY_PATH of a module system or image may put another NCCL before torch's on some nodes;
    mixed versions fail at init or hang.
    Fix disturbs: nothing; new processes load the other library.
    Judges: FAIL or WARN when another libnccl than torch's own is loaded first.
    Fix: Remove the other copy from LD_LIBRARY_PATH or the environment.
    Threshold: The rules of the dynamic loader (ld.so(8)).
    False positives: A system NCCL that was put first on purpose and fits torch.
    """
    yield from _judge_vllm(target, libraries)
    if torch.cuda == "":
        yield Finding.skip("this torch has no CUDA, so it loads no NCCL")
    elif libraries is None:
        yield Finding.unknown(
            "not-visible-here",
            "a package list does not show which libnccl is loaded",
            fix=Fix(
                "Run nodedoctor where that Python is installed.",
                (look("nodedoctor stack.nccl-copies"),),
                "none",
            ),
        )
    else:
        yield from _judge_copies(target, torch, libraries)
        yield from _told_by_torch(libraries, imported)


def _judge_copies(target: TargetPython, torch: Torch, libraries: Libraries) -> Iterator[Finding]:
    pin, won = torch_pin(target, torch, "nccl"), libraries.winner("libnccl.so")
    evidence = [quote for copy in libraries.family("nccl") for quote in library_said(copy)]
    subject = "library:libnccl"
    if won is None and libraries.nccl_built_in:
        yield Finding.ok(
            f"NCCL {libraries.nccl_built_in} is built into torch", subject=subject, evidence=evidence
        )
    elif won is None:
        yield Finding.unknown("not-visible-here", "torch's own libraries could not be read", subject=subject)
    elif won[1] is None:
        fix = Fix("Install NCCL.", (target.install(str(pin.wanted)),), "config", DISTURBS) if pin else None
        summary = f"torch needs {won[0].name}, and no place it looks in has one: import torch fails"
        yield Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    else:
        yield _judge_winner(target, pin, won[0], won[1], libraries.family("nccl"))


def _judge_winner(
    target: TargetPython, pin: Pin | None, rule: Resolved, copy: LibraryCopy, copies: tuple[LibraryCopy, ...]
) -> Finding:
    ordered = (copy, *(peer for peer in copies if peer is not copy))
    evidence = [quote for library in ordered for quote in library_said(library)]
    subject = "library:libnccl"
    what = f"torch would load NCCL {copy.version or '?'} ({rule.rule})"
    others = sorted({peer.version for peer in copies if peer.version not in ("", copy.version)})
    if not copy.version:
        return Finding.unknown(
            "unparsable", f"{what}: its version could not be read", subject=subject, evidence=evidence
        )
    if pin is None or pin.wanted.allows(copy.version) or same_release(copy.version, pin.wanted.exact or ""):
        build = Finding.info if others else Finding.ok
        rest = f"; not loaded: {', '.join(others)}" if others else ""
        return build(what + rest, subject=subject, evidence=evidence)
    judge = Finding.fail if older(copy.version, pin.wanted.exact or "") else Finding.warn
    summary = f"{what}, torch requires {pin.wanted.exact or pin.wanted}"
    return judge(summary, subject=subject, evidence=evidence, fix=_winner_fix(target, pin, rule))


def _told_by_torch(libraries: Libraries, imported: ImportedTorch | None) -> Iterator[Finding]:
    """The version of the NCCL that answered once torch was imported, where it is not the predicted one."""
    version = ".".join(imported.nccl) if imported else ""
    won = libraries.winner("libnccl.so")
    if version and won and won[1] and won[1].version and not same_release(version, won[1].version):
        yield Finding.warn(
            f"torch, once imported, uses NCCL {version}, not {won[1].version} from {won[0].path}",
            subject="library:libnccl-imported",
            evidence=[reading("target-torch", "deep.nccl")],
        )


def _winner_fix(target: TargetPython, pin: Pin, rule: Resolved) -> Fix:
    if rule.rule in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
        folder = rule.path.rpartition("/")[0]
        what = rule.path if rule.rule == "LD_PRELOAD" else folder
        text = f"Remove {what} from {rule.rule} where the job is started."
        steps = (without_entry(rule.rule, what),)
        return Fix(text, steps, "config", "new processes", "nodedoctor stack.nccl-copies")
    text = "Install the NCCL version torch was built with, even if it is listed: its file was replaced."
    command = target.reinstall(str(pin.wanted))
    return Fix(text, (command,), "config", DISTURBS, "nodedoctor stack.nccl-copies")


def _judge_vllm(target: TargetPython, libraries: Libraries | None) -> Iterator[Finding]:
    """vLLM's own NCCL, which its collectives use beside torch's."""
    for package in target.packages:
        if package.name.startswith(VLLM_WHEEL):
            own = ".".join(package.version.split(".")[:3])
            torchs = next((str(wheel) for wheel in wheels_of(target, "nccl")), "torch's own")
            yield Finding.warn(
                f"{package} makes vLLM load NCCL {own}, torch uses {torchs}",
                subject=f"package:{package.name}",
                evidence=package_said(target, package),
                fix=Fix(
                    "Update vLLM (0.5 and later use torch's NCCL) and remove this package.",
                    (target.uninstall(package.name),),
                    "config",
                    DISTURBS,
                ),
            )
            return
    for copy in libraries.family("nccl") if libraries else ():
        if "vLLM" in copy.found:
            yield Finding.info(
                f"vLLM would load NCCL {copy.version} from {copy.path}", subject=f"file:{copy.path}"
            )
