"""Do copies between GPUs reach what they should, and arrive unharmed?"""

from collections.abc import Callable, Iterator, Mapping
from statistics import median

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.topology import Topology
from nodedoctor.facts.measured.bandwidth import Bandwidth, Pair
from nodedoctor.knowledge.fixes.bandwidth import DENIED, HUNG, SLOW, SYSTEM, UNSTARTED, WRONG
from nodedoctor.knowledge.floors import BELOW_PEERS, fitting_floors
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.wording import count_with_noun

from .culprits import Culprits, culprits

BROKEN = 0.5
"""Of the median of the peers, beside the floor of the model; ours: what lost half its links or lanes."""


_Pairs = Mapping[tuple[int, int], Pair]


@check(
    "bandwidth.p2p",
    "GPU-GPU copies: bandwidth and data",
    tags={"gpu", "nvlink"},
    without=(Topology,),
    explained_by=("nvlink.links", "topo.matrix", "p2p.status", "nvlink.speed", "pcie.width"),
    stage="preview",
)
def p2p(
    bandwidth: Bandwidth, gpus: Gpus | None, board: Board | None, topology: Topology | None
) -> Iterator[Finding]:
    """GB/s and data of copies between every ordered pair of idle GPUs, against floors and the other pairs.

    A slow row or column is a GPU, a slow pair a link, everything slow the system. Peer access may be refused
    by design (L4, GeForce); on a board with NVLink between its GPUs it is required.
    Why: a collective is as fast as its slowest link, and corrupted data silently ruins a model.
    Fix disturbs: every job on the GPU while it is reset.
    Judges: FAIL when data changes on the way, CUDA does not start, a pair of an NVLink board has no peer
    access, or a pair is below the floor and half of the median. WARN for a smaller lag.
    Fix: Look at nvlink.links, fabric.state and p2p.status first; reset the GPU that the slow pairs share,
    then replace it.
    Threshold: Floors per model and link are rows of the table of floors; 0.9 and 0.5 of the peers' median
    are our thresholds (eight H200 were within 0.1 of 396.4 GB/s: stas00/ml-engineering).
    False positives: Cards without peer access by design (L4, GeForce) are no fault; a short copy also
    measures the moment.
    """
    findings = [*_judge_troubles(bandwidth), *_pair_errors(bandwidth)]
    pairs = {(pair.source, pair.target): pair for pair in bandwidth.pairs if not pair.error}
    findings += _judge_corrupted(pairs, bandwidth)
    findings += _judge_denied(pairs, bandwidth, bool(board and board.joined))
    for link, group in _similar_pairs(pairs, topology, board).values():
        board_gpus = gpus if board and board.joined else None
        findings += _slow_pairs(group, link, bandwidth, board_gpus)
    yield from findings
    if not findings and pairs:
        yield Finding.ok(_rate_summary(pairs))
    yield from busy_gpus(bandwidth)
    if not findings and not pairs and not bandwidth.left_out:
        yield Finding.skip("a single GPU has no peers")


def _judge_troubles(bandwidth: Bandwidth) -> Iterator[Finding]:
    """What kept us from measuring all: CUDA does not start, a copy hangs, a GPU does not open."""
    yield from start_failures(bandwidth)
    if bandwidth.hung:
        ends = bandwidth.hung_gpus
        subject = f"pair:{min(ends)}-{max(ends)}" if len(ends) == 2 else f"gpu:{ends[0]}" if ends else ""
        evidence = bandwidth.under_way()
        yield Finding.fail(
            f"copy never finished: {bandwidth.hung}", subject=subject, evidence=evidence, fix=HUNG
        )
    if bandwidth.cut_short:
        yield Finding.unknown("timeout", f"measurement incomplete: {bandwidth.cut_short}")
    for index, why in bandwidth.failed.items():
        yield Finding.unknown("crash", f"could not be measured: {why}", subject=f"gpu:{index}", fix=HUNG)


def start_failures(bandwidth: Bandwidth) -> Iterator[Finding]:
    """CUDA does not start: nothing could be measured."""
    if bandwidth.unstarted:
        evidence = bandwidth.start_said()
        yield Finding.fail(f"CUDA does not start: {bandwidth.unstarted}", evidence=evidence, fix=UNSTARTED)


def busy_gpus(bandwidth: Bandwidth) -> Iterator[Finding]:
    """GPUs that were left out because a job uses them."""
    for index, why in bandwidth.left_out.items():
        yield Finding.skip(f"not measured: {why}", subject=f"gpu:{index}")


def _pair_errors(bandwidth: Bandwidth) -> Iterator[Finding]:
    late = [pair for pair in bandwidth.pairs if pair.error == "NO_TIME"]
    if late:
        yield Finding.unknown("timeout", f"{count_with_noun(len(late), 'pair')} not measured in time")
    for pair in bandwidth.pairs:
        if pair.error and pair not in late:
            summary = f"copy GPU {pair.source} -> GPU {pair.target} failed: {pair.error}"
            yield Finding.fail(summary, subject=_pair_subject(pair.source, pair.target), fix=HUNG)


def _judge_corrupted(pairs: _Pairs, bandwidth: Bandwidth) -> Iterator[Finding]:
    bad = {key: pair for key, pair in pairs.items() if pair.wrong}
    if not bad:
        return
    evidence = [
        quote for pair in list(bad)[:4] for quote in bandwidth.pair_said(pair, "wrong", "read_gbytes_s")
    ]
    summaries = {
        "all": "data corruption in copies between all GPUs",
        "gpu": "data corruption in copies to or from this GPU",
        "pair": "data corruption in GPU {} <-> GPU {} copies",
    }
    yield from _judge_culprits(culprits(bad, pairs), summaries, evidence, WRONG)


def _judge_denied(pairs: _Pairs, bandwidth: Bandwidth, has_nvlink: bool) -> Iterator[Finding]:
    """Without NVLink a refusal is a matter of the model or platform; p2p.status tells about it."""
    bad = {key for key, pair in pairs.items() if pair.access is False}
    if not bad or not has_nvlink:
        return
    evidence = [quote for pair in sorted(bad)[:4] for quote in bandwidth.pair_said(pair, "access")]
    summaries = {
        "all": "no peer access between any GPUs despite NVLink",
        "gpu": "no peer access to or from this GPU despite NVLink",
        "pair": "no peer access between GPU {} and GPU {} despite NVLink",
    }
    yield from _judge_culprits(culprits(bad, pairs), summaries, evidence, DENIED)


def _judge_culprits(
    guilty: Culprits, summaries: Mapping[str, str], evidence: list[Evidence], fix: Fix
) -> Iterator[Finding]:
    """A failure of all GPUs, of each that is guilty, and of each pair that none of these explains."""
    if guilty.everything:
        yield Finding.fail(summaries["all"], evidence=evidence, fix=fix)
    for gpu in guilty.gpus:
        yield Finding.fail(summaries["gpu"], subject=f"gpu:{gpu}", evidence=evidence, fix=fix)
    for a, b in guilty.pairs:
        yield Finding.fail(
            summaries["pair"].format(a, b), subject=_pair_subject(a, b), evidence=evidence, fix=fix
        )


def _similar_pairs(
    pairs: _Pairs, topology: Topology | None, board: Board | None
) -> dict[str, tuple[str, _Pairs]]:
    """Pairs that should be equally fast, with their link: the same kind or path, and peer access or none."""
    groups: dict[str, tuple[str, dict[tuple[int, int], Pair]]] = {}
    for key, pair in pairs.items():
        link = topology.links.get(f"GPU{key[0]}", {}).get(f"GPU{key[1]}", "") if topology else ""
        kind = "joined" if board and board.joined else link
        if pair.read_gbytes_s:
            groups.setdefault(f"{kind} {pair.access}", (link, {}))[1][key] = pair
    return dict(groups)


def _slow_pairs(pairs: _Pairs, link: str, bandwidth: Bandwidth, gpus: Gpus | None) -> Iterator[Finding]:
    speeds = {key: pair.read_gbytes_s or 0.0 for key, pair in pairs.items()}
    usual = median(speeds.values())
    reach = any(pair.access for pair in pairs.values())
    rated_gpus = gpus.gpus if gpus and reach and not gpus.encrypted else ()
    floor = max((_floor_rate(gpu, link) for gpu in rated_gpus), default=0.0)
    bad = {key for key, speed in speeds.items() if speed < max(BELOW_PEERS * usual, floor)}
    if not bad:
        return
    common = culprits(bad, speeds)
    worst = sorted(bad, key=lambda key: speeds[key])[:4]
    evidence = [quote for pair in worst for quote in bandwidth.pair_said(pair, "read_gbytes_s")]
    if common.everything:
        summary = f"all GPU-GPU copies slow: {usual:.0f} GB/s, expected at least {floor:.0f} GB/s"
        yield Finding.fail(summary, evidence=evidence, fix=SYSTEM)
    for gpu in common.gpus:
        low = min(speed for key, speed in speeds.items() if gpu in key)
        summary = f"copies to and from its peers slow: {low:.0f} GB/s, others {usual:.0f}"
        yield _slow_finding(low, usual, floor)(summary, subject=f"gpu:{gpu}", evidence=evidence, fix=SLOW)
    for a, b in common.pairs:
        low = min(speeds[key] for key in ((a, b), (b, a)) if key in bad)
        summary = f"slow link GPU {a} <-> GPU {b}: {low:.0f} GB/s, others {usual:.0f}"
        yield _slow_finding(low, usual, floor)(
            summary, subject=_pair_subject(a, b), evidence=evidence, fix=SLOW
        )


def _slow_finding(speed: float, usual: float, floor: float) -> Callable[..., Finding]:
    return Finding.fail if speed < max(floor, BROKEN * usual) else Finding.warn


def _floor_rate(gpu: Gpu, link: str) -> float:
    model = gpu_model(gpu.name or "")
    gates = fitting_floors("p2p", model.name, link=link) if model else []
    return max((gate.least for gate in gates), default=0.0)


def _rate_summary(pairs: _Pairs) -> str:
    speeds = [pair.read_gbytes_s or 0.0 for pair in pairs.values()]
    staged = sum(pair.access is False for pair in pairs.values())
    through = f"; {staged} through host memory, normal for this model" if staged else ""
    span = f"{min(speeds):.0f} to {max(speeds):.0f} GB/s"
    return f"{span} between {len(pairs)} ordered pairs, data verified{through}"


def _pair_subject(a: int, b: int) -> str:
    return f"pair:{min(a, b)}-{max(a, b)}"
