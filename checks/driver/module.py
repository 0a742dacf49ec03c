"""Do kernel module, libraries and packages of the driver fit together?"""

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import LIBRARIES, RIVALS, UPGRADES_ON, Driver, module_line, module_version
from nodedoctor.facts.driver.nvidia_presence import NONE_HERE
from nodedoctor.facts.driver.packages import DriverPackage, DriverPackages
from nodedoctor.facts.gpu.evidence import init_evidence
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.pci.pci import Pci, device_evidence
from nodedoctor.knowledge.nvml_errors import HOLD_PACKAGES, INSTALL_GUIDE, NO_DRIVER, RECREATE, RELOAD
from nodedoctor.knowledge.versions import cuda
from nodedoctor.model import Evidence, Expect, Finding, Fix, Moment, reading
from nodedoctor.steps import look, reboot, repair
from nodedoctor.wording import comma_list, count_with_noun, fitting

MISMATCH = "LIB_RM_VERSION_MISMATCH"

_UVM = Fix(
    "Load nvidia_uvm now and at every boot. With nvidia-modprobe installed, programs of ordinary users load "
    "it; a container cannot.",
    (
        repair("sudo modprobe nvidia_uvm"),
        repair("echo nvidia_uvm | sudo tee /etc/modules-load.d/nvidia-uvm.conf"),
    ),
    action="config",
    disturbs="nothing",
    verify="nodedoctor driver.modules",
)
_HOLD = Fix(
    "Hold the driver packages; upgrade them when the node is drained.",
    HOLD_PACKAGES,
    action="config",
    disturbs="nothing",
    verify="nodedoctor driver.module-userspace",
)
_RIVAL = Fix(
    "Blacklist nouveau and reboot: two drivers cannot share a GPU. NVIDIA's module has to be built for the "
    "kernel that boots, else there is none afterwards.",
    (
        repair("echo blacklist nouveau | sudo tee /etc/modprobe.d/no-nouveau.conf", disturbs="nothing"),
        repair(
            "echo options nouveau modeset=0 | sudo tee -a /etc/modprobe.d/no-nouveau.conf", disturbs="nothing"
        ),
        repair("sudo update-initramfs -u", when="this is Debian or Ubuntu", disturbs="nothing"),
        repair("sudo dracut --force", when="this is a Red Hat or SUSE system", disturbs="nothing"),
        look("dkms status"),
        repair("sudo dkms autoinstall", when="dkms has no module for this kernel", disturbs="nothing"),
        reboot("the node is drained"),
    ),
    action="reboot",
    disturbs="every job on this node",
    verify="nodedoctor driver.modules",
    docs=INSTALL_GUIDE,
)


@check(
    "driver.module-userspace",
    "Driver module and library versions",
    tags={"fast"},
    without=(DriverPackages, Container, Inventory, Gpus),
)
def module_userspace(
    driver: Driver | None,
    gpus: Gpus | None,
    packages: DriverPackages | None,
    container: Container | None,
    inventory: Inventory | None,
) -> Iterator[Finding]:
    """The loaded module's version against those in the file names of libnvidia-ml and libcuda.

    Why: an unattended upgrade replaces the libraries under a loaded module; CUDA then fails until a reboot.
    Fix disturbs: every job on the node (reboot), or all processes in the container.
    Judges: FAIL when the loaded kernel module and the libraries are of different versions.
    Fix: Reboot, or reload the modules with no job running; then hold the driver packages.
    Threshold: nvml.h: NVML_ERROR_LIB_RM_VERSION_MISMATCH.
    False positives: A forward-compatibility libcuda is meant to differ (container.compat).
    Error texts:
    - Failed to initialize NVML: Driver/library version mismatch
    - NVRM: API mismatch
    """
    fix = RECREATE if container and container.inside else RELOAD
    module = (driver.version if driver else None) or ""
    libraries = _library_versions(driver, gpus)
    wrong = {name: versions for name, versions in libraries.items() if module not in versions}
    failed = gpus.init_error if gpus else None
    if failed and failed.name == MISMATCH:
        evidence = [init_evidence(gpus.source, failed)] if gpus else []
        yield _judge_mismatch(module, wrong, driver, packages, evidence, fix)
    elif driver and driver.platform == "wsl2":
        yield Finding.skip("WSL2: the driver is Windows', there is no kernel module to compare")
    elif driver is None or not module:
        yield _no_module(driver, inventory)
    elif not libraries:
        summary = f"module {module}; no driver library with a version in its name is visible"
        yield Finding.unknown("not-visible-here", summary)
    elif wrong:
        yield _judge_mismatch(module, wrong, driver, packages, [], fix)
    else:
        yield from _judge_agreement(module, driver, packages)


def _library_versions(driver: Driver | None, gpus: Gpus | None) -> dict[str, tuple[str, ...]]:
    """The versions of every library: those on disk, else what NVML itself says (`13.580.95.05`)."""
    libraries = {name: versions for name in LIBRARIES if driver and (versions := driver.versions(name))}
    text = gpus.nvml_version if gpus else None
    if text and not libraries:
        libraries["NVML"] = (text.partition(".")[2] if text.count(".") > 2 else text,)
    return libraries


def _no_module(driver: Driver | None, inventory: Inventory | None) -> Finding:
    if inventory and inventory.none_here:
        return Finding.skip(NONE_HERE)
    for path, error in driver.errors.items() if driver else ():
        if path.endswith("/version"):
            return Finding.unknown("timeout" if error == "TIMEOUT" else "denied", f"{path}: {error}")
    if driver is None or driver.loaded:  # of `lsmod` only the names of modules are known
        return Finding.unknown("not-visible-here", "the driver's files were not read")
    return Finding.skip("no NVIDIA kernel module is loaded")


def _judge_mismatch(
    module: str,
    wrong: dict[str, tuple[str, ...]],
    driver: Driver | None,
    packages: DriverPackages | None,
    evidence: list[Evidence],
    fix: Fix,
) -> Finding:
    """Everything that shows which versions meet here, and how they came to differ."""
    if driver:
        evidence += [module_version()] if driver.version_text else []
        evidence += [library.said for library in driver.libraries if library.name in wrong]
        evidence += [UPGRADES_ON] if driver.unattended_upgrades else []
    evidence += [package.said for package in _unlike_packages(packages, module)]
    by_library = comma_list(f"{name} {' '.join(versions)}" for name, versions in wrong.items())
    summary = "the loaded kernel module and the driver libraries have different versions"
    others = sorted({version for versions in wrong.values() for version in versions})
    if module and others:
        loaded = f"kernel module {module} is loaded, the libraries are"
        all_of_them = f"{loaded} {comma_list(others)}"
        summary = all_of_them if len(others) == 1 else fitting(f"{loaded} {by_library}", all_of_them)
    lead = f"driver mismatch: kernel module {module}, libraries {', '.join(others)}"
    finding = Finding.fail(summary, evidence=evidence, fix=fix)
    return finding.led_by(lead) if module and others else finding


def _judge_agreement(module: str, driver: Driver, packages: DriverPackages | None) -> Iterator[Finding]:
    """One version that counts; other copies, half-done upgrades and unheld packages are worth a note."""
    others = {v for name in LIBRARIES for v in driver.versions(name)} - {module}
    if others:
        copies = [library.said for library in driver.libraries if library.version in others]
        summary = f"{module} in use; another folder holds {comma_list(sorted(others))}"
        yield Finding.info(summary, evidence=copies)
    elif unlike := _unlike_packages(packages, module):
        installed = f"{unlike[0].name} {unlike[0].version}"
        summary = f"module and libraries {module}; after a reboot it may be {installed}"
        evidence = [package.said for package in unlike]
        yield Finding.info(summary, evidence=evidence, fix=_HOLD)
    elif driver.unattended_upgrades and packages and any(not package.held for package in packages.packages):
        summary = f"module and libraries {module}; unattended upgrades may replace them during a job"
        yield Finding.info(summary, fix=_HOLD)
    else:
        yield Finding.ok(f"module and libraries {module}")


def _unlike_packages(packages: DriverPackages | None, module: str) -> list[DriverPackage]:
    """Installed driver packages of another version than the loaded module."""
    all_packages: tuple[DriverPackage, ...] = packages.packages if packages else ()
    return [package for package in all_packages if module and package.driver not in (None, module)]


@check("driver.modules", "NVIDIA kernel modules", tags={"fast"})
def modules(driver: Driver, pci: Pci | None, inventory: Inventory | None) -> Iterator[Finding]:
    """nvidia and nvidia_uvm in /proc/modules, and which kernel driver holds each GPU.

    Why: without nvidia_uvm no CUDA program starts; with nouveau on a GPU NVIDIA's driver cannot bind it.
    Fix disturbs: nothing; every job on the node when nouveau must be removed (reboot).
    Judges: FAIL when nvidia is not loaded or nouveau holds a GPU; WARN when nvidia_uvm is not loaded.
    Fix: Load the modules, or blacklist nouveau and reboot.
    Threshold: NVIDIA/nccl troubleshooting: nvidia_uvm must be loaded.
    False positives: Inside a container /proc/modules shows the host's modules and is right.
    """
    gpus = [gpu for gpu in pci.gpus if gpu.driver != "vfio-pci"] if pci else []
    rivals = [gpu for gpu in gpus if gpu.driver in (*RIVALS, "NovaCore")]
    for gpu in rivals:
        evidence = device_evidence(gpu, "vendor", "device", "driver")
        summary = f"GPU {gpu.address} is bound to {gpu.driver}, not to nvidia"
        finding = Finding.fail(summary, subject=f"pci:{gpu.address}", evidence=evidence, fix=_RIVAL)
        yield finding.matters_as("NVIDIA's driver cannot bind a GPU that another driver holds.")
    if rivals:
        return
    if inventory and inventory.none_here:
        yield Finding.skip(NONE_HERE)
    elif driver.platform:
        yield Finding.skip(f"{driver.platform}: the driver is not a module of this kernel")
    elif driver.loaded is None or (driver.loaded and driver.modules is None):
        yield Finding.unknown("not-visible-here", "/proc/modules could not be read")
    elif not driver.loaded:
        yield _not_loaded(len(gpus), pci, [name for name in RIVALS if name in (driver.modules or {})])
    else:
        yield from _judge_loaded(driver)


def _not_loaded(gpus: int, pci: Pci | None, rivals: list[str]) -> Finding:
    if pci is None and rivals:
        summary = f"module {rivals[0]} is loaded, nvidia is not"
        finding = Finding.fail(summary, evidence=[module_line(rivals[0])], fix=_RIVAL)
        return finding.matters_as("NVIDIA's driver cannot bind a GPU that another driver holds.")
    if pci is None:
        return Finding.unknown("not-visible-here", "no NVIDIA module loaded; unknown whether there are GPUs")
    if not gpus:
        return Finding.skip("no GPU assigned here, no NVIDIA module loaded")
    summary = f"module nvidia not loaded, {count_with_noun(gpus, 'GPU')} on the PCI bus"
    evidence = [
        reading("driver-files", 'files["/proc/driver/nvidia/version"]?'),
        reading("driver-files", 'files["/sys/module/nvidia/version"]?'),
    ]
    return Finding.fail(summary, evidence=evidence, fix=NO_DRIVER).matters_as(
        "Without it no CUDA program starts."
    )


def _judge_loaded(driver: Driver) -> Iterator[Finding]:
    states = driver.modules or {}
    halfway = {name: state for name, state in states.items() if state != "Live"}
    for name, state in halfway.items():
        evidence = [module_line(name)]
        yield Finding.warn(
            f"module {name} is in state {state.lower()}, expected live", evidence=evidence, fix=NO_DRIVER
        )
    if "nvidia_uvm" not in states:
        yield Finding.warn("module nvidia_uvm not loaded (CUDA needs it)", fix=_UVM)
    elif not halfway:
        kind = f" ({driver.kind})" if driver.kind else ""
        yield Finding.ok(f"{', '.join(name for name in states)} loaded{kind}")


@check("driver.branch", "Driver branch support", tags={"fast"}, without=(Driver, Gpus))
def branch(driver: Driver | None, gpus: Gpus | None, expect: Expect, moment: Moment) -> Iterator[Finding]:
    """The driver's branch against its end-of-life month, as NVIDIA publishes it.

    Why: only supported branches get fixes for hangs and new Xids; an old branch is no fault in itself.
    Fix disturbs: every job on the node (driver upgrade).
    Judges: A note when the branch is past its end of life; FAIL only against --expect driver=.
    Fix: Plan an upgrade to a maintained branch.
    Threshold: NVIDIA's data-centre driver documentation (cuda_driver table).
    False positives: None known.
    """
    text = (gpus and gpus.driver_version) or (driver and driver.version) or ""
    wanted = expect.get("driver")
    if wanted and not text.startswith(wanted):
        yield Finding.fail(f"driver {wanted} expected, found {text or 'an unknown version'}")
    version = cuda.driver_version(text)
    row = cuda.branch(version) if version else None
    if version is None:
        yield from () if wanted else [Finding.skip("no NVIDIA driver here, or its version is unknown")]
    elif row is None:
        yield Finding.info(f"{text}: not in this version's list of NVIDIA data-centre branches")
    elif row.past(moment.started.strftime("%Y-%m")):
        since = f"since {row.ends}" if row.ends else "by NVIDIA's list"
        fix = Fix(
            "Plan the upgrade to a supported branch; nothing is broken.", docs=row.source, action="none"
        )
        yield Finding.info(f"{text}: branch R{row.branch} is past its end of life {since}", fix=fix)
    else:
        until = f" until {row.ends}" if row.ends else ""
        yield Finding.ok(f"{text}: branch R{row.branch} is supported{until}")
