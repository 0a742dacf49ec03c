"""Does the container have the devices and rights it needs?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.host import Host
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.network.net import several_nodes
from nodedoctor.facts.rdma.ports import Rails
from nodedoctor.knowledge.nvml_errors import TOOLKIT_GUIDE
from nodedoctor.model import Finding, Fix, file_reading, quoted_like
from nodedoctor.steps import look, repair
from nodedoctor.wording import comma_list, count_with_noun

_DISTURBS = "all processes in the container (it must be recreated)"
_RELOAD_DOCS = f"{TOOLKIT_GUIDE}troubleshooting.html"
_FILTERED = 2  # Seccomp in /proc/PID/status: 2 is a filter, linux, Documentation/filesystems/proc.rst
_WANTED = {
    "SYS_NICE": "binding memory to a NUMA node (numactl, NCCL's placement)",
    "IPC_LOCK": "locking more memory than the limit",
    "SYS_PTRACE": "py-spy and gdb on a hung rank, pidfd_getfd for shared CUDA memory",
}
"""What a capability is for: NVIDIA/nccl troubleshooting (containers), docs.docker.com seccomp profile."""


@check("container.devices", "Container devices and capabilities", tags={"fast"}, stage="preview")
def devices(
    container: Container,
    inventory: Inventory | None,
    rails: Rails | None,
    host: Host | None,
    processes: Processes | None,
) -> Iterator[Finding]:
    """In a container: GPU and RDMA device nodes, capabilities, seccomp. On the host: links in /dev/char.

    Why: a missing device node or capability causes misleading errors, often in the middle of a run.
    Fix disturbs: all processes in the container (it must be recreated).
    Judges: FAIL when a GPU device node is missing, or an RDMA device node may not be opened, or none is there
    although a job of several nodes runs or NCCL_IB_HCA names them; WARN when only some RDMA ports have
    theirs.
    Fix: Start the container again with the missing devices and capabilities.
    Threshold: NVIDIA/nccl troubleshooting (containers) and Docker's seccomp profile name what is needed.
    False positives: A job that was given a part of the node on purpose; set --expect to say what must be
    there. A container without RDMA devices in which no job of several nodes runs is a note.
    Error texts:
    - Failed to initialize NVML: Unknown Error
    """
    if not container.inside:
        yield _char_links(host) if host else Finding.skip("not in a container")
        return
    findings: list[Finding] = []
    if inventory is not None and inventory.cut_off:
        findings.append(_cut_off())
    if rails is not None and host is not None and any(port.active for port in rails.ports):
        findings.extend(_judge_uverbs(host, rails, rails.explicit or several_nodes(processes)))
    yield from findings
    if container.capabilities is None:
        if not findings:
            yield Finding.unknown("not-visible-here", "the capabilities of this process could not be read")
        return
    missing = [name for name in _WANTED if name not in container.capabilities]
    filtered = container.seccomp == _FILTERED
    rights = f"without {', '.join(missing)}" if missing else "has all capabilities that training uses"
    status = 'files["/proc/self/status"]'
    evidence = [quoted_like("container", f"^{key}:.*", status) for key in ("CapEff", "Seccomp")]
    if missing:
        uses = "; ".join(f"{name}: {_WANTED[name]}" for name in missing)
        seccomp = "; seccomp filter active" if filtered else ""
        fix = Fix(
            "Add them if a tool needs them: docker run's "
            f"{' '.join(f'--cap-add={name}' for name in missing)}.",
            (look("grep Cap /proc/self/status"),),
            "config",
            _DISTURBS,
            "nodedoctor container.devices",
        )
        finding = Finding.info(f"{rights}{seccomp}", subject="container:rights", evidence=evidence, fix=fix)
        yield finding.matters_as(f"{uses}.")
    elif not findings:
        yield Finding.ok(rights, evidence=evidence)


def _cut_off() -> Finding:
    """The device cgroup forgot the GPUs: systemd rewrote it."""
    fix = Fix(
        "Recreate the container: `systemctl daemon-reload` on the host removed its access. Permanent fix: "
        "create the missing links on the host, or assign GPUs by CDI (docker run's `--device "
        "nvidia.com/gpu=all`), or configure the runtime for cgroupfs.",
        (
            repair(
                "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
                when="you are on the host",
                disturbs="nothing",
            ),
        ),
        "config",
        _DISTURBS,
        "nodedoctor driver.gpus-present",
        _RELOAD_DOCS,
    )
    return Finding.fail(
        "the device cgroup denies the GPU device nodes",
        subject="container:gpus",
        evidence=[file_reading("driver-files", "/dev/nvidiactl", "stats")],
        fix=fix,
    ).led_by("the container lost its GPUs (denied by the device cgroup)")


def _judge_uverbs(host: Host, rails: Rails, needed: bool) -> Iterator[Finding]:
    """RDMA ports that sysfs shows need nodes below /dev/infiniband, where a job is to use them."""
    fix = Fix(
        "Pass the devices to the container: docker run's `--device=/dev/infiniband`.",
        (look("ls -l /dev/infiniband"),),
        "config",
        _DISTURBS,
        "nodedoctor container.devices",
    )
    subject = "container:rdma"
    if not host.uverbs:
        ports = count_with_noun(len(rails.ports), "RDMA port")
        if needed:
            summary = f"{ports}, but no /dev/infiniband/uverbs*: NCCL falls back to TCP"
            yield Finding.fail(summary, subject=subject, fix=fix)
        else:
            summary = f"no /dev/infiniband/uverbs* for {ports}: a job of several nodes would use TCP"
            yield Finding.info(summary, subject=subject, fix=fix)
        return
    closed = [name for name, access in host.uverbs.items() if access not in ("rw", "?")]
    if closed:
        yield Finding.fail(f"{comma_list(closed)} cannot be opened", subject=subject, fix=fix)
    elif len(host.uverbs) < len({port.hca for port in rails.ports}):
        yield Finding.warn(
            f"only {comma_list(host.uverbs)} for {count_with_noun(len(rails.ports), 'port')}",
            subject=subject,
            fix=fix,
        )


def _char_links(host: Host) -> Finding:
    """Where systemd keeps docker's control groups, a daemon-reload takes GPUs away unless the links exist."""
    docker = host.docker or ""
    if not (host.docker_installed and host.toolkit_installed) or host.char_links is None:
        return Finding.skip("not in a container, no docker with GPUs here")
    if host.char_links or host.cdi or "native.cgroupdriver=cgroupfs" in docker:
        return Finding.ok("containers keep their GPUs across daemon-reload")
    fix = Fix(
        "Create the links at every boot.",
        (repair("sudo nvidia-ctk system create-dev-char-symlinks --create-all"),),
        "config",
        "nothing",
        "nodedoctor container.devices",
        _RELOAD_DOCS,
    )
    return Finding.info("no links to GPUs in /dev/char: containers lose their GPUs at daemon-reload", fix=fix)
