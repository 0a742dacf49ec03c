"""Which ways to the stacks of a job's processes work on this node, and why the others do not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from nodedoctor.blackbox.samples.sample import RankSample
from nodedoctor.blackbox.stacks import spies
from nodedoctor.children.programs import installed_with_us
from nodedoctor.record import record

CAP_SYS_PTRACE, CAP_SYS_ADMIN = 19, 21
"""Their numbers in capabilities(7)."""
OF_STACKS = (("CAP_SYS_ADMIN", CAP_SYS_ADMIN), ("CAP_SYS_PTRACE", CAP_SYS_PTRACE))
"""What the kernel asks of who reads /proc/PID/stack of another's process (Linux, fs/proc/base.c)."""
SCOPES = {
    "1": "Yama lets only parents trace (kernel.yama.ptrace_scope is 1)",
    "2": "Yama lets only root trace (kernel.yama.ptrace_scope is 2)",
    "3": "Yama forbids tracing until the next boot (kernel.yama.ptrace_scope is 3)",
}
"""https://docs.kernel.org/admin-guide/LSM/Yama.html"""
RIGHT = (
    "it needs CAP_SYS_PTRACE: as root, and in a container by `--cap-add SYS_PTRACE` (docker, podman) or"
    " `securityContext.capabilities.add: [SYS_PTRACE]` (Kubernetes)"
)
"""What is missing where a process may not trace, and how one gets it: capabilities(7), ptrace(2)."""

UNTRIED = (
    "not yet tried on GPUs: NCCL's answers (RAS), the flight recorder's pipe and how busy GPUs are at a hang"
)
"""What is read at a hang besides stacks, and was only tried on recorded answers."""


@record
class Way:
    """One way: whether it works here, and what it is or why not."""

    name: str
    works: bool
    why: str


def stack_methods(ranks: Sequence[RankSample] = (), *, hooked: bool = False) -> tuple[Way, ...]:
    """All ways; `hooked` says that the job is started with our hook."""
    return (_signal_way(ranks, hooked), _spy_way(ranks), _kernel_way())


def phrase(ranks: Sequence[RankSample]) -> str:
    """The ways that work for these ranks, in one line."""
    methods = stack_methods(ranks)
    working = [way.why for way in methods if way.works]
    return "; ".join(working) if working else "; ".join(way.why for way in methods)


def _signal_way(ranks: Sequence[RankSample], hooked: bool) -> Way:
    if hooked or any(rank.stacks for rank in ranks):
        return Way("signal", True, "by the signal that the ranks have registered")
    return Way("signal", False, "the job was started without the stack hook (`nodedoctor arm`)")


def _spy_way(ranks: Sequence[RankSample]) -> Way:
    spy_paths = spies(ranks)
    if not spy_paths:
        return Way(
            "py-spy",
            False,
            "no py-spy here can be run (pip install py-spy; not on a file system without programs, noexec)",
        )
    if scope := forbids(ranks):
        return Way("py-spy", False, f"py-spy may not look: {scope}")
    ours = spy_paths[0] == installed_with_us("py-spy")
    return Way("py-spy", True, "by py-spy" if ours else f"by py-spy ({spy_paths[0]})")


def forbids(ranks: Iterable[RankSample]) -> str:
    """Why this process may not trace the ranks and by what right it might, before trying; '' where it may."""
    if os.geteuid() == 0 and _has_capability(CAP_SYS_PTRACE):
        return ""
    scope = _read_file("/proc/sys/kernel/yama/ptrace_scope").strip()
    if scope == "3":
        return SCOPES[scope]  # no right is enough
    if scope in SCOPES:
        return f"{SCOPES[scope]}; {RIGHT}"
    for rank in ranks:
        try:
            owner = os.stat(f"/proc/{rank.pid}/mem").st_uid
        except OSError:
            continue
        if owner != os.geteuid():
            return f"process {rank.pid} is another user's, or has made itself undumpable; {RIGHT}"
        if _read_capabilities(rank.pid, "CapPrm") & ~_read_capabilities("self", "CapPrm"):
            return f"process {rank.pid} has capabilities that this one lacks; {RIGHT}"
    return ""


def _has_capability(capability: int) -> bool:
    """True for a capability that is in force here; root in a container often lacks some."""
    return bool(_read_capabilities("self", "CapEff") >> capability & 1)


def _read_capabilities(pid: int | str, kind: str) -> int:
    """A set of capabilities of a process; all of ours and none of another's where it cannot be read."""
    rows = (row.split() for row in _read_file(f"/proc/{pid}/status").splitlines())
    unknown = -1 if pid == "self" else 0
    return next((int(row[1], 16) for row in rows if row and row[0] == f"{kind}:"), unknown)


def _kernel_way() -> Way:
    missing = [name for name, number in OF_STACKS if not _has_capability(number)]
    if not missing:
        return Way("kernel", True, "the kernel's stacks, system calls and wait channels")
    return Way(
        "kernel", True, f"the kernel's states and wait channels (its stacks need {' and '.join(missing)})"
    )


def _read_file(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(16384)
    except OSError:
        return ""
