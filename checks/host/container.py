"""Are we in a container, and does it hold what its image's name promises?"""

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.host.container import Container, image_said
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.knowledge.versions.containers import ImagePromise, promise
from nodedoctor.knowledge.versions.cuda import cuda_version
from nodedoctor.model import Evidence, Expect, Finding, Fix

_NAMESPACES = {
    "net": "NCCL sees only the container's interfaces; multi-node jobs need --network=host or similar",
    "ipc": "own /dev/shm",
    "pid": "the driver reports pids of the host, not valid here",
    "user": "root here is an ordinary user on the host: limits and IPC_LOCK are the host user's",
}
"""What a private namespace means to training."""


@check("container.runtime", "Container runtime", tags={"fast"})
def runtime(container: Container) -> Iterator[Finding]:
    """Which container runtime this process runs in, and which namespaces it does not share with the host.

    Why: shared memory, limits, network interfaces and visibility depend on it, and so do the fixes.
    Judges: Never a FAIL: it names the runtime and notes private namespaces; the limits and network checks
    judge what follows.
    Fix: Start the container with the host's network or IPC namespace if the job needs it.
    Threshold: No threshold.
    False positives: A system installed from a container image looks like a container in some files; that is
    said as a note.
    """
    evidence = container.said
    if not container.inside:
        if container.marks:
            summary = "not in a container (the system was installed from a container image)"
            yield Finding.info(summary, evidence=evidence)
        else:
            yield Finding.ok("not in a container")
        return
    private = sorted(kind for kind, sharing in container.namespaces.items() if sharing == "private")
    meaning = [f"{kind}: {_NAMESPACES[kind]}" for kind in private if kind in _NAMESPACES]
    name = "a container of unknown type" if container.runtime == "unknown" else f"{container.runtime}"
    own = (
        f"own namespaces: {', '.join(private)}"
        if private
        else "shares the host's namespaces, as far as visible"
    )
    finding = Finding.info(f"{name}; {own}", evidence=evidence)
    yield finding.matters_as(f"Own namespaces: {'; '.join(meaning)}.") if meaning else finding


@check("container.image", "Container image versions", tags={"fast"}, stage="preview")
def image(
    container: Container, target: TargetPython | None, torch: Torch | None, expect: Expect
) -> Iterator[Finding]:
    """The image's name, from the runtime, its environment or --expect image=NAME, against what is installed.

    Why: a pip install into the image, or a virtual environment next to it, silently replaces the versions
    that the image was tested with and that the other nodes run.
    Fix disturbs: the container (it must be recreated from the image).
    Judges: WARN when installed packages differ from what the image's name promises.
    Fix: Start the container from the image again, and put additions into an image of its own.
    Threshold: The containers table: contents of NVIDIA's and Ray's image tags, from their release notes.
    False positives: An image derived on purpose that keeps the name of its base.
    """
    name = expect.get("image") or container.image
    if name is None:
        if container.inside:
            yield _unnamed_runtime()
        else:
            yield Finding.skip("not in a container")
        return
    said_by = "--expect" if expect.get("image") else container.image_said_by
    evidence = image_said(container) if said_by != "--expect" else []
    promised = promise(name)
    if promised is None:
        yield Finding.info(f"{name}: the name contains no versions", subject="image", evidence=evidence)
        return
    if target is None:
        fix = Fix("Pass the training interpreter with --python PATH.", action="none")
        summary = f"{name}: the training Python is not visible"
        yield Finding.unknown("not-visible-here", summary, subject="image", evidence=evidence, fix=fix)
        return
    yield from _compare_promise(promised, target, torch, evidence)


def _unnamed_runtime() -> Finding:
    fix = Fix(
        "Pass the image's name with --expect image=NAME (see docker inspect, the pod's spec "
        "or the job file).",
        action="none",
    )
    return Finding.unknown("not-visible-here", "image name unknown in this container", fix=fix)


def _compare_promise(
    promised: ImagePromise, target: TargetPython, torch: Torch | None, evidence: list[Evidence]
) -> Iterator[Finding]:
    """One finding per promise that can be compared."""
    count = 0
    for what, wanted, installed in _promised_pairs(promised, target, torch):
        count += 1
        if installed is None:
            summary = f"{what} {wanted} in the image's name, not installed in {target.label}"
            yield Finding.warn(
                summary, subject=what, evidence=evidence, fix=_version_fix(what, wanted, promised, target)
            )
        elif _same_version(what, wanted, installed):
            yield Finding.ok(f"{what} {installed}, as in the image's name", subject=what, evidence=evidence)
        else:
            summary = f"{what} {installed}, the image's name says {wanted} ({target.label})"
            yield Finding.warn(
                summary, subject=what, evidence=evidence, fix=_version_fix(what, wanted, promised, target)
            )
    if not count:
        summary = f"{promised.image}: nothing in the name to compare"
        yield Finding.info(summary, subject="image", evidence=evidence)


def _promised_pairs(
    promised: ImagePromise, target: TargetPython, torch: Torch | None
) -> Iterator[tuple[str, str, str | None]]:
    """What is promised, in which version, and which version is there (None: not installed)."""
    if promised.python and target.version:
        yield "python", promised.python, target.version
    for name in ("ray", "vllm"):
        wanted: str = getattr(promised, name)
        package = target.package(name)
        if wanted and (package is not None or target.complete):
            yield name, wanted, package.version if package else None
    if promised.torch and (torch is not None or target.complete):
        yield "torch", promised.torch, torch.version if torch else None
    # The toolkit of an image may differ from torch's CUDA: pip wheels bring their own. Where the image also
    # promises torch, or Ray (whose images are made for one CUDA of torch), the two belong together.
    if promised.cuda and torch is not None and torch.cuda and (promised.torch or promised.ray):
        yield "cuda", f"{promised.cuda[0]}.{promised.cuda[1]}", torch.cuda


def _same_version(what: str, wanted: str, installed: str) -> bool:
    """Kept as far as it goes: Python 3.12 by 3.12.4, torch 2.9.1 by 2.9.1+cu128, CUDA by its major."""
    if what == "cuda":
        ours, theirs = cuda_version(wanted), cuda_version(installed)
        return ours is not None and theirs is not None and ours[0] == theirs[0]
    version, _, commit = wanted.partition("+")
    base, _, local = installed.partition("+")
    built = local.partition(".")[0]  # 145a3a7bda.nv25.10: the commit may be written shorter
    same_commit = not commit or (built != "" and (commit.startswith(built) or built.startswith(commit)))
    return bool(re.match(rf"{re.escape(version)}(?![0-9])", base)) and same_commit


def _version_fix(what: str, wanted: str, promised: ImagePromise, target: TargetPython) -> Fix:
    command = (
        ()
        if what in ("python", "cuda") or promised.torch == wanted
        else (target.install(f"{what}=={wanted}"),)
    )
    return Fix(
        "Decide which version is intended. For the image's own versions, recreate the container and install "
        "nothing over it, or point --python at its own interpreter; else rebuild the image.",
        command,
        action="config",
        disturbs="the container, when it is recreated",
        verify="nodedoctor container.image",
    )
