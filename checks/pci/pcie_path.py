"""May GPUs and adapters talk to each other directly, or does ACS or the IOMMU send all through the CPU?"""

from collections.abc import Iterator, Sequence

from nodedoctor.engine.registry import check
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.pci.config_space import Bridge, PcieTree
from nodedoctor.facts.pci.iommu import Iommu
from nodedoctor.facts.pci.pci import GIVEN_AWAY, Pci, PciDevice
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look, reboot, repair

NCCL_ACS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs"
_TRANSLATED = ("DMA", "DMA-FQ")

_AS_ROOT = Fix(
    "Run as root: an ordinary user reads 64 bytes of configuration space, ACS stands behind them.",
    (look("sudo nodedoctor pcie.acs"), look("sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'")),
    action="none",
)
_PASS_THROUGH = Fix(
    "Boot with the IOMMU passed through (`iommu=pt`), or with it off where no virtual machine needs it.",
    (
        look("cat /proc/cmdline"),
        look("grep GRUB_CMDLINE_LINUX /etc/default/grub", when="GRUB starts this node"),
        repair(
            "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub",
            when="this is Debian, Ubuntu or SUSE",
            disturbs="nothing before the next boot",
        ),
        repair("sudo update-grub", when="this is Debian or Ubuntu", disturbs="nothing before the next boot"),
        repair(
            "sudo grub2-mkconfig -o /boot/grub2/grub.cfg",
            when="this is SUSE",
            disturbs="nothing before the next boot",
        ),
        repair(
            "sudo grubby --update-kernel=ALL --args=iommu=pt",
            when="this is a Red Hat system or Amazon Linux",
            disturbs="nothing before the next boot",
        ),
        reboot("the node is drained"),
    ),
    "reboot",
    "every job on this node",
    "nodedoctor pcie.iommu",
    NCCL_ACS,
)


@check(
    "pcie.acs",
    "ACS does not redirect traffic between GPUs and adapters",
    tags={"fast", "pcie"},
    without=(Machine,),
    stage="preview",
)
def acs(tree: PcieTree, machine: Machine | None) -> Iterator[Finding]:
    """The ACS control register of every bridge above GPUs and RDMA adapters (needs root).

    A host that passes devices below a switch through to virtual machines needs the redirection there, and
    with ATS translated requests pass all the same (ACS Direct Translated P2P):
    docs.nvidia.com/ai-enterprise/planning-resource/optimizing-vm-configuration-ai-inference/latest/appendix.html
    Why: redirected traffic goes up to the CPU and back: slow, and with an IOMMU translating it may hang NCCL.
    Fix disturbs: nothing; isolation between virtual machines is lost.
    Judges: FAIL when ACS redirects traffic of GPUs and adapters at a switch on bare metal.
    Fix: Switch redirection off at the named bridge or in the BIOS.
    Threshold: NVIDIA/nccl, GPU troubleshooting.
    False positives: Hosts of virtual machines, ARM hosts and bridges with ATS need or excuse it and are left
    out.
    """
    if why := _no_direct_path(tree, machine):
        yield Finding.skip(why)
        return
    blind = [bridge for bridge in tree.bridges if bridge.redirects is None]
    shared = [bridge for bridge in tree.bridges if _between(bridge, tree.bridges)]
    redirecting = [bridge for bridge in shared if bridge.redirects]
    bad = [bridge for bridge in redirecting if not (bridge.ats or _lent(bridge, tree.bridges))]
    for bridge in bad:
        yield _redirected(bridge)
    if blind:
        evidence = [Evidence("pci", f"{bridge.address}: {_SHORT}") for bridge in blind[:4]]
        summary = f"{len(blind)} of {len(tree.bridges)} bridges could not be read"
        yield Finding.unknown("denied", summary, evidence=evidence, fix=_AS_ROOT)
    elif not bad:
        roots = [bridge.address for bridge in tree.bridges if bridge.redirects]
        if redirecting:
            lent = any(_lent(bridge, tree.bridges) for bridge in redirecting)
            why = (
                "devices there are passed through to virtual machines"
                if lent
                else "with ATS, which passes it"
            )
            addresses = ", ".join(bridge.address for bridge in redirecting[:8])
            yield Finding.info(f"redirection at {len(redirecting)} bridges, {why}: {addresses}")
        elif roots:
            text = f"redirection only at ports that lead to the CPU anyway: {', '.join(roots[:8])}"
            yield Finding.info(text)
        else:
            yield Finding.ok(f"no redirection on {len(tree.bridges)} bridges above GPUs and adapters")


_SHORT = "64 bytes of configuration space"


def _no_direct_path(tree: PcieTree, machine: Machine | None) -> str | None:
    """Why ACS does not matter here; None when it does."""
    if machine is not None and machine.virtual:
        return "a virtual machine: here address translation services (ATS) decide, not the guest's bridges"
    if machine is not None and machine.arch == "aarch64":
        return "an ARM host: GPUs and CPU share translated addresses by design (ATS over the SMMU)"
    if tree.gpus == 0:
        return "no GPU on the PCI bus"
    if tree.gpus + tree.adapters < 2:
        return "one GPU and no RDMA adapter: nothing to talk to directly"
    if not tree.bridges:
        return "no bridge above the GPUs is visible"
    return None


def _between(bridge: Bridge, bridges: Sequence[Bridge]) -> bool:
    """A downstream port of a switch that joins at least two devices: traffic could stay below the CPU."""
    if bridge.kind != "downstream port" or bridge.switch is None:
        return False
    above = next((other for other in bridges if other.address == bridge.switch), None)
    return above is not None and len(above.beneath) > 1


def _lent(bridge: Bridge, bridges: Sequence[Bridge]) -> bool:
    """Whether a device below the switch of this bridge is passed through to a virtual machine."""
    return any(bool(other.lent) for other in bridges if other.address == bridge.switch)


def _acs_off(address: str) -> Fix:
    return Fix(
        "Switch ACS redirection off on this bridge, at every boot, or off in the BIOS. Virtual machines that "
        "share the switch need it on: then do not use P2P between them.",
        (
            look("sudo lspci -s {} -vv | grep ACSCtl", address),
            repair(
                "sudo setpci -s {} ECAP_ACS+0x6.w=0000", address, when="no virtual machine shares the switch"
            ),
        ),
        "config",
        "nothing; isolation between virtual machines is lost",
        "sudo nodedoctor pcie.acs",
        NCCL_ACS,
    )


def _redirected(bridge: Bridge) -> Finding:
    said = f"{bridge.address} {bridge.kind}: ACSCtl {' '.join(f'{name}+' for name in bridge.redirects or ())}"
    summary = f"redirects what {', '.join(bridge.beneath)} sends to its neighbours on the switch"
    subject = f"pci:{bridge.address}"
    return Finding.fail(
        summary, subject=subject, evidence=[Evidence("pci", said)], fix=_acs_off(bridge.address)
    )


@check(
    "pcie.iommu",
    "The IOMMU does not translate what GPUs and adapters send",
    tags={"fast", "pcie"},
    without=(Machine,),
    stage="preview",
)
def iommu(iommu: Iommu, pci: Pci, machine: Machine | None) -> Iterator[Finding]:
    """IOMMU units, the type of the groups GPUs and adapters are in, and the kernel's parameters.

    Why: translated addresses send GPU-to-GPU traffic through the CPU: slow, wrong data or hangs in NCCL.
    Fix disturbs: every job on the node: it takes a reboot.
    Judges: WARN when GPUs or adapters are in IOMMU groups whose addresses are translated.
    Fix: Boot with `iommu=pt`.
    Threshold: NVIDIA/nccl, GPU troubleshooting: off or passthrough.
    False positives: Hosts that pass devices to virtual machines.
    """
    devices = tuple(one for one in (*pci.gpus, *pci.mellanox_nics) if one.driver not in GIVEN_AWAY)
    if why := _no_translation(iommu, devices, sum(device.is_gpu for device in devices), machine):
        yield Finding.skip(why) if devices == () or why.startswith(_ELSEWHERE) else Finding.ok(why)
        return
    held = [(device, iommu.types.get(device.iommu_group or "", "")) for device in devices]
    translated = [(device, kind) for device, kind in held if kind in _TRANSLATED]
    told = [kind for _, kind in held if kind]
    parameters = " ".join(iommu.parameters) or "none about the IOMMU"
    said = [Evidence("iommu", f"kernel parameters: {parameters}; units: {' '.join(iommu.units[:8])}")]
    said += [Evidence("iommu", f"{d.address} in group {d.iommu_group}: {kind}") for d, kind in translated[:8]]
    if translated:
        summary = f"the IOMMU translates for {len(translated)} of {len(devices)} GPUs and adapters"
        yield Finding.warn(summary, evidence=said, fix=_PASS_THROUGH)
    elif told:
        kinds = ", ".join(sorted(set(told)))
        yield Finding.ok(f"GPUs and adapters are in IOMMU groups of type {kinds}", evidence=said)
    elif any(device.iommu_group for device in devices):
        summary = "the type of IOMMU groups cannot be read here"
        yield Finding.unknown(
            "denied", summary, evidence=said, fix=Fix("Run on the host as root.", action="none")
        )
    else:
        yield Finding.ok("GPUs and adapters are in no IOMMU group", evidence=said)


_ELSEWHERE = ("a virtual machine", "an ARM host", "one GPU", "no GPU", "WSL2")


def _no_translation(
    iommu: Iommu, devices: Sequence[PciDevice], gpus: int, machine: Machine | None
) -> str | None:
    if gpus == 0:
        return "no GPU on the PCI bus that is not passed through to a virtual machine"
    if machine is not None and machine.virtual:
        return "a virtual machine: its IOMMU is the host's"
    if machine is not None and machine.arch == "aarch64":
        return "an ARM host: GPUs and CPU share translated addresses by design (ATS over the SMMU)"
    if len(devices) < 2:
        return "one GPU and no RDMA adapter: nothing to talk to directly"
    return None if iommu.units else "no IOMMU is switched on"
