"""Who holds the GPUs: does anybody hang in the driver, and has a job left something behind?"""

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.nvidia_presence import NONE_HERE
from nodedoctor.facts.gpu.evidence import process_said, values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.knowledge.fixes.recipes import gpu_reset
from nodedoctor.knowledge.nvml_errors import HUNG
from nodedoctor.model import Evidence, Finding, Fix, Moment
from nodedoctor.patterns import regex
from nodedoctor.steps import last_resort, look
from nodedoctor.wording import count_with_noun, numbered

IN_DRIVER = regex(r"^_?(?:nv[_A-Z0-9]|nvidia|rm_|uvm_|nvkms|nvlink|os_acquire)")
"""Names of functions of NVIDIA's kernel modules, as /proc/PID/wchan shows them (open-gpu-kernel-modules)."""

STARTING_SECONDS = 120
"""A program that starts waits in the driver while GPUs are initialised, seconds for each of them."""

IDLE_MIB = 1024
"""What a driver may use for itself where it does not count that as reserved: up to 947 MiB (GB300, R580)."""

FULL_BOARD = 8
"""GPUs of a whole board: of few of them, all idle, memory in use is rather left over than a share; ours."""

_END = "Find the owner, then kill the process: it holds GPU memory that the next job needs."
_FOR_GUESTS = ("host-vgpu", "host-vsga")
_LAUNCHED = ("rank", "ray-worker")


@check("driver.processes", "Stuck and leftover GPU processes", tags={"fast"}, without=(Container,))
def processes(
    inventory: Inventory,
    gpus: Gpus | None,
    processes: Processes | None,
    container: Container | None,
    moment: Moment,
) -> Iterator[Finding]:
    """Holders of /dev/nvidia* by state and wait channel; GPU memory in use against the processes that use it.

    Why: a process in uninterruptible sleep in the driver cannot be killed and blocks the next job on its GPU;
    a leftover rank holds gigabytes, and the new job runs out of memory.
    Fix disturbs: the processes listed; a reboot where one cannot be killed.
    Judges: FAIL for a process in uninterruptible sleep in the driver; WARN for GPU memory that no live job
    explains.
    Fix: End the named process; reboot if it cannot be ended.
    Threshold: 1024 MiB without a process, as the driver itself used up to 947 MiB (GB300, R580); 120 s of
    start-up are excused.
    False positives: A container that cannot see other containers' processes; vGPU hosts are left out.
    """
    if inventory.none_here:
        yield Finding.skip(NONE_HERE)
        return
    host = container is not None and not container.inside
    # Under WSL2 the desktop of Windows uses the same GPU, and its processes are not listed.
    alone = host and inventory.platform != "wsl2"
    findings = [*_judge_unowned(gpus, processes)] if alone and gpus else []
    if container is None and processes is None and gpus:
        yield from _note_unowned(gpus)
    if processes is None:
        summary = "process states are not visible"
        findings.append(Finding.unknown("not-visible-here", summary))
    else:
        findings += [*_judge_blocked(processes, moment), *_find_leftovers(processes, gpus, host)]
    yield from findings
    if not findings:
        yield Finding.ok(_process_summary(processes, gpus))


def _process_summary(processes: Processes | None, gpus: Gpus | None) -> str:
    pids = {p.pid for gpu in (gpus.gpus if gpus else ()) for p in gpu.processes or ()}
    holders = pids | {process.pid for process in (processes.holding_gpus if processes else ())}
    return f"{count_with_noun(len(holders), 'process')} with a GPU open, none stuck or left over"


def _judge_blocked(processes: Processes, moment: Moment) -> Iterator[Finding]:
    """Processes in uninterruptible sleep; threads of the kernel itself are left out."""
    for process in processes.all:
        if not process.blocked or process.ppid == 2:
            continue
        channel = process.wchan or ""
        evidence = process.said("state", *(["wchan"] if channel else []))
        subject = f"pid:{process.pid}"
        if IN_DRIVER.match(channel):
            summary = f"{process.label} hangs in the driver ({channel})"
            judge = Finding.info if _is_starting(process, moment) else Finding.fail
            yield judge(summary, subject=subject, evidence=evidence, fix=HUNG).explained_by(
                "driver.answers@node"
            )
        elif process.nvidia and channel in ("", "0"):
            fix = Fix("Run nodedoctor as root to see the wait channel.", action="none")
            summary = f"{process.label} is in uninterruptible sleep, wait channel not visible"
            yield Finding.unknown("denied", summary, subject=subject, evidence=evidence, fix=fix)


def _is_starting(process: Process, moment: Moment) -> bool:
    age = moment.started.timestamp() - (process.started or 0.0)
    return process.started is not None and 0 <= age < STARTING_SECONDS


def _find_leftovers(processes: Processes, gpus: Gpus | None, host: bool) -> Iterator[Finding]:
    """Processes that hold a GPU and belong to no running job any more. Parents are only known on the host."""
    users = _gpu_users(gpus)
    for process in processes.all:
        quotes = users.get(process.pid, [])
        why = _left_behind(process, processes, bool(quotes or process.nvidia), host)
        if process.state == "zombie" and quotes:
            why = "has exited and still holds GPU memory"
        if why:
            evidence = [*process.said("ppid", "state"), *quotes]
            steps = (
                look("ps -fp {}", process.pid),
                last_resort(
                    "sudo kill {}",
                    process.pid,
                    when="its owner agrees that it is left over",
                    disturbs=f"process {process.pid}",
                ),
            )
            fix = Fix(_END, steps, "restart-job", f"process {process.pid}", "nodedoctor driver.processes")
            summary = f"{process.label} {why}"
            yield Finding.warn(summary, subject=f"pid:{process.pid}", evidence=evidence, fix=fix)


def _gpu_users(gpus: Gpus | None) -> dict[int, list[Evidence]]:
    """What the driver says of each process that uses a GPU."""
    users: dict[int, list[Evidence]] = {}
    for gpu in gpus.gpus if gpus else ():
        for process in gpu.processes or ():
            users.setdefault(process.pid, []).extend(process_said(gpus.source if gpus else "", gpu, process))
    return users


def _left_behind(process: Process, processes: Processes, holding: bool, host: bool) -> str | None:
    """A parent of 1 means that the launcher is gone; in a container 1 may be the launcher."""
    if not (host and holding and process.ppid == 1):
        return None
    if process.role in _LAUNCHED or process.program.startswith("VLLM::"):
        return "still holds a GPU; its launcher has exited"
    steps = [peer for peer in processes.all if peer.program.startswith("slurmstepd")]
    if process.job and all(step.job and step.job != process.job for step in steps):
        return f"still holds a GPU; its Slurm job {process.job} no longer runs here"
    return None


def _judge_unowned(gpus: Gpus, processes: Processes | None) -> Iterator[Finding]:
    """Memory in use on the host without a process that uses it, or with one that does not exist."""
    alive = {process.pid for process in processes.all} if processes else set()
    complete = processes is not None and 1 in alive and not processes.left_out  # not so with hidepid=2
    for gpu in gpus.gpus:
        if gpu.virtualization_mode in _FOR_GUESTS:
            continue  # virtual machines use its memory, and a reset would end them
        dead = [p for p in gpu.processes or () if complete and p.used_mib and p.pid not in alive]
        used = gpu.memory_used_mib or 0
        if dead:
            text = ", ".join(f"pid {process.pid} ({process.used_mib} MiB)" for process in dead)
            yield _unexplained_memory(gpu, f"GPU memory held by processes that no longer exist: {text}", gpus)
        elif gpu.processes == () and used > IDLE_MIB and not gpu.mig_mode and not _is_coherent(gpu):
            yield _unexplained_memory(gpu, f"{used} MiB in use, but no process uses this GPU", gpus)


def _note_unowned(gpus: Gpus) -> Iterator[Finding]:
    """Memory of some GPUs in a paste whose list of processes is empty: inside a container that is usual.

    A container is seldom given a whole board to use less than half of it.
    """
    users = [
        gpu for gpu in gpus.gpus if (gpu.memory_used_mib or 0) > IDLE_MIB and not gpu.gpu_utilization_percent
    ]
    lists = all(gpu.processes == () and not gpu.mig_mode and not _is_coherent(gpu) for gpu in gpus.gpus)
    guests = any(gpu.virtualization_mode in _FOR_GUESTS for gpu in gpus.gpus)
    if guests or not (lists and users and len(users) < len(gpus.gpus)):
        return
    most = max(gpu.memory_used_mib or 0 for gpu in users)
    where = numbered("GPU", (gpu.index for gpu in users))
    summary = f"up to {most} MiB used on {where}, no process is listed: a leftover, unless in a container"
    evidence = [quote for gpu in users for quote in values(gpus.source, gpu, "memory_used_mib")]
    loaded = any(gpu.gpu_utilization_percent for gpu in gpus.gpus)
    if len(gpus.gpus) < FULL_BOARD or loaded or 2 * len(users) >= len(gpus.gpus):
        yield Finding.unknown("not-visible-here", summary, subject="memory", evidence=evidence)
        return
    fix = Fix(
        "Look on the host, outside of containers, for the process that has the device open: end it with its "
        "owner's consent, or reset the GPU when it is idle.",
        gpu_reset(",".join(str(gpu.index) for gpu in users)),
        "reset-gpu",
        "processes on these GPUs",
        "nodedoctor driver.processes",
    )
    yield Finding.warn(summary, subject="memory", evidence=evidence, fix=fix)


def _unexplained_memory(gpu: Gpu, summary: str, gpus: Gpus) -> Finding:
    evidence = values(gpus.source, gpu, "memory_used_mib")
    evidence += [
        quote for process in gpu.processes or () for quote in process_said(gpus.source, gpu, process)
    ]
    fix = Fix(
        "Check again after a minute. If the memory is still in use, find the process that has the device "
        "open, or reset the GPU when it is idle.",
        gpu_reset(gpu.handle),
        "reset-gpu",
        "processes on this GPU",
        "nodedoctor driver.processes",
    )
    return Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=fix)


def _is_coherent(gpu: Gpu) -> bool:
    """On Grace the GPU's memory is the system's too: the kernel may keep anything there."""
    return gpu.addressing_mode == "ats" or gpu.gpu_numa_node is not None
