"""May every GPU reach the memory of every other one?"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.evidence import peer_evidence
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.p2p import P2P, PeerAccess
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look
from nodedoctor.wording import comma_list, count_with_noun

_KINDS = ("read", "write", "nvlink", "atomics")
_MOSTLY = 0.7
"""Share of pairs that must be OK before the others count as faults: one GPU of eight cut off leaves 0.75."""

_Pair = tuple[int, int]
_FIX = Fix(
    "On a board with NVLink: check nvlink.links, fabric.state and MIG mode. On PCIe: check ACS and the IOMMU "
    "(pcie.acs, pcie.iommu), the socket of each GPU, and whether the driver allows P2P. Meanwhile NCCL uses "
    "host memory; NCCL_P2P_DISABLE=1 only hides the problem.",
    (
        look("nvidia-smi topo -p2p r"),
        look("nvidia-smi topo -p2p n"),
        look("nvidia-smi topo -m"),
        look("nvidia-smi nvlink -s"),
    ),
    "investigate",
    "nothing",
    "nodedoctor p2p.status",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)


@check(
    "p2p.status",
    "GPU peer access (P2P)",
    tags={"fast", "gpu", "nvlink"},
    explained_by=(
        "nvlink.links",
        "topo.matrix",
        "driver.answers",
        "driver.gpus-present",
        "nvlink.links@all",
        "fabric.state@all",
    ),
)
def status(access: PeerAccess, gpus: Gpus | None, board: Board | None) -> Iterator[Finding]:
    """Read, write, NVLink and atomics status of each ordered pair, from NVML or `topo -p2p`.

    On a board with NVLink between all GPUs every pair must be OK. Elsewhere pairs may be refused by design
    (L4, GeForce, other sockets); then only a GPU or pair that differs from the rest is a finding.
    Why: a pair without peer access copies through host memory, and the slowest pair slows every collective.
    Fix disturbs: nothing for the look-ups; the GPU while it is reset.
    Judges: FAIL when a pair of an NVLink board, or one GPU against most others, has no peer access; WARN
    where only a few pairs differ.
    Fix: See nvlink.links and fabric.state; on PCIe see pcie.acs and pcie.iommu.
    Threshold: More than 0.7 of the pairs OK makes the rest a fault: our threshold.
    False positives: L4, GeForce and pairs across sockets have no peer access by design.
    """
    if len(access.gpus) < 2:
        yield Finding.skip("a single GPU has no peers")
        return
    in_mig = {gpu.index for gpu in gpus.gpus if gpu.mig_mode} if gpus else set()
    has_nvlink = bool(board and board.joined)
    kinds = _KINDS if has_nvlink else _KINDS[:2]
    by_kind = {kind: _kept_pairs(access.told(kind), in_mig) for kind in kinds}
    by_kind = {kind: pairs for kind, pairs in by_kind.items() if pairs}
    findings = [*_judge_pairs(by_kind, access, gpus, has_nvlink)]
    yield from findings
    if not by_kind:
        yield (
            Finding.skip("every GPU is in MIG mode: no peer access by design")
            if in_mig
            else _nothing_read(access)
        )
    elif not findings:
        yield Finding.ok(f"{comma_list(by_kind)} OK between all {len(access.gpus) - len(in_mig)} GPUs")


def _kept_pairs(pairs: Mapping[_Pair, str], in_mig: set[int]) -> dict[_Pair, str]:
    return {pair: status for pair, status in pairs.items() if not in_mig & set(pair)}


def _nothing_read(access: PeerAccess) -> Finding:
    others = {kind for kind in access.statuses if access.statuses[kind]} - {"read", "write"}
    if others:
        return Finding.info(f"only {comma_list(sorted(others))} queried, not peer access itself")
    return Finding.unknown("unparsable", "no peer access status reported")


def _judge_pairs(
    by_kind: Mapping[str, Mapping[_Pair, str]], access: PeerAccess, gpus: Gpus | None, has_nvlink: bool
) -> Iterator[Finding]:
    reported: set[frozenset[_Pair]] = set()
    for kind, pairs in by_kind.items():
        refused = {pair: status for pair, status in pairs.items() if status != "ok"}
        if not refused or frozenset(refused) in reported:
            continue
        reported.add(frozenset(refused))
        shown = sorted(_undirected_pairs(refused))[:8]
        evidence = [quote for pair in shown for quote in peer_evidence(access.source or P2P, pair, kind)]
        why = _why_normal(refused, pairs, gpus)
        if has_nvlink or why is None:
            yield from _judge_broken(kind, refused, pairs, evidence, has_nvlink)
        else:
            text = (
                f"no {kind} access for {len(_undirected_pairs(refused))} of "
                f"{count_with_noun(len(_undirected_pairs(pairs)), 'pair')}: {why}"
            )
            yield Finding.info(text, evidence=evidence, fix=_FIX)


def _judge_broken(
    kind: str,
    refused: Mapping[_Pair, str],
    pairs: Mapping[_Pair, str],
    evidence: list[Evidence],
    has_nvlink: bool,
) -> Iterator[Finding]:
    """One finding per GPU that is cut off from most others, one per pair that is left."""
    grave = has_nvlink or 1 - len(refused) / len(pairs) >= _MOSTLY
    judge = Finding.fail if grave else Finding.warn
    where = " despite NVLink between all GPUs" if has_nvlink else ""
    per_gpu = Counter(index for pair in _undirected_pairs(refused) for index in pair)
    per_gpu_told = Counter(index for pair in _undirected_pairs(pairs) for index in pair)
    bad = {index for index, count in per_gpu.items() if count * 4 > per_gpu_told[index] * 3}
    if len(bad) == len(per_gpu_told):
        summary = f"no {kind} access between any GPUs{where}"
        yield judge(summary, evidence=evidence, fix=_FIX)
        return
    for index in sorted(bad):
        words = ", ".join(sorted({status for pair, status in refused.items() if index in pair}))
        summary = f"no {kind} access to or from other GPUs{where}: {words}"
        yield judge(summary, subject=f"gpu:{index}", evidence=evidence, fix=_FIX)
    rest = {pair: status for pair, status in refused.items() if not bad & set(pair)}
    for gpu, peer in sorted(_undirected_pairs(rest)):
        words = rest.get((gpu, peer)) or rest[(peer, gpu)]
        way = "" if (gpu, peer) in rest and (peer, gpu) in rest else " in one direction"
        summary = f"no {kind} access{way}{where}: {words}"
        yield judge(summary, subject=f"pair:{gpu}-{peer}", evidence=evidence, fix=_FIX)


def _why_normal(refused: Mapping[_Pair, str], pairs: Mapping[_Pair, str], gpus: Gpus | None) -> str | None:
    """Why these refusals are no fault; None when one GPU or pair differs from the rest."""
    by_index = {gpu.index: gpu for gpu in gpus.gpus} if gpus else {}
    models = {i: gpu_model(g.name or "", g.pci_device_id or "") for i, g in by_index.items()}
    driver = [pair for pair in refused if any((m := models.get(i)) and not m.p2p for i in pair)]
    if len(driver) == len(refused):
        return "the driver disables P2P over PCIe for GeForce cards"
    names = {by_index[i].name for pair in refused for i in pair if i in by_index}
    if len(names) > 1:
        return "different GPU models"
    if len(refused) == len(pairs):
        return f"the same for all pairs ({', '.join(sorted(set(refused.values())))}), NCCL uses host memory"
    per_gpu = Counter(first for first, _ in refused)
    rows = {per_gpu[first] for first, _ in pairs}
    if len(rows) == 1:
        count = rows.pop()
        return f"the same for every GPU ({count_with_noun(count, 'peer')}), as across sockets"
    small = len({index for pair in pairs for index in pair}) < 4
    return "too few GPUs to know what is normal" if small else None


def _undirected_pairs(pairs: Iterable[_Pair]) -> set[_Pair]:
    """Pairs without their direction."""
    return {(min(pair), max(pair)) for pair in pairs}
