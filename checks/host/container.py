"""Are we in a container, and does it hold what its image's name promises?"""

import re
from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.torch_build import Torch
from nodedoctor.knowledge.versions.containers import ImagePromise, promise
from nodedoctor.knowledge.versions.cuda import cuda_version
from nodedoctor.model import Evidence, Expect, Finding, Fix

_NAMESPACES = {
    "net": "NCCL sees only the container's interfaces, and several nodes need --network=host or the like",
    "ipc": "/dev/shm is its own",
    "pid": "the driver reports pids of the host, which name nothing here",
    "user": "root here is an ordinary user of the host: limits and IPC_LOCK are the host user's",
}
"""What a private namespace means to training."""


@check("container.runtime", "The container runtime is known", tags={"fast"})
def runtime(container: Container) -> Iterator[Finding]:
    """Which container runtime this process runs in, and which namespaces it does not share with the host.

    Why: shared memory, limits, network interfaces and what can be seen at all depend on it, and so does the
    way to change them.
    Judges: Never a FAIL: it names the runtime and notes private namespaces; the limits and network checks
    judge what follows.
    Fix: Start the container with the host's network or IPC namespace if the job needs it.
    Threshold: No threshold.
    False positives: A system installed from a container image looks like a container in some files; that is
    said as a note.
    """
    evidence = [Evidence("container", mark) for mark in container.marks]
    if not container.inside:
        if container.marks:
            summary = "not in a container, although the system was installed from the image of one"
            yield Finding.info(summary, evidence=evidence)
        else:
            yield Finding.ok("not in a container")
        return
    private = sorted(kind for kind, sharing in container.namespaces.items() if sharing == "private")
    meaning = [f"{kind}: {_NAMESPACES[kind]}" for kind in private if kind in _NAMESPACES]
    name = "a container of an unknown kind" if container.runtime == "unknown" else f"{container.runtime}"
    own = (
        f"own namespaces: {', '.join(private)}"
        if private
        else "it shares the host's namespaces, as far as seen"
    )
    summary = f"{name}; {own}" + (f" ({'; '.join(meaning)})" if meaning else "")
    yield Finding.info(summary, evidence=evidence)


@check("container.image", "The image holds what its name promises", tags={"fast"}, stage="preview")
def image(
    container: Container, target: TargetPython | None, torch: Torch | None, expect: Expect
) -> Iterator[Finding]:
    """The image's name, from the runtime, its environment or --expect image=NAME, against what is installed.

    Why: a pip install into the image, or a virtual environment beside it, silently replaces the versions that
    the image was tested with and that the other nodes run.
    Fix disturbs: the container, which has to be started anew from the image.
    Judges: WARN when installed packages differ from what the image's name promises.
    Fix: Start the container from the image again, and put additions into an image of its own.
    Threshold: The containers table: contents of NVIDIA's and Ray's image tags, from their release notes.
    False positives: An image derived on purpose that keeps the name of its base.
    """
    name = expect.get("image") or container.image
    if name is None:
        if container.inside:
            yield _unnamed()
        else:
            yield Finding.skip("not in a container")
        return
    said_by = "--expect" if expect.get("image") else container.image_said_by
    evidence = Evidence("container", f"{said_by}: {name}")
    promised = promise(name)
    if promised is None:
        yield Finding.info(f"{name}: its name promises no versions", subject="image", evidence=[evidence])
        return
    if target is None:
        fix = Fix("Name the interpreter that trains with --python PATH.", action="none")
        summary = f"{name}: the Python that trains could not be seen"
        yield Finding.unknown("not-visible-here", summary, subject="image", evidence=[evidence], fix=fix)
        return
    yield from _compare(promised, target, torch, evidence)


def _unnamed() -> Finding:
    fix = Fix(
        "Say which image it is, with --expect image=NAME; docker inspect, the pod's spec or the job's file "
        "knows.",
        action="none",
    )
    return Finding.unknown("not-visible-here", "nothing in this container names its image", fix=fix)


def _compare(
    promised: ImagePromise, target: TargetPython, torch: Torch | None, evidence: Evidence
) -> Iterator[Finding]:
    """One finding per promise that can be compared."""
    count = 0
    for what, said, found in _pairs(promised, target, torch):
        count += 1
        if found is None:
            summary = f"{what} {said} is promised and not installed in {target.label}"
            yield Finding.warn(
                summary, subject=what, evidence=[evidence], fix=_fix(what, said, promised, target)
            )
        elif _same(what, said, found):
            yield Finding.ok(f"{what} {found}, as promised", subject=what, evidence=[evidence])
        else:
            summary = f"{what} is {found}, and the image promises {said} ({target.label})"
            yield Finding.warn(
                summary, subject=what, evidence=[evidence], fix=_fix(what, said, promised, target)
            )
    if not count:
        summary = f"{promised.image}: its name promises nothing that can be compared"
        yield Finding.info(summary, subject="image", evidence=[evidence])


def _pairs(
    promised: ImagePromise, target: TargetPython, torch: Torch | None
) -> Iterator[tuple[str, str, str | None]]:
    """What is promised, in which version, and which version is there (None: not installed)."""
    if promised.python and target.version:
        yield "python", promised.python, target.version
    for name in ("ray", "vllm"):
        said: str = getattr(promised, name)
        package = target.package(name)
        if said and (package is not None or target.complete):
            yield name, said, package.version if package else None
    if promised.torch and (torch is not None or target.complete):
        yield "torch", promised.torch, torch.version if torch else None
    # The toolkit of an image may differ from torch's CUDA: pip wheels bring their own. Where the image also
    # promises torch, or Ray (whose images are made for one CUDA of torch), the two belong together.
    if promised.cuda and torch is not None and torch.cuda and (promised.torch or promised.ray):
        yield "cuda", f"{promised.cuda[0]}.{promised.cuda[1]}", torch.cuda


def _same(what: str, said: str, found: str) -> bool:
    """Kept as far as it goes: Python 3.12 by 3.12.4, torch 2.9.1 by 2.9.1+cu128, CUDA by its major."""
    if what == "cuda":
        ours, theirs = cuda_version(said), cuda_version(found)
        return ours is not None and theirs is not None and ours[0] == theirs[0]
    version, _, commit = said.partition("+")
    base, _, local = found.partition("+")
    built = local.partition(".")[0]  # 145a3a7bda.nv25.10: the commit may be written shorter
    same_commit = not commit or (built != "" and (commit.startswith(built) or built.startswith(commit)))
    return bool(re.match(rf"{re.escape(version)}(?![0-9])", base)) and same_commit


def _fix(what: str, said: str, promised: ImagePromise, target: TargetPython) -> Fix:
    command = (
        () if what in ("python", "cuda") or promised.torch == said else (target.install(f"{what}=={said}"),)
    )
    return Fix(
        "Decide which of the two is meant. To have what the image was built with, start it anew and "
        "install nothing over it, or point --python at its own interpreter; else build an image anew.",
        command,
        action="config",
        disturbs="the container, when it is started anew",
        verify="nodedoctor container.image",
    )
