"""Fixes for one kind of evidence, with the ports, addresses and devices of its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from nodedoctor.model import Fix
from nodedoctor.steps import look, looks, repair
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.cuda import GpuFull
from nodedoctor.triage.patterns.exits import LauncherSignalled, ProcessExit
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import DriveError, NodeLost, XidReported
from nodedoctor.triage.patterns.nccl import DuplicateGpu, VirtualInterface
from nodedoctor.triage.patterns.stacks import source_place
from nodedoctor.triage.patterns.store import ClientsMissing, CollectiveMismatch
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.unclassified import UnclassifiedError
from nodedoctor.triage.timeline.node_reports import NodeFault
from nodedoctor.triage.verdict.advice.fix_table import BY_CAUSE, BY_FAMILY, BY_NAME, Fixes
from nodedoctor.triage.verdict.causes.families import family_of
from nodedoctor.triage.verdict.causes.symptoms import COLOCATED
from nodedoctor.triage.verdict.causes.xids import of_program

_PORT = re.compile(r"(?:[Pp]ort:? ?|\]:|\d:|\w:)(\d{2,5})\b")
_ADDRESS = re.compile(r"(?:onnect to |\[|\()([\w.-]+?)\]?(?:[<:]|, )(\d{2,5})")
_BRIDGES = {
    "docker0": re.compile(r"172\.17\.0\.1$"),
    "virbr0": re.compile(r"192\.168\.122\.1$"),
    "cni-podman0": re.compile(r"10\.88\.0\.1$"),
    "lxcbr0": re.compile(r"10\.0\.3\.1$"),
}
"""Addresses that every node has for itself, where its bridges keep their defaults: docs.docker.com (bridge),
wiki.libvirt.org (default network), podman-network-create(1), lxc-net(8)."""
HCA = re.compile(r"\b((?:mlx5|bnxt_re|irdma|hfi1|rocep[^\W_]{0,40}|ibp[^\W_]{0,40})_\w{1,60})\b")


def fixes_for_event(
    event: Event[Any], frameworks: Collection[str] = (), *, several_adapters: bool = False
) -> Fixes:
    """The fixes for this kind of event; none when its cause's general ones are right.

    `frameworks` are those that the logs name. A node's fault brings the fix of its check. Where
    `several_adapters` had the error, to leave one out repairs nothing.
    """
    what = event.what
    if isinstance(what, GpuFull):
        if event.who.role == "rollout" and not what.crowded:
            return BY_NAME["engine-full"]
        return _fix_crowded_gpu(what) if what.crowded else _fix_full_gpu(what, frameworks)
    if isinstance(what, UnclassifiedError) or what is Mark.UNREAD_TROUBLE:
        return _fix_by_message(event.text)
    if isinstance(what, Symptom) and what.name in _BY_LINE:
        fixes = _BY_LINE[what.name](event.text)
        return tuple(fix for fix in fixes if not several_adapters or fix.text != _WITHOUT_ADAPTER)
    make_fixes = _BY_KIND.get(type(what))
    return make_fixes(what) if make_fixes is not None else ()


def _fix_by_message(text: str) -> Fixes:
    """By the words of an exception or of a line."""
    kind = family_of(text)
    fixes = BY_FAMILY.get(kind.name, ()) if kind is not None else ()
    return fixes or next((fixes for words, fixes in _BY_MESSAGE if words.search(text)), ())


def _fix_exception(what: ExceptionRaised) -> Fixes:
    """By its words; where nothing else is known of it, the place to begin."""
    where = source_place(what.frames)
    begin = f"Begin at {where}: the last call in that traceback that is not Python's own."
    return _fix_by_message(f"{what.type}: {what.message}") or (_make_fix(begin) if where else ())


def _fix_xid(what: XidReported) -> Fixes:
    if what.switch:
        return ()
    meaning = Fix("Look up the meaning and action of this Xid.", (look("nodedoctor explain {}", what.code),))
    if of_program(what):
        return (*BY_NAME["cuda-program-fault"], meaning)
    return (meaning, Fix("Diagnose the node before the next job.", (look("nodedoctor"),), "drain"))


def _fix_unjoined(what: ClientsMissing) -> Fixes:
    absent = what.expected - what.arrivals
    return (
        Fix(
            f"Find the {absent} missing: no log of its own, an error before torch.distributed"
            " began, or a node that cannot reach the store's address."
        ),
        Fix(f"Compare WORLD_SIZE ({what.expected}) with the processes that the launchers start together."),
    )


def _fix_crowded_gpu(what: GpuFull) -> Fixes:
    """Others held the memory: a smaller batch would not have helped."""
    whose = look("ps -o user,pid,etime,args -p {}", what.holder) if what.holder is not None else None
    look_up = look("nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv")
    return (
        Fix(
            "Check whose process holds the GPU: a leftover of an earlier job, another user's, or a second"
            " rank of this job on the same GPU. In a container the process ids may be the host's.",
            (look_up, *([whose] if whose is not None else [])),
            "investigate",
        ),
    )


def _fix_full_gpu(what: GpuFull, frameworks: Collection[str]) -> Fixes:
    """Less memory per step; another allocator only where fragments hold what was asked for.

    vLLM's sleep mode asserts that PYTORCH_CUDA_ALLOC_CONF has no expandable segments (vllm
    device_allocator/cumem.py), so that nothing is advised where vLLM may share the process.
    """
    less = BY_CAUSE["peer_cuda_oom"]
    if not what.fragmented or not COLOCATED.isdisjoint(frameworks):
        return less
    grow = Fix(
        "More than was asked for is reserved and free in fragments: let the allocator grow its segments (from"
        " torch 2.9 the variable is PYTORCH_ALLOC_CONF).",
        (look("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),),
        "config",
    )
    return (grow, *less)


def _fix_port_in_use(text: str) -> Fixes:
    port = _PORT.search(text)
    steps = (look("ss -ltnp {}", f"sport = :{port[1]}"),) if port else (look("ss -ltnp"),)
    return (
        Fix("Check which process uses the port: often a leftover of the last run.", steps),
        Fix(
            "Or let the job choose a free one: --rdzv-endpoint with port 0, or another master port.",
            (),
            "config",
        ),
    )


def _fix_listen_error(text: str) -> Fixes:
    if "ermission denied" in text:
        return (Fix("Take a port above 1023: the lower ones need privileges.", (), "config"),)
    if "annot assign requested address" in text:
        why = "The master address must be one of the first node's own."
        return (Fix(why, (look("ip -br addr"),), "config"),)
    return _fix_port_in_use(text)


def _fix_bridge_address(interface: str, address: str) -> Fixes:
    """A rank published an address at which every other node finds itself."""
    without = looks("ip -br addr", "ip route", "export NCCL_SOCKET_IFNAME=^docker,virbr,cni,lxc,lo")
    return (
        Fix(
            f"{address} is by default the address of {interface} on every node, and no other node reaches it:"
            " exclude such interfaces, or name the one that has the route to the other nodes.",
            without,
            "config",
        ),
    )


def _fix_refused(text: str) -> Fixes:
    where = _ADDRESS.search(text)
    bridge = next((name for name, pattern in _BRIDGES.items() if where and pattern.match(where[1])), None)
    if bridge is not None and where is not None:
        return _fix_bridge_address(bridge, where[1])
    steps = (look("nc -zv {} {}", where[1], where[2]),) if where else ()
    if "refused" in text:
        why = (
            "The host responds but nothing listens on the port: the process exited or never "
            "started. Read its log."
        )
    else:
        why = "Check that every node can reach this address, and that no firewall blocks it."
    return (
        Fix(why, steps),
        Fix("Check which interface has the route to it.", (look("ip -br addr"), look("ip route"))),
    )


def _fix_limit(name: str, ulimit: str) -> Callable[[str], Fixes]:
    def fixes(_: str) -> Fixes:
        return (
            Fix(
                f"Raise the limit of {name} for the process that hit it, before it is started: for Ray before"
                " `ray start`, for a service in its unit, for a container with --ulimit.",
                (repair(ulimit),),
                "config",
            ),
            Fix("Check the limits of the running processes.", (look("nodedoctor limits"),)),
        )

    return fixes


def _fix_own_side(text: str) -> Fixes:
    """Without an error's number: perhaps the limit of locked memory, which queues and buffers use.

    EFAULT of a registration is memory that the adapter's driver does not know, as that of a GPU.
    """
    if "Bad address" in text:
        return BY_NAME["ib-memory-refused"]
    limit = Fix(
        "Check the limit of locked memory in the job, not in a shell: it should be unlimited.",
        (look("ulimit -l"),),
    )
    return (limit, *_fix_adapter(text))


def _fix_adapter(text: str) -> Fixes:
    match = HCA.search(text)
    first = BY_CAUSE["network_ib"][0]
    if match is None:
        return (first,)
    without = repair("export NCCL_IB_HCA={}", f"^{match[1]}")
    return (first, Fix(_WITHOUT_ADAPTER, (without,), "config"))


_WITHOUT_ADAPTER = "Exclude the NIC until it is repaired."


def _make_fix(text: str) -> Fixes:
    return (Fix(text, (), "config"),)


_BY_MESSAGE = (
    (
        re.compile(r"CalledProcessError: Command "),
        _make_fix("Run that command by itself on the same node: its own output says why it failed."),
    ),
    (
        re.compile(r"Expected to have finished reduction in the prior iteration"),
        _make_fix(
            "Some parameters took no part in the loss on some rank: let all of them take part, or give"
            " DistributedDataParallel find_unused_parameters=True."
        ),
    ),
)
"""By what an exception says, where its family says nothing; the first that fits."""

_BY_LINE: dict[str, Callable[[str], Fixes]] = {
    "port-in-use": _fix_port_in_use,
    "port-taken": lambda text: _fix_port_in_use(text)[:1],
    "cannot-listen": _fix_listen_error,
    "connect-failed": _fix_refused,
    "coordinator-unreachable": _fix_refused,
    "store-unreachable": _fix_refused,
    "no-route": _fix_refused,
    "open-files": _fix_limit("open files", "ulimit -n 1048576"),
    "threads": _fix_limit("processes and threads", "ulimit -u unlimited"),
    "memlock": _fix_limit("locked memory", "ulimit -l unlimited"),
    "ib-completion-error": _fix_adapter,
    "ib-event": _fix_adapter,
    "ib-setup": _fix_adapter,
    "ib-left-out": _fix_adapter,
    "ib-own-side": _fix_own_side,
}
"""By the name of a symptom whose line has a port, an address or a device for its fixes."""

_BY_KIND: dict[type, Callable[[Any], Fixes]] = {
    NodeFault: lambda what: what.fixes,
    ExceptionRaised: _fix_exception,
    NodeLost: lambda what: BY_NAME["node-unstarted" if what.unstarted else "node-lost"],
    Symptom: lambda what: BY_NAME.get(what.name, ()),
    DriveError: lambda _: BY_NAME["drive-failed"],
    VirtualInterface: lambda _: BY_NAME["virtual-interface"],
    DuplicateGpu: lambda _: BY_NAME["duplicate-gpu"],
    XidReported: _fix_xid,
    LauncherSignalled: lambda what: BY_NAME["signalled-1" if what.signal == 1 else "signalled"],
    CollectiveMismatch: lambda _: BY_NAME["mismatch"],
    ClientsMissing: _fix_unjoined,
    ProcessExit: lambda what: BY_NAME.get(f"exit-{what.signal}", ()),
}
"""By the kind of an event."""
