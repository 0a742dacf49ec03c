"""Fixes for one kind of evidence, with the ports, addresses and devices of its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from nodedoctor.model import Fix
from nodedoctor.steps import look, looks, repair
from nodedoctor.triage.marks import Mark, kind_of
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.cuda import GpuFull
from nodedoctor.triage.patterns.exits import LauncherSignalled, ProcessExit
from nodedoctor.triage.patterns.frames import source_place
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import NodeLost, XidReported
from nodedoctor.triage.patterns.nccl import DuplicateGpu
from nodedoctor.triage.patterns.store import ClientsMissing, CollectiveMismatch
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.unclassified import UnclassifiedError
from nodedoctor.triage.timeline.node_reports import NodeFault
from nodedoctor.triage.verdict.causes.families import family_of
from nodedoctor.triage.verdict.causes.symptoms import COLOCATED, of_program

Fixes = tuple[Fix, ...]

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
_WANTED = re.compile(r"Tried to allocate ([\d.]{1,12}) ([KMGT])iB")
_FRAGMENTS = re.compile(r"([\d.]{1,12}) ([KMGT])iB is reserved by PyTorch but unallocated")
_HCA = re.compile(r"\b((?:mlx5|bnxt_re|irdma|hfi1|rocep[^\W_]{0,40}|ibp[^\W_]{0,40})_\w{1,60})\b")


def fixes_for_event(event: Event[Any], frameworks: Collection[str] = ()) -> Fixes:
    """The fixes for this kind of event; none when its cause's general ones are right.

    `frameworks` are those that the logs name. A node's fault brings the fix of its check.
    """
    what = event.what
    if isinstance(what, NodeFault):
        return what.fixes
    if isinstance(what, GpuFull):
        if event.who.role == "rollout" and not what.crowded:
            return _ENGINE_FULL
        return _fix_crowded_gpu(what) if what.crowded else _fix_full_gpu(event.text, frameworks)
    if isinstance(what, ExceptionRaised):
        return _fix_by_message(f"{what.type}: {what.message}") or _fix_at_source_line(
            source_place(what.frames)
        )
    if kind_of(what) in (UnclassifiedError, Mark.UNREAD_TROUBLE):
        return _fix_by_message(event.text)
    if isinstance(what, NodeLost):
        return _UNSTARTED if what.unstarted else _NODE_LOST
    if isinstance(what, Symptom):
        make_fixes = _BY_NAME.get(what.name)
        return make_fixes(event.text) if make_fixes is not None else ()
    if isinstance(what, DuplicateGpu):
        return (
            Fix("Start one rank per GPU: as many ranks as CUDA_VISIBLE_DEVICES shows GPUs.", (), "config"),
        )
    if isinstance(what, XidReported):
        return _fix_xid(what)
    if isinstance(what, LauncherSignalled):
        return _fix_launcher_end(what.signal)
    if isinstance(what, CollectiveMismatch):
        return _MISMATCH
    if isinstance(what, ClientsMissing):
        return _fix_unjoined(what)
    return _fix_exit(what.signal) if isinstance(what, ProcessExit) else ()


def _fix_by_message(text: str) -> Fixes:
    """By the words of an exception or of a line."""
    kind = family_of(text)
    fixes = _BY_FAMILY.get(kind.name, ()) if kind is not None else ()
    return fixes or next((fixes for words, fixes in _BY_MESSAGE if words.search(text)), ())


def _fix_at_source_line(where: str) -> Fixes:
    """Where to begin with an exception of which nothing else is known."""
    if not where:
        return ()
    text = f"Begin at {where}: the last call in that traceback that is not Python's own."
    return (Fix(text, (), "config"),)


def _fix_xid(what: XidReported) -> Fixes:
    if what.switch:
        return ()
    meaning = Fix("Look up the meaning and action of this Xid.", (look("nodedoctor explain {}", what.code),))
    if of_program(what):
        return (*_CUDA_FAULT, meaning)
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


def _fix_launcher_end(signal: int) -> Fixes:
    if signal == 1:
        text = "Start the job where a closed terminal does not kill it: tmux, nohup or a batch system."
        return (Fix(text, (look("tmux new -s train"),), "config"),)
    return (
        Fix(
            "Check in the scheduler who cancelled the job and why: nothing in the job failed.",
            (),
            "investigate",
        ),
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


def _fix_full_gpu(text: str, frameworks: Collection[str]) -> Fixes:
    """Less memory per step; another allocator only where fragments hold what was asked for.

    vLLM's sleep mode asserts that PYTORCH_CUDA_ALLOC_CONF has no expandable segments (vllm
    device_allocator/cumem.py), so that nothing is advised where vLLM may share the process.
    """
    less = (
        Fix("Make the micro-batch or the sequence smaller and accumulate more steps.", (), "config"),
        Fix("Recompute activations, shard more (FSDP, ZeRO-3), offload last.", (), "config"),
    )
    sizes = [_buffer_bytes(match) for pattern in (_WANTED, _FRAGMENTS) if (match := pattern.search(text))]
    if len(sizes) < 2 or sizes[1] < sizes[0] or not COLOCATED.isdisjoint(frameworks):
        return less
    grow = Fix(
        "More than was asked for is reserved and free in fragments: let the allocator grow its segments (from"
        " torch 2.9 the variable is PYTORCH_ALLOC_CONF).",
        (look("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),),
        "config",
    )
    return (grow, *less)


_ENGINE_FULL = (
    Fix(
        "Let the inference engine take fewer or shorter sequences at a time (vLLM --max-num-seqs and"
        " --max-model-len, SGLang --max-running-requests and --context-length).",
        (),
        "config",
    ),
    Fix(
        "Leave more of the GPU outside of its cache (vLLM --gpu-memory-utilization, SGLang"
        " --mem-fraction-static), or share the model among more GPUs.",
        (),
        "config",
    ),
)
"""An engine has no micro-batches and nothing to recompute."""


def _buffer_bytes(match: re.Match[str]) -> float:
    return float(match[1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[match[2]]


def _fix_exit(signal: int | None) -> Fixes:
    if signal == 9:
        text = "Find out who killed it: the kernel's log of its node first, for an out-of-memory kill."
        return (Fix(text, (look("dmesg -T | grep -iE 'killed process|oom'"),)),)
    if signal == 6:
        text = "It ended itself: the reason is above its abort, in its own log."
        return (Fix(text, (look("export PYTHONFAULTHANDLER=1"),)),)
    if signal == 7:
        text = "It accessed mapped memory without backing: most often /dev/shm is full."
        return (
            Fix(text, (look("df -h /dev/shm"), look("dmesg -T | grep -iE 'memory failure|mce|hardware'"))),
        )
    if signal not in (4, 8, 11):
        return ()
    return (
        Fix(
            "It crashed in native code: make it print its Python stack, and look for the library it was in.",
            (
                look("export PYTHONFAULTHANDLER=1"),
                look("dmesg -T | grep -iE 'segfault|trap|general protection'"),
            ),
        ),
    )


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


def _fix_text(*texts: str) -> Callable[[str], Fixes]:
    return lambda _: tuple(Fix(text, (), "config") for text in texts)


def _fix_steps(text: str, *commands: str) -> Callable[[str], Fixes]:
    return lambda _: (Fix(text, tuple(look(command) for command in commands)),)


def _fix_own_side(text: str) -> Fixes:
    """Without an error's number: perhaps the limit of locked memory, which queues and buffers use.

    EFAULT of a registration is memory that the adapter's driver does not know, as that of a GPU.
    """
    if "Bad address" in text:
        return _GDR(text)
    limit = Fix(
        "Check the limit of locked memory in the job, not in a shell: it should be unlimited.",
        (look("ulimit -l"),),
    )
    return (limit, *_fix_adapter(text))


def _fix_adapter(text: str) -> Fixes:
    match = _HCA.search(text)
    first = Fix("Check the ports and links on both ends.", (look("nodedoctor ib"), look("ibstat")))
    if match is None:
        return (first,)
    without = repair("export NCCL_IB_HCA={}", f"^{match[1]}")
    return (first, Fix("Exclude the NIC until it is repaired.", (without,), "config"))


_GDR = _fix_steps(
    "Check what GPUDirect RDMA needs on that node: nvidia-peermem or DMA-BUF, and an IOMMU that does not"
    " translate. A run without GPUDirect shows whether it is that.",
    "nodedoctor ib.gdr pcie.iommu pcie.acs --preview",
    "export NCCL_NET_GDR_LEVEL=LOC",
)
_SHM = _fix_steps(
    "Give the container shared memory: docker run with --shm-size=16g or --ipc=host, in Kubernetes an"
    " emptyDir of medium Memory on /dev/shm.",
    "df -h /dev/shm",
)
_PIDFD = (
    Fix(
        "Start the container with docker run --cap-add=SYS_PTRACE --security-opt seccomp=unconfined"
        " --ipc=host, in Kubernetes with the capability SYS_PTRACE. Without that right the"
        " kernel's setting must be 0.",
        (look("cat /proc/sys/kernel/yama/ptrace_scope"),),
        "config",
    ),
    Fix(
        "Or share GPU memory without it, as torch itself proposes.",
        (look("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"),),
        "config",
    ),
)
_LINKS = _fix_steps(
    "Check NVLink, fabric and peer access on that node.",
    "nodedoctor nvlink fabric p2p",
    "nvidia-smi topo -p2p n",
)
_MISMATCH = (
    Fix(
        "Make number, order, shapes and types equal on all ranks. Batches of different lengths and branches"
        " that depend on the data or on the rank are the usual reasons.",
        (),
        "config",
    ),
)
_CUDA_FAULT = (
    Fix(
        "Find the kernel that went wrong: run once where it is reported at its own line.",
        (look("export CUDA_LAUNCH_BLOCKING=1"),),
    ),
)
_NO_SUCH_GPU = (
    Fix(
        "Choose the device by LOCAL_RANK, not by the global rank, and start at most as many ranks on a node"
        " as CUDA_VISIBLE_DEVICES shows GPUs there.",
        (look("nvidia-smi -L"), look("echo $CUDA_VISIBLE_DEVICES")),
        "config",
    ),
)
_UNSTARTED = (  # a credential expires where the clocks of two nodes differ (Slurm's FAQ)
    Fix(
        "Read the log of slurmd on that node, compare its clock with the others', and diagnose it before the"
        " next job.",
        (look("journalctl -u slurmd -n 50 --no-pager"), look("timedatectl"), look("nodedoctor")),
        "drain",
    ),
)
_NODE_LOST = (
    Fix(
        "Ask the scheduler why it gave the node up, and diagnose it before the next job.",
        (look("nodedoctor"),),
        "drain",
    ),
)


def _make_fix(text: str, *commands: str) -> Fixes:
    return (Fix(text, tuple(map(look, commands)), "config"),)


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

_OFFLINE = _make_fix(
    "The node does not reach that server, or the server cannot answer all ranks at once: download once to"
    " storage that all nodes share, and let the ranks read it offline.",
    "export HF_HUB_OFFLINE=1",
)

_BY_FAMILY: dict[str, Fixes] = {
    "not-a-number": _make_fix(
        "Replay this step with the same data on another GPU: the same NaN again is the data or the program, a"
        " number is the GPU."
    ),
    "launcher-variable": _make_fix(
        "The launcher did not set this variable: start the program with torchrun or srun on every node."
    ),
    "access": _make_fix(
        "Give the environment of every rank a token that has access, or download once and let the ranks read"
        " offline.",
        "export HF_HUB_OFFLINE=1",
    ),
    "busy-server": _OFFLINE,
    "server": _OFFLINE,
    "libraries": _make_fix(
        "Check which libraries are found first, and rebuild or install what that line names for the torch and"
        " CUDA of that environment.",
        "nodedoctor stack",
        "echo $LD_LIBRARY_PATH",
    ),
    "build": _make_fix(
        "Check that compiler and CUDA toolkit are on that node and fit its torch: the compiler's own lines"
        " stand above this one.",
        "nodedoctor stack",
        "which gcc nvcc ninja",
    ),
    "command": _make_fix("Correct the command: the line says which part of it is not known."),
    "settings": _make_fix(
        "Correct the setting that the line names; it may be of another version of its library."
    ),
    "packages": _make_fix(
        "Install what the line names for the Python that this rank runs, on its node: the launcher's may be"
        " another.",
        "nodedoctor stack",
    ),
    "incomplete-file": _make_fix(
        "The file is not complete, as after a save or a download that was cut off: load the checkpoint before"
        " it, or fetch it again."
    ),
    "other-checkpoint": _make_fix(
        "The checkpoint is of another model or another split of it: compare the names and shapes in the"
        " message with the configuration."
    ),
    "already-there": _make_fix(
        "Let one rank make what that line names before the others use it, or allow that it is there: ranks"
        " that make it at the same time disturb each other."
    ),
    "device-busy": _make_fix(
        "End the process that holds the device: often a leftover of the last run.", "ps -ef"
    ),
    "login": _make_fix(
        "Let the launcher's user log in on that node without a password, and try it by hand from the first"
        " node."
    ),
    "rights": _make_fix("Give the job's user this right on that node, or another folder.", "id"),
    "files": _make_fix(
        "See that the path exists and can be read on the node of that rank: it may be mounted on others."
    ),
    "no-address": _make_fix(
        "Compare the address that the job was given with the names that the node resolves.",
        "getent hosts $(hostname)",
    ),
    "no-connection": _make_fix(
        "Check that the service named there runs, and that the node has a way to it.",
        "ip -br addr",
        "ip route",
    ),
}
"""By the kind of failure that a line or an exception tells of."""

_BY_NAME: dict[str, Callable[[str], Fixes]] = {
    "port-in-use": _fix_port_in_use,
    "port-taken": lambda text: _fix_port_in_use(text)[:1],
    "nccl-no-algorithm": _fix_text(
        "Unset NCCL_ALGO and NCCL_PROTO, or allow more in them: not every algorithm can do every collective."
        " They may also stand in /etc/nccl.conf and ~/.nccl.conf."
    ),
    "cannot-listen": _fix_listen_error,
    "connect-failed": _fix_refused,
    "coordinator-unreachable": _fix_refused,
    "store-unreachable": _fix_refused,
    "no-route": _fix_refused,
    "open-files": _fix_limit("open files", "ulimit -n 1048576"),
    "dev-shm": _SHM,
    "loader-bus-error": _SHM,
    "cannot-map": _SHM,
    "nccl-versions-differ": _fix_steps("Install one NCCL on all nodes.", "nodedoctor stack"),
    "threads": _fix_limit("processes and threads", "ulimit -u unlimited"),
    "memlock": _fix_limit("locked memory", "ulimit -l unlimited"),
    "disk-full": _fix_steps("Free space on the file system in that line.", "df -h", "df -i"),
    "quota-full": _fix_steps(
        "Remove what is not needed below the path in that line, or write where the quota is larger: `df`"
        " shows room that is not this user's.",
        "quota -s",
    ),
    "write-failed": _fix_steps(
        "Check the room and the quota of the file system that is written to, then delete the file: it is not"
        " complete.",
        "df -h",
        "df -i",
        "quota -s",
    ),
    "storage-lost": _fix_steps(
        "Check the mount on that node, and the kernel's messages about its server.",
        "findmnt -t nfs,nfs4,lustre,fuse",
        "dmesg -T | grep -iE 'nfs|lustre|fuse|I/O error'",
    ),
    "wrong-build": _fix_steps(
        "Check which libraries and builds are loaded, and which versions match.", "nodedoctor stack"
    ),
    "network-plugin-failed": _fix_steps(
        "Check that the network plug-in finds its adapter on that node, and in the container.",
        "fi_info -p efa",
        "ls -l /dev/infiniband",
    ),
    "task-lost": _fix_steps(
        "Read the end of that task's own log, and its node's kernel log: the others only report its silence.",
        "dmesg -T | grep -iE 'killed process|oom|segfault|Xid'",
    ),
    "engine-died": _fix_text(
        "Read the worker's own lines above: the engine only reports that it ended. Without any, look for an"
        " out-of-memory kill on its node."
    ),
    "engine-crowded": _fix_steps(
        "Look at what else holds that GPU, a trainer beside the engine included; then give the engine a"
        " smaller share (vLLM gpu_memory_utilization).",
        "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv",
    ),
    "engine-no-cache": _fix_text(
        "Give the engine a larger share of the GPU (vLLM gpu_memory_utilization, SGLang"
        " --mem-fraction-static), a shorter longest sequence, or more GPUs per engine."
    ),
    "engine-too-long": _fix_text(
        "Set a shorter longest sequence (vLLM --max-model-len), or give the cache more room: a larger"
        " --gpu-memory-utilization, an fp8 cache (--kv-cache-dtype), or more GPUs (--tensor-parallel-size)."
    ),
    "assertion": _fix_text(
        "The condition in that line did not hold: look at what was given to that call, and whether the"
        " library is of the version that the program was written for."
    ),
    "panic": _fix_text(
        "The line shows where it gave up, and the next one why: look at what was given to it."
    ),
    "not-begun": _fix_text("Correct the command: the line says which argument or file it is."),
    "mesh-failed": _fix_steps(
        "Find the interface that reaches the other nodes, and name it in GLOO_SOCKET_IFNAME.",
        "ip -br addr",
        "ip route",
    ),
    "name-unresolved": _fix_text(
        "Compare the name in that line with those that the node resolves: in Kubernetes the service of a"
        " worker may be younger than who asks for it."
    ),
    "host-not-found": _fix_text(
        "Compare MASTER_ADDR with the names that the node resolves: in Kubernetes the master's service may be"
        " younger than the worker."
    ),
    "amdgpu-reset": _fix_steps("See what the kernel says of the GPU.", "dmesg -T | grep -i amdgpu"),
    "memory-limit-touched": _fix_text("Ask for more memory, or read less at once."),
    "rank-given-twice": _fix_text(
        "Give each process its own RANK: two launchers of one job have the same node rank."
    ),
    "agent-unheard": _fix_text(
        "Look at the node that holds the rendezvous (torchrun's `--rdzv-endpoint`): its agent ended first, or"
        " cannot be reached from here."
    ),
    "rendezvous-failed": _fix_text("Find the missing node: it has no log, or failed before its start."),
    "declared-mismatch": _fix_text(
        "The line shows what each rank did: make shapes, objects and order equal."
    ),
    "cuda-program-fault": lambda _: _CUDA_FAULT,
    "no-such-gpu": lambda _: _NO_SUCH_GPU,
    "fabric-of-host": _fix_text(
        "Ask the provider to register it with the fabric, or take a new instance: the NVSwitches and their"
        " Fabric Manager are the host's."
    ),
    "fabric-in-progress": _fix_steps(
        "See whether this machine has NVSwitches. With them, start the Fabric Manager of the driver's"
        " version; without any, as in a VM, ask the provider or take a new instance.",
        "lspci -d 10de: -nn | grep -i bridge",
        "systemctl status nvidia-fabricmanager",
    ),
    "no-interface": _fix_steps(
        "Unset NCCL_SOCKET_IFNAME, or name one of these in it; without it NCCL leaves out lo and docker.",
        "ip -br addr",
    ),
    "pidfd-refused": lambda _: _PIDFD,
    "diag-nvlink": _LINKS,
    "diag-links": _LINKS,
    "ib-completion-error": _fix_adapter,
    "ib-memory-refused": _GDR,
    "ib-event": _fix_adapter,
    "ib-setup": _fix_adapter,
    "ib-left-out": _fix_adapter,
    "ib-own-side": _fix_own_side,
}
"""By the name of a symptom."""
