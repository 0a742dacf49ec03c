"""May GPUs and adapters talk to each other directly, or does ACS or the IOMMU send all through the CPU?"""

import re
from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.pci.config_space import Bridge, PcieTree
from nodedoctor.facts.pci.iommu import GROUPS, UNITS, Iommu
from nodedoctor.facts.pci.lspci import LspciAcs
from nodedoctor.facts.pci.pci import GIVEN_AWAY, Pci, PciDevice
from nodedoctor.model import Evidence, Finding, Fix, file_reading, quoted_like, reading
from nodedoctor.steps import look, reboot, repair
from nodedoctor.wording import comma_list, count_with_noun

NCCL_ACS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs"
_TRANSLATED = ("DMA", "DMA-FQ")

_AS_ROOT = Fix(
    "Run as root: other users can read only 64 bytes of configuration space, and ACS is after them.",
    (look("sudo nodedoctor pcie.acs"), look("sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'")),
    action="none",
)
_PASS_THROUGH = Fix(
    "Boot with the IOMMU in passthrough mode (`iommu=pt`), or off where no virtual machine needs it.",
    (
        look("cat /proc/cmdline"),
        look("grep GRUB_CMDLINE_LINUX /etc/default/grub", when="GRUB starts this node"),
        repair(
            "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub",
            when="this is Debian, Ubuntu or SUSE",
            disturbs="nothing",
        ),
        repair("sudo update-grub", when="this is Debian or Ubuntu", disturbs="nothing"),
        repair("sudo grub2-mkconfig -o /boot/grub2/grub.cfg", when="this is SUSE", disturbs="nothing"),
        repair(
            "sudo grubby --update-kernel=ALL --args=iommu=pt",
            when="this is a Red Hat system or Amazon Linux",
            disturbs="nothing",
        ),
        reboot("the node is drained"),
    ),
    "reboot",
    "every job on this node",
    "nodedoctor pcie.iommu",
    NCCL_ACS,
)


@check("pcie.acs", "PCIe ACS redirection", tags={"fast", "pcie"}, without=(Machine,), stage="preview")
def acs(tree: PcieTree, machine: Machine | None) -> Iterator[Finding]:
    """The ACS control register of every bridge above GPUs and RDMA NICs (needs root).

    A host that passes devices below a switch through to virtual machines needs the redirection there; with
    ATS, translated requests are not redirected (ACS Direct Translated P2P):
    docs.nvidia.com/ai-enterprise/planning-resource/optimizing-vm-configuration-ai-inference/latest/appendix.html
    Why: redirected traffic goes to the CPU and back: slow, and with IOMMU translation NCCL may hang.
    Fix disturbs: nothing; but isolation between virtual machines is lost.
    Judges: FAIL when ACS redirects traffic of GPUs and adapters at a switch on bare metal, WARN for ports of
    switches in a pasted `lspci -vv`.
    Fix: Switch redirection off at the named bridges, and only there, or in the BIOS.
    Threshold: NVIDIA/nccl, GPU troubleshooting.
    False positives: Hosts of virtual machines, ARM hosts and bridges with ATS need or excuse it and are left
    out.
    """
    if tree.pasted:
        yield _judge_paste(tree.pasted)
        return
    if why := _no_direct_path(tree, machine):
        yield Finding.skip(why)
        return
    blind = [bridge for bridge in tree.bridges if bridge.redirects is None]
    shared = [bridge for bridge in tree.bridges if _joins_devices(bridge, tree.bridges)]
    redirecting = [bridge for bridge in shared if bridge.redirects]
    bad = [bridge for bridge in redirecting if not (bridge.ats or _is_lent(bridge, tree.bridges))]
    yield from _judge_redirected(bad)
    if blind:
        evidence = [bridge.said for bridge in blind[:4]]
        summary = f"{len(blind)} of {count_with_noun(len(tree.bridges), 'bridge')} could not be read"
        yield Finding.unknown("denied", summary, evidence=evidence, fix=_AS_ROOT)
    elif not bad:
        roots = [bridge.address for bridge in tree.bridges if bridge.redirects]
        if redirecting:
            lent = any(_is_lent(bridge, tree.bridges) for bridge in redirecting)
            why = "needed for passthrough to virtual machines" if lent else "not applied to ATS requests"
            evidence = [bridge.said for bridge in redirecting[:4]]
            summary = f"redirection at {count_with_noun(len(redirecting), 'bridge')} ({why})"
            yield Finding.info(summary, evidence=evidence)
        elif roots:
            text = f"redirection only at root ports, harmless: {', '.join(roots[:8])}"
            yield Finding.info(text)
        else:
            yield Finding.ok(
                f"no redirection on {count_with_noun(len(tree.bridges), 'bridge')} above GPUs and NICs"
            )


def _judge_paste(pasted: LspciAcs) -> Finding:
    """What `lspci -vv` says of ACS; it shows neither all that is below a switch nor what the machine is."""
    ports = pasted.redirecting
    if len(ports) > 1:
        return _redirected_in_paste(ports)
    if ports:
        summary = "ACS redirects P2P traffic to the CPU at one port; no second port of its switch is shown"
        return Finding.info(summary, subject=f"pci:{ports[0]}", evidence=[_control_line(ports[0])])
    count, evidence = sum(pasted.unplaced), [quoted_like("lspci", "ACSCtl:.*")]
    total = count_with_noun(len(pasted.unplaced), "bridge")
    if not count:
        return Finding.ok(f"no ACS redirection at {total}", evidence=evidence)
    summary = f"ACS redirects P2P traffic at {count} of {total}; whether these are root ports is not shown"
    unknown = Finding.unknown("not-visible-here", summary, evidence=evidence, fix=_WITH_ADDRESSES)
    return unknown.matters_as(
        "At root ports it is harmless; between GPUs and adapters of one switch it is not."
    )


_WITH_ADDRESSES = Fix(
    "Show the bridges with their registers.",
    (look("sudo lspci -vvv | grep -E '^[0-9a-f]|Bus: primary|Express|ACSCtl'"),),
    action="none",
)


def _control_line(address: str) -> Evidence:
    short = re.escape(address.removeprefix("0000:"))
    pattern = rf"(?:^|[ >:]){short} [^\n]*(?:\n(?![^\n]*ACSCtl)[^\n]*){{0,80}}\n[^\n]*ACSCtl.*"
    return quoted_like("lspci", pattern)


def _redirected_in_paste(ports: Sequence[str]) -> Finding:
    """Ports of switches in `lspci -vv` between which traffic would go by the CPU."""
    where = f"{count_with_noun(len(ports), 'port')} of PCIe switches"
    summary = f"ACS redirects P2P traffic to the CPU at {where}; needed only for virtual machines"
    evidence = [_control_line(ports[0])]
    return Finding.warn(summary, subject=f"pci:{ports[0]}", evidence=evidence, fix=_acs_off(ports))


def _no_direct_path(tree: PcieTree, machine: Machine | None) -> str | None:
    """Why ACS does not matter here; None when it does."""
    if machine is not None and machine.virtual:
        return "a virtual machine: ATS decides here, not the guest's bridges"
    if machine is not None and machine.arch == "aarch64":
        return "an ARM host: GPUs and CPU share translated addresses by design (ATS over the SMMU)"
    if tree.gpus == 0:
        return "no GPU on the PCI bus"
    if tree.gpus + tree.adapters < 2:
        return "one GPU and no RDMA NIC: no peer-to-peer traffic"
    if not tree.bridges:
        return "no bridge above the GPUs is visible"
    return None


def _joins_devices(bridge: Bridge, bridges: Sequence[Bridge]) -> bool:
    """A downstream port of a switch that joins at least two devices: traffic could stay below the CPU."""
    if bridge.kind != "downstream port" or bridge.switch is None:
        return False
    above = next((port for port in bridges if port.address == bridge.switch), None)
    return above is not None and len(above.beneath) > 1


def _is_lent(bridge: Bridge, bridges: Sequence[Bridge]) -> bool:
    """Whether a device below the switch of this bridge is passed through to a virtual machine."""
    return any(bool(port.lent) for port in bridges if port.address == bridge.switch)


def _acs_off(addresses: Sequence[str]) -> Fix:
    """One repair for all of these bridges, in one command: setpci takes one operation after the other."""
    where = "this bridge" if len(addresses) == 1 else f"these {len(addresses)} bridges"
    operations = [word for address in addresses for word in ("-s", address, "ECAP_ACS+0x6.w=0000")]
    steps = (
        look("sudo lspci -s {} -vv | grep ACSCtl", addresses[0])
        if len(addresses) == 1
        else look("sudo lspci -vv | grep -E 'PCI bridge|ACSCtl'"),
        repair("sudo setpci {}", operations, when=_NOT_SHARED),
    )
    return Fix(
        f"Disable ACS redirection on {where} at every boot, or in the BIOS. Virtual machines that "
        "share the switch need it: then do not use P2P between them.",
        steps,
        "config",
        "isolation between virtual machines",
        "sudo nodedoctor pcie.acs",
        NCCL_ACS,
    )


_NOT_SHARED = "no virtual machine shares the switch"


def _judge_redirected(bridges: Sequence[Bridge]) -> Iterator[Finding]:
    """One finding for each bridge; all have the same repair, and the first explains the others."""
    if not bridges:
        return
    first, fix = bridges[0], _acs_off([bridge.address for bridge in bridges])
    for bridge in bridges:
        summary = f"ACS redirects P2P traffic of {comma_list(bridge.beneath, 3)} to the CPU"
        finding = Finding.fail(summary, subject=f"pci:{bridge.address}", evidence=[bridge.said], fix=fix)
        if len(bridges) > 1:
            finding = finding.led_by(f"ACS redirects P2P traffic at {len(bridges)} PCIe bridges to the CPU")
        yield finding if bridge is first else finding.explained_by(f"pcie.acs@pci:{first.address}")


@check("pcie.iommu", "IOMMU translation", tags={"fast", "pcie"}, without=(Machine,), stage="preview")
def iommu(iommu: Iommu, pci: Pci, machine: Machine | None) -> Iterator[Finding]:
    """IOMMU units, the type of the IOMMU groups of GPUs and NICs, and kernel parameters.

    Why: translation sends GPU-to-GPU traffic through the CPU: slow, wrong data or hangs in NCCL.
    Fix disturbs: every job on the node (reboot).
    Judges: WARN when GPUs or adapters are in IOMMU groups whose addresses are translated.
    Fix: Boot with `iommu=pt`.
    Threshold: NVIDIA/nccl, GPU troubleshooting: off or passthrough.
    False positives: Hosts that pass devices to virtual machines.
    """
    devices = tuple(slot for slot in (*pci.gpus, *pci.mellanox_nics) if slot.driver not in GIVEN_AWAY)
    if why := _no_translation(iommu, devices, sum(device.is_gpu for device in devices), machine):
        yield Finding.skip(why) if devices == () or why.startswith(_ELSEWHERE) else Finding.ok(why)
        return
    pairs = [(device, iommu.types.get(device.iommu_group or "", "")) for device in devices]
    translated = [(device, kind) for device, kind in pairs if kind in _TRANSLATED]
    types = [kind for _, kind in pairs if kind]
    evidence = [
        quoted_like("iommu", r"\S.*", 'files["/proc/cmdline"]'),
        reading("iommu", f'lists["{UNITS}"]?'),
    ]
    groups = dict.fromkeys(device.iommu_group for device, _ in translated)
    evidence += [file_reading("iommu", f"{GROUPS}/{group}/type") for group in list(groups)[:8]]
    if translated:
        summary = f"the IOMMU translates addresses for {len(translated)} of {len(devices)} GPUs and NICs"
        yield Finding.warn(summary, evidence=evidence, fix=_PASS_THROUGH)
    elif types:
        kinds = ", ".join(sorted(set(types)))
        yield Finding.ok(f"GPUs and NICs are in IOMMU groups of type {kinds}", evidence=evidence)
    elif any(device.iommu_group for device in devices):
        summary = "type of IOMMU groups not readable here"
        yield Finding.unknown(
            "denied", summary, evidence=evidence, fix=Fix("Run on the host as root.", action="none")
        )
    else:
        yield Finding.ok("GPUs and NICs are in no IOMMU group", evidence=evidence)


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
        return "one GPU and no RDMA NIC: no peer-to-peer traffic"
    return None if iommu.units else "no IOMMU enabled"
