"""Do containers get the driver's libraries: no stale libcuda before them, a runtime that hands them out?"""

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
from nodedoctor.facts.stack.libraries import Libraries
from nodedoctor.facts.stack.packages import numbers
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.knowledge.nvml_errors import TOOLKIT_GUIDE
from nodedoctor.model import Finding, Fix, reading
from nodedoctor.steps import last_resort, look, repair

_COMPAT_DOCS = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
_SAFE_TOOLKIT = (1, 17, 8)
"""The first release without the container escape CVE-2025-23266 (NVIDIA security bulletin)."""


@check("container.compat", "Stale libcuda (forward compatibility)")
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
    winner = libraries.winner("libcuda.so") if libraries else None
    if winner is None or not winner[0].path:
        path = (env.get("LD_LIBRARY_PATH") if env else None) or ""
        folders = [part for part in path.split(":") if "/compat" in part]
        if folders:
            yield Finding.unknown(
                "not-visible-here", f"LD_LIBRARY_PATH contains {folders[0]}; unknown which libcuda is loaded"
            )
        else:
            yield Finding.skip("no Python with torch seen, no compat folder in LD_LIBRARY_PATH")
        return
    yield _judge_compat(
        winner[0].path, winner[0].real, winner[1].version if winner[1] else "", driver.version, gpus
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
            TOOLKIT_GUIDE,
        )
        yield Finding.info(f"{' and '.join(runtimes)} without nvidia-container-toolkit", fix=fix)
    else:
        yield _judge_configuration(host)


def _judge_configuration(host: Host) -> Finding:
    version = f"nvidia-container-toolkit {host.toolkit or 'of unknown version'}"
    is_configured = "nvidia" in (host.docker or "") or "nvidia" in (host.containerd or "") or host.cdi
    setup = (
        repair("sudo nvidia-ctk runtime configure --runtime=docker"),
        last_resort(
            "sudo systemctl restart docker",
            when="the containers of this node may be stopped",
            disturbs="every container, unless docker keeps them (live-restore)",
        ),
    )
    disturbs = "docker (restart)"
    if not is_configured:
        fix = Fix(
            "Add the NVIDIA runtime to docker's configuration.",
            setup,
            "config",
            disturbs,
            "nodedoctor container.toolkit",
            TOOLKIT_GUIDE,
        )
        return Finding.info(f"{version}, but not configured in docker, containerd or CDI", fix=fix)
    if host.toolkit and numbers(host.toolkit) < _SAFE_TOOLKIT:
        fix = Fix(
            "Update nvidia-container-toolkit.",
            (repair("sudo apt-get install --only-upgrade nvidia-container-toolkit"),),
            "config",
            disturbs,
            "nodedoctor container.toolkit",
            TOOLKIT_GUIDE,
        )
        return Finding.info(
            f"{version}: container escape in releases before 1.17.8 (CVE-2025-23266)", fix=fix
        )
    return Finding.ok(f"{version}, configured in the container runtime")
