"""Do copies between GPUs reach what they should, and arrive unharmed?"""

from collections.abc import Callable, Iterator, Mapping
from statistics import median

from nodedoctor.engine.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.topology import Topology
from nodedoctor.facts.measured.bandwidth import Bandwidth, Pair
from nodedoctor.knowledge.fixes.bandwidth import DENIED, HUNG, SLOW, SYSTEM, UNSTARTED, WRONG
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.model import Evidence, Finding

from .culprits import culprits

LOW = 0.9
"""Of the median of the peers; ours. Healthy pairs differ far less (8 H200 within 0.10 of 396.40 GB/s:
stas00/ml-engineering, network/README.md), but a quick copy of 32 MiB also measures the moment; one of 18
NVLinks that is down costs 6 %, two cost 11 %."""
BROKEN = 0.5
"""Of the median of the peers, beside the floor of the model; ours: what lost half its links or lanes."""


_Pairs = Mapping[tuple[int, int], Pair]


@check(
    "bandwidth.p2p",
    "Copies between GPUs are fast and arrive unharmed",
    tags={"gpu", "nvlink"},
    without=(Topology,),
    explained_by=("nvlink.links", "topo.matrix", "p2p.status", "nvlink.speed", "pcie.width"),
    stage="preview",
)
def p2p(
    bandwidth: Bandwidth, gpus: Gpus | None, board: Board | None, topology: Topology | None
) -> Iterator[Finding]:
    """GB/s of every ordered pair of idle GPUs and the data that arrived, against floors and the other pairs.

    One low row or column is a GPU, one low cell a link, everything low the system. Peer access may be refused
    by design (L4, GeForce); on a board that joins its GPUs by NVLink it must be there.
    Why: a collective is as fast as its slowest link, and data changed on the way silently ruins a model.
    Fix disturbs: every job on the GPU while it is reset.
    Judges: FAIL when data changes on the way, CUDA does not start, a pair of an NVLink board has no peer
    access, or a pair is below the floor and half of the median. WARN for a smaller lag.
    Fix: Look at nvlink.links, fabric.state and p2p.status first; reset the GPU that the slow pairs share,
    then replace it.
    Threshold: Floors per model are in the knowledge tables; 0.9 and 0.5 of the peers' median are our
    thresholds (eight H200 were within 0.1 of 396.4 GB/s: stas00/ml-engineering).
    False positives: Cards without peer access by design (L4, GeForce) are no fault; a short copy also
    measures the moment.
    """
    findings = [*_troubles(bandwidth), *_pair_errors(bandwidth)]
    pairs = {(pair.source, pair.target): pair for pair in bandwidth.pairs if not pair.error}
    findings += _corrupted(pairs)
    findings += _denied(pairs, bool(board and board.joined))
    for group in _alike(pairs, topology, board).values():
        findings += _slow_pairs(group, gpus, bool(board and board.joined))
    yield from findings
    if not findings and pairs:
        yield Finding.ok(_summary(pairs))
    yield from _busy(bandwidth)
    if not findings and not pairs and not bandwidth.left_out:
        yield Finding.skip("a single GPU has no peers")


def _troubles(bandwidth: Bandwidth) -> Iterator[Finding]:
    """What kept us from measuring all: CUDA does not start, a copy hangs, a GPU does not open."""
    yield from _unstarted(bandwidth)
    if bandwidth.hung:
        ends = bandwidth.hung_gpus
        subject = f"pair:{min(ends)}-{max(ends)}" if len(ends) == 2 else f"gpu:{ends[0]}" if ends else ""
        said = Evidence("bandwidth", bandwidth.hung)
        yield Finding.fail(f"never ended: {bandwidth.hung}", subject=subject, evidence=[said], fix=HUNG)
    if bandwidth.cut_short:
        yield Finding.unknown("timeout", f"measuring ended early: {bandwidth.cut_short}")
    for index, why in bandwidth.failed.items():
        yield Finding.unknown("crash", f"could not be measured: {why}", subject=f"gpu:{index}", fix=HUNG)


def _unstarted(bandwidth: Bandwidth) -> Iterator[Finding]:
    if bandwidth.unstarted:
        said = Evidence("bandwidth", f"cuInit: {bandwidth.unstarted}")
        yield Finding.fail(f"CUDA does not start: {bandwidth.unstarted}", evidence=[said], fix=UNSTARTED)


def _busy(bandwidth: Bandwidth) -> Iterator[Finding]:
    for index, why in bandwidth.left_out.items():
        yield Finding.skip(f"not measured: {why}", subject=f"gpu:{index}")


def _pair_errors(bandwidth: Bandwidth) -> Iterator[Finding]:
    late = [pair for pair in bandwidth.pairs if pair.error == "NO_TIME"]
    if late:
        yield Finding.unknown("timeout", f"{len(late)} pairs were not reached in the time for copies")
    for pair in bandwidth.pairs:
        if pair.error and pair not in late:
            summary = f"the copy from GPU {pair.source} to GPU {pair.target} failed: {pair.error}"
            yield Finding.fail(summary, subject=_subject(pair.source, pair.target), fix=HUNG)


def _corrupted(pairs: _Pairs) -> Iterator[Finding]:
    bad = {key: pair for key, pair in pairs.items() if pair.wrong}
    if not bad:
        return
    said = [
        Evidence("bandwidth", f"GPU {a} -> GPU {b}, {pair.read_gbytes_s} GB/s: {_first_wrong(pair.wrong)}")
        for (a, b), pair in list(bad.items())[:4]
    ]
    found = culprits(bad, pairs)
    if found.everything:
        yield Finding.fail("data is changed on the way between all GPUs", evidence=said, fix=WRONG)
    for gpu in found.gpus:
        summary = "data copied to or from this GPU is changed on the way"
        yield Finding.fail(summary, subject=f"gpu:{gpu}", evidence=said, fix=WRONG)
    for a, b in found.pairs:
        summary = f"data copied between GPU {a} and GPU {b} is changed on the way"
        yield Finding.fail(summary, subject=_subject(a, b), evidence=said, fix=WRONG)


def _denied(pairs: _Pairs, joined: bool) -> Iterator[Finding]:
    """Without NVLink a refusal is a matter of the model or platform; p2p.status tells about it."""
    bad = {key for key, pair in pairs.items() if pair.access is False}
    if not bad or not joined:
        return
    found = culprits(bad, pairs)
    said = [Evidence("bandwidth", f"GPU {a} -> GPU {b}: cuDeviceCanAccessPeer 0") for a, b in sorted(bad)[:4]]
    if found.everything:
        summary = "no GPU can access its peers although NVLink joins them"
        yield Finding.fail(summary, evidence=said, fix=DENIED)
    for gpu in found.gpus:
        summary = "has no access to its peers although NVLink joins them"
        yield Finding.fail(summary, subject=f"gpu:{gpu}", evidence=said, fix=DENIED)
    for a, b in found.pairs:
        summary = f"GPU {a} and GPU {b} have no peer access although NVLink joins them"
        yield Finding.fail(summary, subject=_subject(a, b), evidence=said, fix=DENIED)


def _alike(pairs: _Pairs, topology: Topology | None, board: Board | None) -> dict[str, _Pairs]:
    """Pairs that should be equally fast: the same kind of link or path, and peer access or none."""
    groups: dict[str, dict[tuple[int, int], Pair]] = {}
    for key, pair in pairs.items():
        link = topology.links.get(f"GPU{key[0]}", {}).get(f"GPU{key[1]}", "") if topology else ""
        kind = "joined" if board and board.joined else link
        if pair.read_gbytes_s:
            groups.setdefault(f"{kind} {pair.access}", {})[key] = pair
    return dict(groups)


def _slow_pairs(pairs: _Pairs, gpus: Gpus | None, joined: bool) -> Iterator[Finding]:
    speeds = {key: pair.read_gbytes_s or 0.0 for key, pair in pairs.items()}
    usual = median(speeds.values())
    reach = any(pair.access for pair in pairs.values())
    judged = gpus.gpus if gpus and joined and reach and not gpus.encrypted else ()
    floor = max((_floor(gpu) for gpu in judged), default=0.0)
    bad = {key for key, speed in speeds.items() if speed < max(LOW * usual, floor)}
    if not bad:
        return
    against = f"floor {floor:.0f} GB/s, " if floor else ""
    found = culprits(bad, speeds)
    worst = sorted(bad, key=lambda key: speeds[key])[:4]
    said = [
        Evidence(
            "bandwidth", f"GPU {a} -> GPU {b}: {speeds[a, b]:.1f} GB/s ({against}median {usual:.1f} GB/s)"
        )
        for a, b in worst
    ]
    if found.everything:
        summary = f"all copies between GPUs are slow: {usual:.0f} GB/s where {floor:.0f} is the least"
        yield Finding.fail(summary, evidence=said, fix=SYSTEM)
    for gpu in found.gpus:
        low = min(speed for key, speed in speeds.items() if gpu in key)
        summary = f"slow to and from its peers: {low:.0f} GB/s where the others reach {usual:.0f}"
        yield _finding(low, usual, floor)(summary, subject=f"gpu:{gpu}", evidence=said, fix=SLOW)
    for a, b in found.pairs:
        low = min(speeds[key] for key in ((a, b), (b, a)) if key in bad)
        summary = (
            f"the link between GPU {a} and GPU {b} is slow: {low:.0f} GB/s, the others reach {usual:.0f}"
        )
        yield _finding(low, usual, floor)(summary, subject=_subject(a, b), evidence=said, fix=SLOW)


def _finding(speed: float, usual: float, floor: float) -> Callable[..., Finding]:
    return Finding.fail if speed < max(floor, BROKEN * usual) else Finding.warn


def _floor(gpu: Gpu) -> float:
    model = gpu_model(gpu.name or "")
    return (model.p2p_floor_gbps if model else None) or 0.0


def _first_wrong(wrong: Mapping[str, int] | None) -> str:
    told = wrong or {}
    return f"byte {told.get('offset')} is {told.get('found')}, not {told.get('wanted')}"


def _summary(pairs: _Pairs) -> str:
    speeds = [pair.read_gbytes_s or 0.0 for pair in pairs.values()]
    staged = sum(pair.access is False for pair in pairs.values())
    through = f"; {staged} of them through host memory, as this model does" if staged else ""
    span = f"{min(speeds):.0f} to {max(speeds):.0f} GB/s"
    return f"{span} between {len(pairs)} ordered pairs, data verified{through}"


def _subject(one: int, other: int) -> str:
    return f"pair:{min(one, other)}-{max(one, other)}"
