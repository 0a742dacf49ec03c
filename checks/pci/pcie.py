"""Is every PCIe link as wide and fast as it must be?"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.evidence import identity_evidence, values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.pci.lspci import Lspci
from nodedoctor.facts.pci.pci import Pci, PciDevice, device_evidence
from nodedoctor.knowledge.fixes.gpu import look_at
from nodedoctor.knowledge.gpus import GpuModel, gpu_model
from nodedoctor.knowledge.nvml_errors import OFF_THE_BUS
from nodedoctor.model import Expect, Finding, Fix, Step, quoted_like
from nodedoctor.steps import look
from nodedoctor.wording import comma_list, count_with_noun, singular_or_plural

from ..unavailable import all_of, none_shown, not_reported

FEWER_LANES = 4
"""How many times fewer lanes than it has an adapter is not put in a slot for; twice may be the slot. Ours."""
LOADED_PERCENT = 50
"""Utilisation from which a link is expected at full speed: idle GPUs clock it down (nvidia-smi(1))."""

_LOOK = Fix(
    "Run where NVML or nvidia-smi works, or paste the output of `nvidia-smi -q`.",
    (look("nvidia-smi -q"),),
    action="none",
)
_CARD = re.compile(r"\[(?:NVIDIA )?([A-Z]\d[\w -]{0,30})\]")
"""A model as a pasted lspci names it: `GH100 [H100 PCIe]`."""
_LOOK_ABOVE = Fix(
    "Show the port above it, too: `lspci -tv` names it.",
    (look("lspci -tv"), look("sudo lspci -vv | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'")),
    action="none",
)
_RESEAT = (
    "Reseat the card, its riser or the module; check the slot's BIOS setting (bifurcation). A link that "
    "stays narrow has a bad lane: board, riser or card."
)

_REPLUG = "Drain and reboot the node; if the adapter is lost again, have it reseated or replaced."


@check(
    "pcie.width",
    "PCIe link width",
    tags={"fast", "gpu", "pcie"},
    explained_by=("driver.answers", "driver.gpus-present"),
    without=(Lspci,),
)
def width(
    gpus: Gpus | None, pci: Pci | None, board: Board | None, lspci: Lspci | None, expect: Expect
) -> Iterator[Finding]:
    """Lanes of each GPU's and RDMA NIC's link, against what both ends support and against its peers.

    Why: a GPU with a part of its lanes reaches host memory and NICs more slowly, and all others wait for it.
    Fix disturbs: every job on the node while a card is reseated.
    Judges: FAIL when a GPU or adapter runs on fewer lanes than its peers or, on a module board, than its
    model has; WARN when an adapter has a quarter of its lanes, or a pasted `lspci -vv` shows that the port
    above has more, too.
    Fix: Reseat the card, riser or module; check bifurcation in the BIOS.
    Threshold: Lanes per model in the gpus table, and the peers.
    False positives: Workstation slots and single cloud cards with fewer lanes are only noted.
    """
    readable = [gpu for gpu in gpus.gpus if gpu.pcie_width] if gpus else []
    source = gpus.source if gpus else ""
    wanted = _expected_link(expect)[1]
    findings = [finding for gpu in readable if (finding := _gpu_width(gpu, readable, board, source, wanted))]
    # Without a driver that answers, sysfs knows the links of GPUs, too.
    unasked = pci.gpus if pci and not (gpus and gpus.gpus) else ()
    devices = (*unasked, *(pci.mellanox_nics if pci else ()))
    findings += [finding for device in devices if (finding := _device_width(device, devices))]
    if lspci and pci is None:
        shown = [device for device in lspci.devices if device.is_nic or not (gpus and gpus.gpus)]
        findings += [f for slot in shown if (f := _device_width(slot, shown, lspci))]
        findings += [_off_bus(device) for device in lspci.devices if device.off_bus]
        devices = (*devices, *shown)
    differing = {finding.subject for finding in findings}
    looked = [gpu.subject for gpu in readable]
    slots = [device for device in devices if _lane_count(device)]
    rated = [f"pci:{device.address}" for device in slots if device.link and device.link.max_width]
    counts = {"GPU": set(looked) - differing, "device": set(rated) - differing}
    as_expected = [count_with_noun(len(rest), noun) for noun, rest in counts.items() if rest]
    yield from findings
    if gpus and gpus.gpus and not readable:
        yield not_reported("PCIe link width", gpus.gpus, "pcie_width")
    elif not (looked or slots):
        yield _nothing_read(gpus, pci)
    elif not any(finding.severity.is_problem for finding in findings) and as_expected:
        yield Finding.ok(f"{comma_list(as_expected)} at the expected width")
    elif not findings:
        yield Finding.info("what these links can do is not shown")


def _off_bus(device: PciDevice) -> Finding:
    """A device that the bus lists and that answers nothing, in a paste."""
    short = re.escape(device.address.removeprefix("0000:"))
    evidence = [quoted_like("lspci", rf"(?:^|[ >:]){short} .*")]
    what = "adapter" if device.is_nic else "GPU"
    steps = link_steps(device.address)
    fix = Fix(_REPLUG, steps, "reboot", "every job on this node", "nodedoctor nic.inventory")
    finding = Finding.fail(
        f"{what} {device.address} has fallen off the bus: lspci reads ff everywhere",
        subject=f"pci:{device.address}",
        evidence=evidence,
        fix=fix if device.is_nic else OFF_THE_BUS,
    )
    return finding.matters_as(f"No program reaches this {what} until the node restarts.")


def _nothing_read(gpus: Gpus | None, pci: Pci | None) -> Finding:
    if pci and not pci.gpus and not (gpus and gpus.gpus):
        return Finding.skip("no GPU or RDMA NIC here")
    return (
        none_shown(gpus) if gpus else Finding.unknown("not-visible-here", "no PCIe link reported", fix=_LOOK)
    )


def _expected_link(expect: Expect) -> tuple[int, int]:
    """Generation and width somebody expects, from `5x16`; zeros when nothing is."""
    generation, _, lanes = (expect.get("pcie") or "").partition("x")
    ok = generation.isdecimal() and lanes.isdecimal() and len(generation + lanes) < 5
    return (int(generation), int(lanes)) if ok else (0, 0)


def _gpu_width(
    gpu: Gpu, gpus: Sequence[Gpu], board: Board | None, source: str, expected: int
) -> Finding | None:
    model = gpu_model(gpu.name or "", gpu.pci_device_id or "")
    now, most = gpu.pcie_width or 0, gpu.pcie_width_max or 0
    if model and model.form == "grace":
        return None  # the CPU is reached over NVLink-C2C, the PCIe link is only for control
    peers = [peer.pcie_width or 0 for peer in gpus if peer is not gpu and _is_like(peer, gpu)]
    widest = max(peers, default=0)
    full = model.pcie_width if model and model.form == "sxm" and not (board and board.virtual) else 0
    wanted = expected or max(most, full, widest)
    if now >= wanted:
        return None
    evidence = [*values(source, gpu, "pcie_width", "pcie_width_max"), *identity_evidence(source, gpu)]
    fix = look_at(gpu, _RESEAT, "pcie.width", link_steps(gpu.bus_id), "drain", "every job on this node")
    summary = f"x{now} of x{wanted}"
    if not expected and (why := _by_design(model, now, most, peers)):
        return Finding.info(f"{summary}: {why}", subject=gpu.subject, evidence=evidence[:2])
    if now < widest:
        summary += f": {sum(peer > now for peer in peers)} peers have a wider link"
    return Finding.fail(summary, subject=gpu.subject, evidence=evidence, fix=fix)


def _is_like(peer: Gpu, gpu: Gpu) -> bool:
    """Whether two GPUs are of one kind: by name, or, where none is shown, by what their links can do."""
    if gpu.name or peer.name:
        return peer.name == gpu.name
    return peer.pcie_width_max == gpu.pcie_width_max is not None


def _by_design(model: GpuModel | None, now: int, most: int, peers: Sequence[int]) -> str | None:
    """Why a narrow link is the way this machine was built: cards in slots, unlike modules on a board."""
    if model and model.form == "sxm":
        return None
    wider = sum(peer > now for peer in peers)
    if not peers:
        return "no peers to compare"
    if not wider:
        return f"the same on {count_with_noun(len(peers), 'peer')}"
    if model and model.datacentre:
        return None
    few = wider < 3 or wider * 2 <= len(peers)
    return "workstation slots differ" if few or now == most else None


def link_steps(address: str | None) -> tuple[Step, Step]:
    """What a link can and does, and what the kernel says of errors on it."""
    where = ["-s", address] if address else []
    return (
        look("sudo lspci {} -vv | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'", where),
        look("sudo dmesg | grep -iE 'aer|pcieport'"),
    )


def _lane_count(device: PciDevice) -> int:
    return device.link.width or 0 if device.link else 0


def _device_width(
    device: PciDevice, devices: Sequence[PciDevice], lspci: Lspci | None = None
) -> Finding | None:
    """A device with fewer lanes than it can have is only sick if others of its kind or its port have more."""
    now, most = _lane_count(device), (device.link.max_width or 0) if device.link else 0
    peers = [_lane_count(twin) for twin in devices if twin is not device and twin.pci_id == device.pci_id]
    if not now or now >= most:
        return None
    evidence = device_evidence(device, "current_link_width", "max_link_width")
    port = None
    if lspci:
        short, port = re.escape(device.address.removeprefix("0000:")), lspci.ports.get(device.address)
        lines = lspci.lines_of(device)
        evidence = [quoted_like("lspci", rf"{short} .*(?:\n[ \t].*)*?\n[ \t]+({line}:.*)") for line in lines]
    subject, summary = f"pci:{device.address}", f"{device.address}: x{now} of x{most}"
    wider = sum(peer > now for peer in peers)
    module = is_module(device)
    fix = Fix(_RESEAT, link_steps(device.address), "drain", "every job on this node", "nodedoctor pcie.width")
    if not module and (wider * 2 <= len(peers) or len(peers) < 2):
        lanes = port.max_width or 0 if port else 0
        if now < lanes:
            summary = f"{summary}, the port above it has x{lanes}"
            return Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
        if device.is_nic and not lanes and now * FEWER_LANES <= most and wider == len(peers):
            return Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
        board = _CARD.search(device.device) if lspci and not (lanes or peers) else None
        model = (
            gpu_model(f"NVIDIA {board[1]}") or gpu_model(f"NVIDIA {board[1].replace(' ', '-')}")
            if board
            else None
        )
        if model and model.datacentre:
            return Finding.unknown(
                "not-visible-here",
                f"{summary}; how many lanes the port above it has is not shown",
                subject=subject,
                evidence=evidence,
                fix=_LOOK_ABOVE,
            )
        why = "the port above it has no more lanes" if lanes else "no wider slot known here"
        return Finding.info(f"{summary} ({why})", subject=subject, evidence=evidence)
    why = f"{count_with_noun(wider, 'peer')} {singular_or_plural(wider, 'has', 'have')} more"
    return Finding.fail(
        f"{summary}: {why if wider else 'modules are on boards that have all lanes'}",
        subject=subject,
        evidence=evidence,
        fix=fix,
    )


def is_module(device: PciDevice) -> bool:
    """Whether it is a GPU on a board of modules, by its id or, in a paste, by its name."""
    model = gpu_model("", device.device)
    return bool(model and model.form == "sxm") or " SXM" in device.device


@check(
    "pcie.speed",
    "PCIe link speed",
    tags={"fast", "gpu", "pcie"},
    explained_by=("pcie.width", "driver.answers", "driver.gpus-present"),
)
def speed(gpus: Gpus, expect: Expect) -> Iterator[Finding]:
    """PCIe generation of each GPU's link under load, and the maximum of slot and card, against peers.

    Why: each generation lost halves the bandwidth to host memory and NICs; bad signals make a link fall back.
    Fix disturbs: every job on the node while a card is reseated.
    Judges: FAIL when a loaded GPU's link stays below the generation of slot and peers; WARN where only one
    sign of it was seen.
    Fix: Reseat the card or riser; check the slot's speed in the BIOS.
    Threshold: The lower of slot and card, and the peers; idle GPUs lower their link (nvidia-smi(1)).
    False positives: Idle GPUs, and slots of an older generation.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    readable = [gpu for gpu in gpus.gpus if gpu.pcie_generation and not _is_grace(gpu)]
    wanted = _expected_link(expect)[0]
    findings = [
        finding for gpu in readable if (finding := _judge_generation(gpu, readable, gpus.source, wanted))
    ]
    yield from findings
    if not readable and any(_is_grace(gpu) for gpu in gpus.gpus):
        why = "these GPUs use NVLink-C2C to the CPU, not PCIe"
        yield Finding.info(why) if wanted else Finding.skip(why)
    elif not readable:
        yield not_reported("PCIe link speed", gpus.gpus, "pcie_generation")
    elif not findings and not any(map(_most_generation, readable)) and not wanted:
        evidence = values(gpus.source, readable[0], "pcie_generation")
        summary = "what these links can do is not shown"
        yield Finding.unknown("not-visible-here", summary, evidence=evidence, fix=_LOOK)
    elif not findings:
        slower = [gpu for gpu in readable if (gpu.pcie_generation or 0) < _most_generation(gpu)]
        idle = f"; {len(slower)} at a lower speed while idle (normal)" if slower else ""
        yield Finding.ok(f"{all_of(readable)} at the expected speed{idle}")


def _is_grace(gpu: Gpu) -> bool:
    model = gpu_model(gpu.name or "", gpu.pci_device_id or "")
    return bool(model and model.form == "grace")


def _most_generation(gpu: Gpu) -> int:
    """What slot and card can do: the lower of both where only these are shown; 0 where one is not."""
    return gpu.pcie_generation_max or min(
        gpu.pcie_generation_device_max or 0, gpu.pcie_generation_host_max or 0
    )


def _usual_generation(peers: Sequence[Gpu]) -> int:
    """What all loaded GPUs of the same kind use, two at least; 0 where they differ."""
    used = [peer.pcie_generation or 0 for peer in peers if _is_loaded(peer)]
    return used[0] if len(used) > 1 and len(set(used)) == 1 else 0


def _is_loaded(gpu: Gpu) -> bool:
    return (gpu.gpu_utilization_percent or 0) >= LOADED_PERCENT and (gpu.pstate or 0) <= 2


def _judge_generation(gpu: Gpu, gpus: Sequence[Gpu], source: str, expected: int) -> Finding | None:
    peers = [peer for peer in gpus if peer is not gpu and peer.name == gpu.name and gpu.name]
    now, own = gpu.pcie_generation or 0, _most_generation(gpu)
    most = own or _usual_generation(peers)
    limits = ("pcie_generation_max", "pcie_generation_device_max", "pcie_generation_host_max")
    shown = [name for name in limits if getattr(gpu, name)]
    evidence = [
        *values(source, gpu, "pcie_generation", *(shown[:1] if gpu.pcie_generation_max else shown)),
        *identity_evidence(source, gpu),
    ]
    text = f"Check the slot's speed in the BIOS. {_RESEAT}"
    fix = look_at(gpu, text, "pcie.speed", link_steps(gpu.bus_id), "drain", "every job on this node")
    if expected and (own or now) < expected:
        summary = f"PCIe generation {own or now} at most, expected {expected}"
        return Finding.fail(summary, subject=gpu.subject, evidence=evidence, fix=fix)
    usual = Counter(map(_most_generation, peers)).most_common(1)
    if len(peers) > 1 and own and usual[0][0] > most and usual[0][1] == len(peers):
        summary = f"PCIe generation {most} at most, {count_with_noun(len(peers), 'peer')}: {usual[0][0]}"
        return Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=fix)
    if now >= most or not _is_loaded(gpu):
        return None
    judge = Finding.fail if now * 2 <= most else Finding.warn
    return judge(
        f"PCIe generation {now} of {most} under load", subject=gpu.subject, evidence=evidence, fix=fix
    )
