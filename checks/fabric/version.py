"""Is the fabric manager of the driver's version?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import Driver, module_version
from nodedoctor.facts.driver.packages import DriverPackages
from nodedoctor.facts.fabric.fabric_manager import FabricManager
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.machine import Machine
from nodedoctor.knowledge.fixes.recipes import package_tool
from nodedoctor.model import Evidence, Finding, Fix, Step, reading
from nodedoctor.steps import look, repair

from .manager import GUIDE

_UNIT = "nvidia-fabricmanager"
_PACKAGE = r"nvidia-fabric-?manager(?:-\d+)?"


@check(
    "fabric.version",
    "Fabric manager version",
    tags={"nvlink", "service"},
    explained_by=("driver.module-userspace",),
    stage="preview",
)
def version(
    board: Board,
    manager: FabricManager | None,
    driver: Driver | None,
    gpus: Gpus | None,
    packages: DriverPackages | None,
    machine: Machine | None,
) -> Iterator[Finding]:
    """Version of the installed fabric manager against the driver's; both must be equal to the last digit.

    Where the driver was upgraded and its old module is still loaded, the installed driver is what counts.

    Why: a fabric manager of another version does not start; this happens when only one of them is upgraded.
    Fix disturbs: every job on the board's GPUs.
    Judges: FAIL when the fabric manager's version differs from the driver's.
    Fix: Install the fabric manager of the driver's exact version.
    Threshold: The fabric manager refuses other versions (AWS: Get started with EFA and NCCL).
    False positives: None known.
    """
    driving = (driver.version if driver else None) or (gpus.driver_version if gpus else None)
    if board.fabric is False:
        yield Finding.skip(f"{board.model}: no fabric manager needed")
    elif manager is None and board.fabric is None:
        yield Finding.skip("no fabric manager here; unknown whether one is needed")
    elif manager is None:
        fix = Fix(
            "Run on the host, where it is installed.",
            (look("nv-fabricmanager --version", when="you are on the host"),),
            action="none",
        )
        yield Finding.unknown("missing-tool", "fabric manager version not visible here", fix=fix)
    elif not driving:
        yield Finding.unknown("not-visible-here", f"fabric manager {manager.version}, driver version unknown")
    elif manager.version == driving:
        yield Finding.ok(f"fabric manager and driver {driving}")
    elif packages and _driver_versions(packages) == {manager.version}:
        summary = (
            f"the driver was upgraded to {manager.version} too, reboot pending (driver.module-userspace)"
        )
        yield Finding.skip(summary)
    else:
        evidence = [*manager.said, _driver_evidence(driver, gpus)]
        fix = _same_version(driving, packages, machine)
        yield Finding.fail(f"fabric manager {manager.version}, driver {driving}", evidence=evidence, fix=fix)


def _driver_evidence(driver: Driver | None, gpus: Gpus | None) -> Evidence:
    if driver and driver.version:
        return module_version()
    return reading(gpus.source if gpus else "", "system.values.driver_version", "driver_version")


def _driver_versions(packages: DriverPackages) -> set[str]:
    """Versions of the installed driver itself, less those of the fabric manager's own packages."""
    drivers = [package for package in packages.packages if not package.name.startswith("nvidia-fabric")]
    return {package.driver for package in drivers if package.driver}


def _same_version(driving: str, packages: DriverPackages | None, machine: Machine | None) -> Fix:
    """Install what belongs to the driver, with the tool of this distribution.

    The revision behind the driver's version differs between NVIDIA's and Ubuntu's archive (580.159.03-1,
    580.159.03-0ubuntu0.24.04.1), so it is left open. In Debian packages up to 580 the branch is a part of the
    name; NVIDIA's later ones leave it out (driver installation guide, recent updates): the name of the
    installed package shows which it is.
    """
    tool = package_tool(machine.distro_id if machine else None)
    names = [package.name for package in packages.packages] if packages else []
    installed = next((name for name in names if re.fullmatch(_PACKAGE, name)), "")
    branch = driving.partition(".")[0]
    steps: list[Step] = []
    if tool == "apt":
        bare = installed and not installed[-1].isdecimal()
        name = _UNIT if bare else f"{_UNIT}-{branch}"
        steps += (look("apt-cache madison {}", name), repair("sudo apt-get install {}", f"{name}={driving}*"))
        steps.append(repair("sudo apt-mark hold {}", name, disturbs="its upgrades, until apt-mark unhold"))
    elif tool:
        steps.append(repair("sudo {} install {}", tool, f"{installed or _UNIT}-{driving}"))
    if tool:
        steps.append(repair("sudo systemctl start nvidia-fabricmanager", when="the versions are equal"))
    return Fix(
        "Install the fabric manager in the driver's version, and hold both packages.",
        tuple(steps),
        "config",
        "every job on the board's GPUs",
        "nodedoctor fabric.version",
        GUIDE,
    )
