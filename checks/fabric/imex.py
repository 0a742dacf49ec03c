"""Is IMEX in order on trays that share memory over NVLink with others?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import Driver, module_version
from nodedoctor.facts.driver.packages import DriverPackages
from nodedoctor.facts.driver.services import Services
from nodedoctor.facts.fabric.fabric_nodes import CHANNELS, FabricNodes
from nodedoctor.facts.gpu.board import Board
from nodedoctor.model import Finding, Fix, reading
from nodedoctor.steps import look, repair

_UNIT = "nvidia-imex"
_GUIDE = "https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/"
_FIX = Fix(
    "Install IMEX in exactly the driver's version on all trays of the domain and start it; its log names "
    "the node it waits for.",
    (
        look("systemctl status nvidia-imex"),
        look("nvidia-imex-ctl -N"),
        look("sudo tail -50 /var/log/nvidia-imex.log"),
        repair(
            "sudo systemctl start nvidia-imex", when="its version and nodes_config.cfg are those of all trays"
        ),
    ),
    "restart-service",
    "jobs across trays of the rack",
    "nodedoctor fabric.imex",
    _GUIDE,
)


@check(
    "fabric.imex",
    "IMEX service (multi-node NVLink)",
    tags={"fast", "nvlink", "service"},
    without=(FabricNodes,),
    stage="preview",
)
def imex(
    board: Board,
    services: Services | None,
    packages: DriverPackages | None,
    driver: Driver | None,
    nodes: FabricNodes | None,
) -> Iterator[Finding]:
    """The service nvidia-imex on GB200 and GB300 trays: its state, its version, and IMEX channels.

    A stopped service is no fault: Slurm and Kubernetes may start it with each job.
    Why: without IMEX memory cannot be shared with other trays; jobs across trays fail or use the network.
    Fix disturbs: jobs across trays of the rack.
    Judges: WARN when the service nvidia-imex has failed or is of another version than the driver.
    Fix: Restart nvidia-imex, and install the version of the driver.
    Threshold: NVIDIA's IMEX guide; equality of versions.
    False positives: Sites that start IMEX with each job: a stopped service is no finding.
    Error texts:
    - Cuda failure 800 'operation not permitted'
    """
    platform = board.known_platform
    if platform is None or not platform.imex:
        yield Finding.skip("no multi-node NVLink here")
        return
    findings = list(_judge_versions(packages, driver))
    unit = services.get(_UNIT) if services else None
    if services is None or not services.reported(_UNIT):
        findings.append(Finding.unknown("not-visible-here", "services not visible from here"))
    elif unit is None:
        findings.append(
            Finding.info("nvidia-imex not installed here: jobs across trays need it in another place")
        )
    elif unit.active == "failed" or unit.sub == "auto-restart":
        evidence = [unit.said]
        findings.append(
            Finding.warn("nvidia-imex failed", subject="service:nvidia-imex", evidence=evidence, fix=_FIX)
        )
    elif not unit.running:
        evidence = [unit.said]
        findings.append(
            Finding.info(f"nvidia-imex is {unit.active}; it may start with each job", evidence=evidence)
        )
    else:
        findings.append(Finding.ok("nvidia-imex is running", evidence=[unit.said]))
    if nodes and nodes.channels == ():
        # An administrator or each job makes them, and they are gone after a reboot (IMEX guide).
        findings.append(
            Finding.info(
                "there is no IMEX channel: a job that shares memory with other trays needs one",
                subject="imex:channels",
                evidence=[reading("machine", f'errors["{CHANNELS}"]')],
            )
        )
    yield from findings


def _judge_versions(packages: DriverPackages | None, driver: Driver | None) -> Iterator[Finding]:
    """IMEX of another version than the loaded driver (IMEX guide: they must be equal)."""
    loaded = driver.version if driver else None
    for package in packages.packages if packages else ():
        if package.name.startswith(_UNIT) and package.driver and loaded and package.driver != loaded:
            if packages is not None and packages.drivers() == (package.driver,):
                continue  # both were upgraded and wait for a reboot: driver.module-userspace tells it
            evidence = [package.said, module_version()]
            summary = f"{package.name} {package.driver}, driver {loaded}"
            yield Finding.warn(summary, subject="package:nvidia-imex", evidence=evidence, fix=_FIX)
