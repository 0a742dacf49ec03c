"""Does the container have the devices and rights it needs, and does the host's runtime hand out GPUs?"""

from __future__ import annotations

import os.path
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.host import Host
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.network.net import several_nodes
from nodedoctor.facts.rdma.ports import Rails
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.packages import numbers
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.model import Finding, Fix, file_reading, quoted_like, reading
from nodedoctor.steps import last_resort, look, repair
from nodedoctor.wording import counted, listed

_ANEW = "all processes in the container (it must be recreated)"
_TOOLKIT_DOCS = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/"
_RELOAD_DOCS = f"{_TOOLKIT_DOCS}troubleshooting.html"
_COMPAT_DOCS = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
_SAFE_TOOLKIT = (1, 17, 8)
"""The first release without the container escape CVE-2025-23266 (NVIDIA security bulletin)."""
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
    told: list[Finding] = []
    if inventory is not None and inventory.cut_off:
        told.append(_cut_off())
    if rails is not None and host is not None and any(port.active for port in rails.ports):
        told.extend(_uverbs(host, rails, rails.explicit or several_nodes(processes)))
    yield from told
    if container.capabilities is None:
        if not told:
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
            _ANEW,
            "nodedoctor container.devices",
        )
        found = Finding.info(f"{rights}{seccomp}", subject="container:rights", evidence=evidence, fix=fix)
        yield found.matters_as(f"{uses}.")
    elif not told:
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
        _ANEW,
        "nodedoctor driver.gpus-present",
        _RELOAD_DOCS,
    )
    return Finding.fail(
        "the device cgroup denies the GPU device nodes",
        subject="container:gpus",
        evidence=[file_reading("driver-files", "/dev/nvidiactl", "stats")],
        fix=fix,
    ).led_by("the container lost its GPUs (denied by the device cgroup)")


def _uverbs(host: Host, rails: Rails, needed: bool) -> Iterator[Finding]:
    """RDMA ports that sysfs shows need nodes below /dev/infiniband, where a job is to use them."""
    fix = Fix(
        "Pass the devices to the container: docker run's `--device=/dev/infiniband`.",
        (look("ls -l /dev/infiniband"),),
        "config",
        _ANEW,
        "nodedoctor container.devices",
    )
    subject = "container:rdma"
    if not host.uverbs:
        ports = counted(len(rails.ports), "RDMA port")
        if needed:
            summary = f"{ports}, but no /dev/infiniband/uverbs*: NCCL falls back to TCP"
            yield Finding.fail(summary, subject=subject, fix=fix)
        else:
            summary = f"no /dev/infiniband/uverbs* for {ports}: a job of several nodes would use TCP"
            yield Finding.info(summary, subject=subject, fix=fix)
        return
    closed = [name for name, access in host.uverbs.items() if access not in ("rw", "?")]
    if closed:
        yield Finding.fail(f"{listed(closed)} cannot be opened", subject=subject, fix=fix)
    elif len(host.uverbs) < len({port.hca for port in rails.ports}):
        yield Finding.warn(
            f"only {listed(host.uverbs)} for {counted(len(rails.ports), 'port')}", subject=subject, fix=fix
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


@check("container.compat", "Stale libcuda (forward compatibility)", stage="preview")
def compat(
    libraries: Libraries | None, driver: Driver, gpus: Gpus | None, env: Env | None
) -> Iterator[Finding]:
    """Whether programs load libcuda from NVIDIA's forward-compatibility package instead of the driver's.

    Why: one older than the driver makes CUDA fail with error 803, one on consumer GPUs with error 804.
    Fix disturbs: nothing.
    Judges: FAIL when the libcuda that programs load comes from the compatibility package and is older than
    the driver, or this GPU does not support it.
    Fix: Remove the compatibility folder from LD_LIBRARY_PATH, or use an image for this driver.
    Threshold: NVIDIA's compatibility rules: errors 803 and 804 of the CUDA driver API.
    False positives: None known.
    Error texts:
    - CUDA error 803: system has unsupported display driver / cuda driver combination
    - CUDA error 804: forward compatibility was attempted on non supported HW
    """
    if driver.version is None:
        yield Finding.skip("NVIDIA's driver is not loaded")
        return
    found = libraries.winner("libcuda.so") if libraries else None
    if found is None or not found[0].path:
        path = (env.get("LD_LIBRARY_PATH") if env else None) or ""
        named = [part for part in path.split(":") if "/compat" in part]
        if named:
            yield Finding.unknown(
                "not-visible-here", f"LD_LIBRARY_PATH contains {named[0]}; unknown which libcuda is loaded"
            )
        else:
            yield Finding.skip("no Python with torch seen, no compat folder in LD_LIBRARY_PATH")
        return
    yield _judge_compat(
        found[0].path, found[0].real, found[1].version if found[1] else "", driver.version, gpus
    )


def _judge_compat(path: str, real: str, version: str, driver: str, gpus: Gpus | None) -> Finding:
    evidence = [
        reading("target-python", "libraries.resolved[name=libcuda.so.1].path"),
        reading(
            "target-python", f"libraries.copies[real={real}].version", f"libraries.resolved[path={path}].real"
        ),
    ]
    if "/compat" not in path + real:
        return Finding.ok(f"{path} is the driver's own libcuda", evidence=evidence[:1])
    fix = Fix(
        f"Remove {os.path.dirname(path)} from LD_LIBRARY_PATH and /etc/ld.so.conf.d.",
        (look("ldconfig -p | grep libcuda"),),
        "config",
        "the job",
        "nodedoctor container.compat",
        _COMPAT_DOCS,
    )
    mine, theirs = numbers(version), numbers(driver)
    if mine and mine < theirs:
        summary = f"{path} is {version}, older than the driver's {driver}: CUDA error 803"
        return Finding.fail(summary, subject="library:libcuda", evidence=evidence, fix=fix)
    models = [gpu_model(gpu.name or "") for gpu in gpus.gpus] if gpus else []
    if mine > theirs and any(model and not model.datacentre for model in models):
        summary = f"{path} is for data-centre GPUs only: CUDA error 804"
        return Finding.fail(summary, subject="library:libcuda", evidence=evidence, fix=fix)
    return Finding.info(
        f"{path} ({version or 'version unknown'}) replaces the driver's {driver}", evidence=evidence
    )


@check("container.toolkit", "NVIDIA Container Toolkit", tags={"fast"}, stage="preview")
def toolkit(container: Container, host: Host, inventory: Inventory | None) -> Iterator[Finding]:
    """On the host: the version of nvidia-container-toolkit, and whether docker or containerd use it.

    Why: without it containers start without GPUs; old releases allow a container escape.
    Fix disturbs: docker or containerd (restart); running containers continue with live-restore.
    Judges: Never worse than a note: neither docker nor containerd knows the toolkit, or its release lets a
    container break out.
    Fix: Install or upgrade nvidia-container-toolkit and configure the runtime with `nvidia-ctk`.
    Threshold: 1.17.8 is the first release without CVE-2025-23266 (NVIDIA security bulletin).
    False positives: A host that runs no containers.
    Error texts:
    - could not select device driver "" with capabilities: [[gpu]]
    """
    runtimes = [
        name
        for name, there in (("docker", host.docker_installed), ("containerd", host.containerd is not None))
        if there
    ]
    if container.inside:
        yield Finding.skip("in a container: the toolkit is on the host")
    elif inventory is not None and inventory.none_here:
        yield Finding.skip("no GPU for containers")
    elif not runtimes and not host.toolkit_installed:
        yield Finding.skip("no docker, containerd or nvidia-container-toolkit here")
    elif not host.toolkit_installed:
        fix = Fix(
            "Install nvidia-container-toolkit if containers need GPUs.",
            (look("nvidia-ctk --version"),),
            "config",
            "nothing",
            "nodedoctor container.toolkit",
            _TOOLKIT_DOCS,
        )
        yield Finding.info(f"{' and '.join(runtimes)} without nvidia-container-toolkit", fix=fix)
    else:
        yield _configured(host)


def _configured(host: Host) -> Finding:
    version = f"nvidia-container-toolkit {host.toolkit or 'of unknown version'}"
    known = "nvidia" in (host.docker or "") or "nvidia" in (host.containerd or "") or host.cdi
    setup = (
        repair("sudo nvidia-ctk runtime configure --runtime=docker"),
        last_resort(
            "sudo systemctl restart docker",
            when="the containers of this node may be stopped",
            disturbs="every container, unless docker keeps them (live-restore)",
        ),
    )
    disturbs = "docker (restart)"
    if not known:
        fix = Fix(
            "Add the NVIDIA runtime to docker's configuration.",
            setup,
            "config",
            disturbs,
            "nodedoctor container.toolkit",
            _TOOLKIT_DOCS,
        )
        return Finding.info(f"{version}, but not configured in docker, containerd or CDI", fix=fix)
    if host.toolkit and numbers(host.toolkit) < _SAFE_TOOLKIT:
        fix = Fix(
            "Update nvidia-container-toolkit.",
            (repair("sudo apt-get install --only-upgrade nvidia-container-toolkit"),),
            "config",
            disturbs,
            "nodedoctor container.toolkit",
            _TOOLKIT_DOCS,
        )
        return Finding.info(
            f"{version}: container escape in releases before 1.17.8 (CVE-2025-23266)", fix=fix
        )
    return Finding.ok(f"{version}, configured in the container runtime")
