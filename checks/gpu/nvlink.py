"""Are all NVLinks of every GPU up, at full speed, and without errors?"""

from collections import Counter
from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.evidence import identity_evidence, link_evidence, links_of
from nodedoctor.facts.gpu.gpu import Gpu, NvLink
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.nvlink_smi import GpuLinks
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.knowledge.fixes.gpu import look_at
from nodedoctor.knowledge.fixes.recipes import START_FABRIC, gpu_reset
from nodedoctor.knowledge.gpus import GpuModel, gpu_model
from nodedoctor.model import Expect, Finding, Fix
from nodedoctor.record import replace
from nodedoctor.steps import look, reboot
from nodedoctor.wording import comma_list, count_with_noun, numbered

BRIDGE_LINKS = 4
"""Each NVLink bridge of Ampere and Hopper cards carries four links (three bridges: twelve)."""
SLOW = 0.9
"""Of a link's line rate: sources print 50 or 53.125, 25 or 26.562 GB/s for the same link."""
_FABRIC = ("fabric.manager@node", "fabric.guest@node")
_UNREADABLE = Fix(
    "Run `nvidia-smi nvlink -s` on the host and check the kernel log.",
    (look("nvidia-smi nvlink -s"),),
    action="none",
)


@check(
    "nvlink.links",
    "NVLink links",
    tags={"fast", "gpu", "nvlink"},
    explained_by=("driver.answers", "driver.gpus-present"),
)
def links(links: NvLinks, gpus: Gpus | None, board: Board | None, expect: Expect) -> Iterator[Finding]:
    """Active links of each GPU against its model's count, and against its peers.

    Cards without a bridge, 12 of 18 links on H100 NVL, MIG, and a single GPU of a board in a VM are fine.
    Counts per model come from knowledge.gpus (A100 12, H100 SXM 18, H100 NVL 12).
    Why: a link that is down makes every collective over that GPU slower, or the fabric refuses to start.
    Fix disturbs: processes on the GPU, during the reset.
    Judges: FAIL when a GPU has fewer active links than its model or peers; WARN where the build is not known.
    Fix: Check the fabric manager, reset the GPU; a link that stays down is a bad module, bridge or board.
    Threshold: Links per model in the gpus table (data sheets).
    False positives: Bridged cards without a bridge, MIG, and single GPUs of a cloud board are no fault.
    Error texts:
    - uncorrectable NVLink error detected during the execution
    """
    stated = [gpu for gpu in links.gpus if any(link.active is not None for link in gpu.links)]
    with_links = [gpu for gpu in stated if gpu.state == "listed"]
    up = {gpu.index: sum(link.active is True for link in gpu.links) for gpu in with_links}
    hidden = [gpu for gpu in links.gpus if gpu.state == "mig"]
    findings = [
        f
        for gpu in with_links
        if (f := _judge_down(gpu, up, links, gpus.get(gpu.index) if gpus else None, expect))
    ]
    findings += [f for gpu in links.gpus if (f := _without_links(gpu, up, links, gpus, board))]
    dark = [gpu for gpu in links.gpus if gpu.state == "all-inactive"]
    findings += [finding for gpu in dark if (finding := _judge_dark(gpu, links, gpus, board))]
    silent = [gpu for gpu in links.gpus if gpu.state == "unreadable"]
    if _is_switched(board) and len(findings) == len(links.gpus) > 1 and not any(up.values()):
        findings = [replace(finding, fix=_board_fix()) for finding in findings]
    yield from findings
    for gpu in silent:
        summary = f"link state could not be read: {gpu.said}"
        yield Finding.unknown("not-visible-here", summary, subject=gpu.subject, fix=_UNREADABLE)
    if findings or silent:
        return
    if with_links:
        counts = Counter(f"{up[gpu.index]} of {len(gpu.links)}{_elided_note(gpu)}" for gpu in with_links)
        words = ", ".join(
            f"{count_with_noun(count, 'GPU')}: {text} NVLinks up" for text, count in counts.items()
        )
        if not any(up.values()) and all(_model_of(gpu) is None for gpu in with_links):
            summary = f"{words}: normal for cards without bridges, a fault on a board of modules"
            evidence = tuple(links_of(links.source, with_links[0].index))
            yield replace(Finding.unknown("not-visible-here", summary, fix=_WHICH_MODEL), evidence=evidence)
            return
        yield Finding.ok(
            words + (f"; hidden by MIG on {numbered('GPU', (g.index for g in hidden))}" if hidden else "")
        )
    elif hidden and expect.get("nvlinks"):
        yield Finding.unknown("not-visible-here", "links hidden by MIG mode", fix=_UNREADABLE)
    elif hidden:
        yield Finding.skip("links hidden by MIG mode")
    elif any(gpu.state == "listed" for gpu in links.gpus):
        yield Finding.unknown("not-visible-here", "link state not reported", fix=_UNREADABLE)
    else:
        yield Finding.skip("no GPU here uses NVLink")


_WHICH_MODEL = Fix("See which model the GPUs are.", (look("nvidia-smi -L"),), action="none")


def _is_switched(board: Board | None) -> bool:
    """Whether the fabric manager must run here: also in a virtual machine that owns its NVSwitches."""
    return bool(board and (board.fabric or (board.virtual and board.nvswitches)))


def _elided_note(gpu: GpuLinks) -> str:
    """What to add to a count where numbers between the links are not there: a mail leaves lines out."""
    numbers = [link.link for link in gpu.links]
    return "" if sorted(numbers) == [*range(len(numbers))] else " shown"


def _model_of(gpu: GpuLinks) -> GpuModel | None:
    return gpu_model(gpu.name or "")


def _judge_down(
    gpu: GpuLinks, up: dict[int, int], links: NvLinks, device: Gpu | None, expect: Expect
) -> Finding | None:
    """Judge one GPU whose links are listed."""
    down = [link.link for link in gpu.links if link.active is False]
    active, model = up[gpu.index], _model_of(gpu)
    wanted = int(text) if (text := expect.get("nvlinks") or "").isdecimal() else None
    peers = [up[peer.index] for peer in links.gpus if peer.index in up and peer.name == gpu.name]
    count = wanted or (
        model.nvlink_links if model and model.nvlink_links else _unlisted_count(gpu, active, peers)
    )
    is_cut = bool(down) and not (wanted or gpu.complete)
    count = min(count, active + len(down)) if is_cut else count  # what was cut off is not down
    evidence = [
        quote for link in down[:18] for quote in link_evidence(links.source, gpu.index, link, "active")
    ]
    evidence = evidence or links_of(links.source, gpu.index)
    evidence += identity_evidence(links.source, device) if device else []
    summary = f"{active} of {count} NVLinks up" + (f" ({numbered('link', down)} down)" if down else "")
    missing = count - active
    lead = f"GPU {gpu.index} lost {count_with_noun(missing, 'NVLink')}"
    fix = _link_fix(gpu, device)
    fail = Finding.fail(summary, subject=gpu.subject, evidence=evidence, fix=fix).led_by(lead)
    warn = Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=fix).led_by(lead)
    if active == 0:
        fail, warn = (finding.explained_by(*_FABRIC) for finding in (fail, warn))
    if active >= count:
        return None
    if wanted:
        return fail
    if not down and not gpu.complete:
        return None  # a listing that was cut off
    if model and not model.nvlink_optional:
        return _judge_module(active, peers, down, model, fail, warn)
    return _judge_bridged(active, peers, fail, warn)


def _unlisted_count(gpu: GpuLinks, active: int, peers: Sequence[int]) -> int:
    """What a model we do not know should have: as many as its peers; alone, and partly up, all it shows."""
    alone = len(peers) == 1 and active > 0
    return len(gpu.links) if alone else max(peers)


def _judge_module(
    active: int, peers: Sequence[int], down: Sequence[int], model: GpuModel, fail: Finding, warn: Finding
) -> Finding | None:
    """SXM modules and superchips: every link is wired, except on boards of another build than the usual."""
    if not model.topo_token:  # V100, P100, GH200: what is wired depends on the machine
        return fail if active < max(peers) else None
    if active == 0 and len(peers) == 1:
        return None  # one GPU of a board, given to a virtual machine: its links are switched off
    if not down and active == max(peers):
        return warn  # none said to be down, and all alike: a board of a build we do not know
    return fail


def _judge_bridged(active: int, peers: Sequence[int], fail: Finding, warn: Finding) -> Finding | None:
    """Cards with optional bridges, and models we do not know: each bridge carries four links."""
    most = max(peers)
    if active == 0:
        bridged = sum(peer > 0 for peer in peers)
        alone = len(peers) - bridged
        return warn if alone % 2 == 0 and alone * 3 <= len(peers) else None
    if active < most and peers.count(most) > 1:
        return fail
    if active % BRIDGE_LINKS:
        return fail
    return None if active == most and len(peers) > 1 else warn


def _judge_dark(gpu: GpuLinks, links: NvLinks, gpus: Gpus | None, board: Board | None) -> Finding | None:
    """All links down: usual for cards without a bridge and for one GPU of a board in a virtual machine."""
    model = _model_of(gpu)
    if model is None or model.nvlink_optional or not model.topo_token:
        return None
    if len(links.gpus) == 1 and not (board and board.fabric):
        return None
    device = gpus.get(gpu.index) if gpus else None
    evidence = [
        *links_of(links.source, gpu.index),
        *(identity_evidence(links.source, device) if device else []),
    ]
    summary = f"0 of {model.nvlink_links} NVLinks up"
    finding = Finding.fail(summary, subject=gpu.subject, evidence=evidence, fix=_link_fix(gpu, device))
    return finding.explained_by(*_FABRIC).led_by(f"GPU {gpu.index} has no NVLink")


def _without_links(
    gpu: GpuLinks, up: dict[int, int], links: NvLinks, gpus: Gpus | None, board: Board | None
) -> Finding | None:
    """A module of a board whose modules are all joined, and the driver says that it has no NVLink.

    Where no module has any, a hypervisor or confidential computing may have taken it from all.
    """
    model, device = _model_of(gpu), gpus.get(gpu.index) if gpus else None
    if gpu.state != "none" or not (board and board.joined) or model is None or len(links.gpus) < 2:
        return None
    if not up and (board.virtual is not False or (device and device.confidential_compute)):
        return None
    evidence = identity_evidence(links.source, device) if device else []
    fix = _link_fix(gpu, device)
    summary = f"the driver reports no NVLink, this model has {model.nvlink_links}"
    finding = Finding.fail(summary, subject=gpu.subject, evidence=evidence, fix=fix)
    return finding.explained_by(f"gpu.identity@{gpu.subject}").led_by(f"GPU {gpu.index} has no NVLink")


def _board_fix() -> Fix:
    """No link on any module of a board with NVSwitches: nothing is wrong with a single GPU."""
    return Fix(
        "Start the fabric manager, or find out why it does not run: it sets up the NVSwitches, and without "
        "them no link comes up. If it runs and all links stay down, reboot the drained node.",
        (
            look("systemctl status nvidia-fabricmanager"),
            look("sudo journalctl -u nvidia-fabricmanager -b | tail -50"),
            START_FABRIC,
            reboot(),
        ),
        "restart-service",
        "every job on the board's GPUs",
        "nodedoctor fabric nvlink.links",
    )


def _link_fix(gpu: GpuLinks, device: Gpu | None, verify: str = "nvlink.links") -> Fix:
    model = _model_of(gpu)
    bridged = model is None or model.nvlink_optional
    begin = "Reseat the NVLink bridge" if bridged else "Check the fabric manager"
    if model is None:
        begin = "Check the fabric manager on boards with NVSwitches, the bridge between cards"
    text = (
        f"{begin}, then reset the GPU. If links stay down, reboot; if they are still down, request a "
        f"replacement of the {'card or bridge' if bridged else 'module or board'}."
    )
    disturbs = "processes on this GPU, during the reset"
    steps = (
        look("nvidia-smi nvlink -s -i {}", gpu.index),
        look("sudo dmesg | grep -iE 'xid|sxid|nvlink'"),
        *gpu_reset(gpu.index, disturbs),
    )
    return look_at(device, text, verify, steps, "reset-gpu", disturbs)


@check(
    "nvlink.speed",
    "NVLink speed",
    tags={"fast", "gpu", "nvlink"},
    explained_by=("nvlink.links", "driver.answers", "driver.gpus-present"),
)
def speed(links: NvLinks, gpus: Gpus | None) -> Iterator[Finding]:
    """The line rate of each active link against its model's (knowledge.gpus), and against the other links.

    Why: a link at half its rate slows every collective that crosses it, without any error.
    Fix disturbs: processes on the GPU, during the reset.
    Judges: WARN when an active link is slower than its model's rate or than the other links.
    Fix: Reset the GPU; replace module or board when the rate stays low.
    Threshold: Rates per model in the gpus table.
    False positives: Links in a low-power state while idle.
    """
    rated = [(gpu, link) for gpu in links.gpus for link in gpu.links if link.speed_gbytes_s]
    if not rated:
        yield Finding.skip("no link reports its speed")
        return
    slow = [
        (gpu, link) for gpu, link in rated if (link.speed_gbytes_s or 0) < SLOW * _expected_rate(gpu, rated)
    ]
    for index in sorted({gpu.index for gpu, _ in slow}):
        gpu = next(gpu for gpu, _ in slow if gpu.index == index)
        own = [link for owner, link in slow if owner.index == index]
        device = gpus.get(index) if gpus else None
        lines = [
            quote for x in own[:18] for quote in link_evidence(links.source, index, x.link, "speed_mbytes_s")
        ]
        usual = _expected_rate(gpu, rated)
        summary = (
            f"{count_with_noun(len(own), 'NVLink')} at {own[0].speed_gbytes_s} GB/s, expected {usual} GB/s"
        )
        fix = _link_fix(gpu, device, "nvlink.speed")
        yield Finding.warn(summary, subject=gpu.subject, evidence=lines, fix=fix)
    if not slow:
        speeds = sorted({link.speed_gbytes_s for _, link in rated if link.speed_gbytes_s})
        yield Finding.ok(f"{count_with_noun(len(rated), 'link')} at {comma_list(speeds)} GB/s per direction")


def _expected_rate(gpu: GpuLinks, rated: Sequence[tuple[GpuLinks, NvLink]]) -> float:
    """What a link of this GPU should have: its model's rate, else the best its peers show."""
    model = _model_of(gpu)
    if model and (model.nvlink_link_raw_gbps or model.nvlink_link_gbps):
        return float(model.nvlink_link_raw_gbps or model.nvlink_link_gbps or 0)
    return max(link.speed_gbytes_s or 0 for owner, link in rated if owner.name == gpu.name)
