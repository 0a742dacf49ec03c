"""Does the matrix of `nvidia-smi topo -m` look as this board's must, and has every GPU its adapter nearby?"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory
from nodedoctor.facts.gpu.links.topology import TOPO, Topology
from nodedoctor.knowledge.gpus import platforms
from nodedoctor.model import Evidence, Finding, Fix, quoted_like
from nodedoctor.steps import look
from nodedoctor.wording import comma_list, count_with_noun, numbered, singular_or_plural

MESH_LINKS = 4
"""NVLinks per pair from which a matrix is a board's: fewer are bridges, or meshes unlike by pair (V100)."""
WIRED = 6
"""NVLinks per pair at most without a switch: three others share 18 (GB200 and H100 of four GPUs)."""
_BOARD_SIZES = (4, 8, 16)
"""GPUs of a complete board."""
_NEAR = ("PIX", "PXB")
_NVLINK = re.compile(r"NV(\d{1,2})")

_Pair = tuple[str, str]
_FIX = Fix(
    "A GPU with a different row has NVLinks down or failed its fabric registration: check nvlink.links, "
    "fabric.state and the kernel log (Xid 74). Reset the GPU, restart the fabric manager, then reboot. If "
    "nothing helps, request a replacement of the module or NVSwitch.",
    (
        look("nvidia-smi topo -m"),
        look("nvidia-smi nvlink -s"),
        look("systemctl status nvidia-fabricmanager"),
        look("sudo dmesg | grep -iE 'xid|nvswitch'"),
    ),
    "investigate",
    "every job on this node, during the reset",
    "nodedoctor topo.matrix",
    "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide",
)
_AGAIN = Fix("Ask for the whole matrix again, unwrapped.", (look("nvidia-smi topo -m"),), action="none")
_RAIL = Fix(
    "Check whether a NIC or its PCIe switch is missing or dead (ib.ports, `lspci -d 15b3:`). In a virtual "
    "machine the host must provide the topology (NCCL_TOPO_FILE).",
    (look("nvidia-smi topo -m"), look("lspci -tv"), look("ibstat -s")),
    "investigate",
    "nothing",
    "nodedoctor topo.nic-affinity",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-topo-file",
)


@check(
    "topo.matrix",
    "GPU topology matrix",
    tags={"gpu", "nvlink"},
    explained_by=(
        "nvlink.links",
        "driver.answers",
        "driver.gpus-present",
        "nvlink.links@all",
        "fabric.state@all",
    ),
)
def matrix(
    topology: Topology, gpus: Gpus | None, board: Board | None, inventory: Inventory | None
) -> Iterator[Finding]:
    """The GPU part of `nvidia-smi topo -m`: each entry against the model's, or against most others.

    NV12 on HGX A100, NV18 on HGX H100, H200, B200 (knowledge.gpus, platforms). Without NVLink any mix of PIX
    PXB PHB NODE SYS only depends on slots and sockets.
    Why: NCCL builds its rings from this matrix; one pair without NVLink forces all of them onto PCIe.
    Fix disturbs: every job on the node, during the reset.
    Judges: FAIL when a pair lacks the board's NVLink token, WARN for missing bridges and unknown tokens.
    Fix: See nvlink.links and fabric.state; reset the odd GPU.
    Threshold: Tokens per platform in the gpus table.
    False positives: Meshes that differ by pair by design (V100), pastes with damaged columns.
    """
    in_mig = {f"GPU{gpu.index}" for gpu in gpus.gpus if gpu.mig_mode} if gpus else set()
    names = tuple(name for name in topology.gpus if name not in in_mig)
    if len(names) < 2:
        why = "a single GPU" if len(topology.gpus) < 2 else "fewer than two GPUs without MIG"
        yield Finding.skip(f"{why}: no pairs to check")
        return
    cells = _cells_between(topology, names)
    expected = _expected_tokens(cells, board, len(names))
    odd_cells = {pair: token for pair, token in cells.items() if expected and token not in expected}
    findings = list(_odd_rows(odd_cells, cells, expected, board))
    if not topology.damaged:  # a GPU whose row is missing seems to have no NVLink
        findings += _judge_unjoined(cells, names, expected)
    if not findings:
        findings += [*_judge_strange(cells, expected), *_judge_incomplete(names, expected, inventory)]
    yield from findings
    if topology.damaged:
        yield _damaged_rows(topology)
    elif not findings:
        counts = Counter(cells.values()).most_common()
        text = ", ".join(f"{token} x{count}" for token, count in counts)
        yield Finding.ok(f"{len(names)} GPUs: {text}")


def _cells_between(topology: Topology, names: tuple[str, ...]) -> dict[_Pair, str]:
    """The tokens between these GPUs."""
    links = topology.links
    return {(a, b): t for a in names for b in names if a != b and (t := links.get(a, {}).get(b))}


def _damaged_rows(topology: Topology) -> Finding:
    """What was read holds for the other rows; of these nothing is known."""
    summary = (
        f"not judged: the row of {comma_list(topology.damaged)} is missing or has another number "
        "of cells than "
        "the header"
    )
    return Finding.unknown("not-visible-here", summary, subject="topo:rows", fix=_AGAIN)


def _expected_tokens(cells: Mapping[_Pair, str], board: Board | None, gpus: int) -> frozenset[str]:
    """The tokens every cell must have; empty where cells may differ."""
    common, count = Counter(cells.values()).most_common(1)[0] if cells else ("", 0)
    match = _NVLINK.fullmatch(common)
    links = int(match[1]) if match else 0
    model = board.known_model if board else None
    if board and board.joined and model:
        direct = links * (gpus - 1) == model.nvlink_links and count == len(cells)  # wired without a switch
        return frozenset((common,)) if common in board.tokens or direct else board.tokens
    if links >= MESH_LINKS and count * 2 > len(cells) > 2 and not _one_more(cells, common, gpus):
        return frozenset((common,))
    return frozenset()


def _one_more(cells: Mapping[_Pair, str], common: str, gpus: int) -> bool:
    """A whole board and one GPU besides, like the display adapter of a DGX Station."""
    outside = Counter(name for pair, token in cells.items() if token != common for name in set(pair))
    alone = [name for name, count in outside.items() if count == 2 * (gpus - 1)]
    return gpus - 1 in _BOARD_SIZES and len(alone) == 1 and len(outside) == gpus


def _odd_rows(
    odd_cells: Mapping[_Pair, str], cells: Mapping[_Pair, str], expected: frozenset[str], board: Board | None
) -> Iterator[Finding]:
    """The GPUs whose whole row is odd, then single pairs; one finding when everything is."""
    if not odd_cells:
        return
    usual = " or ".join(sorted(expected))
    where = f" on {board.platform}" if board and board.platform else ""
    if len(odd_cells) == len(cells):
        text = ", ".join(sorted(set(odd_cells.values())))
        summary = f"no pair is {usual}{where}: {text}"
        yield Finding.fail(summary, evidence=_row_evidence({a for a, _ in cells}), fix=_FIX)
        return
    per_gpu = Counter(name for pair in odd_cells for name in pair)
    full = Counter(name for pair in cells for name in pair)
    rows = {name for name, count in per_gpu.items() if count * 4 > full[name] * 3}
    for name in sorted(rows, key=_gpu_number):
        text = ", ".join(sorted({token for pair, token in odd_cells.items() if name in pair}))
        summary = f"connected to the others by {text}, expected {usual}{where}"
        subject = f"gpu:{_gpu_number(name)}"
        yield Finding.fail(summary, subject=subject, evidence=_row_evidence({name}), fix=_FIX)
    rest = {pair: token for pair, token in odd_cells.items() if not rows & set(pair)}
    for a, b in sorted({(min(p, key=_gpu_number), max(p, key=_gpu_number)) for p in rest}):
        token = rest.get((a, b)) or rest[(b, a)]
        way = "" if (a, b) in rest and (b, a) in rest else f" (reverse direction {cells.get((b, a), '?')})"
        summary = f"connected by {token}{way}, expected {usual}{where}"
        subject = f"pair:{_gpu_number(a)}-{_gpu_number(b)}"
        yield Finding.fail(summary, subject=subject, evidence=_row_evidence({a, b}), fix=_FIX)


def _judge_unjoined(
    cells: Mapping[_Pair, str], names: tuple[str, ...], expected: frozenset[str]
) -> Iterator[Finding]:
    """Cards joined by bridges, and one that most probably should be and is not."""
    if expected:
        return
    partners = {name: {t for (a, _), t in cells.items() if a == name and _NVLINK.match(t)} for name in names}
    bridged = [name for name in names if partners[name]]
    alone = [name for name in names if not partners[name]]
    if len(bridged) < 4 or not alone or len(alone) % 2 or len(alone) * 3 > len(names):
        return
    for name in alone:
        summary = "no NVLink to any other GPU, unlike its peers: bridge missing or loose"
        subject = f"gpu:{_gpu_number(name)}"
        yield Finding.warn(summary, subject=subject, evidence=_row_evidence({name}), fix=_FIX)


def _judge_strange(cells: Mapping[_Pair, str], expected: frozenset[str]) -> Iterator[Finding]:
    """Cells that are no path at all, and a mesh that no board is known to have."""
    for (a, b), token in cells.items():
        if token in ("X", "N/A") and _gpu_number(a) < _gpu_number(b):
            subject = f"pair:{_gpu_number(a)}-{_gpu_number(b)}"
            yield Finding.warn(
                f"{token}: no path reported", subject=subject, evidence=_row_evidence({a}), fix=_FIX
            )
    tokens = {board.topo_token for board in platforms()}
    if expected and not expected & tokens and (len(cells) > 12 or _too_many_to_be_wired(expected)):
        yield _on_no_board(", ".join(expected), sorted({a for a, _ in cells}, key=_gpu_number))


def _on_no_board(token: str, rows: list[str]) -> Finding:
    """A number of links that no board has between its GPUs, in the rows that were read."""
    if len(rows) > 1:
        summary = f"all pairs are {token}, as on no known board: links may be down on every GPU"
        return Finding.warn(summary, evidence=_row_evidence(set(rows)), fix=_FIX)
    summary = f"{token} to all others, as on no known board: links may be down"
    subject = f"gpu:{_gpu_number(rows[0])}"
    return Finding.warn(summary, subject=subject, evidence=_row_evidence(set(rows)), fix=_FIX)


def _too_many_to_be_wired(tokens: frozenset[str]) -> bool:
    """Whether these are more links than GPUs have to each other without a switch."""
    return any(int(match[1]) > WIRED for token in tokens if (match := _NVLINK.fullmatch(token)))


def _judge_incomplete(
    names: tuple[str, ...], expected: frozenset[str], inventory: Inventory | None
) -> Iterator[Finding]:
    """Seven GPUs of a board of eight in a pasted matrix; on a node, driver.gpus-present knows better."""
    if expected and len(names) in (7, 15) and not (inventory and inventory.looked):
        summary = f"{len(names)} GPUs on a board of {len(names) + 1}: one is missing or not assigned"
        yield Finding.warn(summary, fix=_FIX)


def _gpu_number(name: str) -> int:
    return int(name.removeprefix("GPU"))


def _row_evidence(rows: set[str]) -> list[Evidence]:
    shown = sorted(rows, key=_gpu_number)[:8]
    return [_matrix_row(name) for name in shown]


def _matrix_row(name: str) -> Evidence:
    """The row of the matrix; a header begins with the names of two devices."""
    return quoted_like(TOPO, rf"^[ \t]*({re.escape(name)}[ \t]+(?!GPU|NIC|mlx|CPU).*\S)")


RAILS = 3
"""GPUs with as many NICs under their switches from which that is how the machine is built; ours."""


@check("topo.nic-affinity", "NIC next to each GPU", tags={"gpu", "ib"})
def nic_affinity(topology: Topology) -> Iterator[Finding]:
    """The best path from each GPU to a NIC, on boards where most GPUs share a PCIe switch with one.

    Why: GPUDirect RDMA is fast only within one PCIe switch; a GPU without its own NIC is a slow rail.
    Fix disturbs: nothing.
    Judges: WARN when a GPU has no adapter under its switch although most others have, or those of one socket
    have none although the other's have as many as there are GPUs.
    Fix: See ib.ports and nic.inventory; in a virtual machine pass the topology file on.
    Threshold: Three of four GPUs with a near adapter make it the rule: our threshold.
    False positives: Machines with adapters on the root complex, or sold with those of one socket; pastes with
    damaged columns.
    """
    if not topology.nics:
        yield Finding.skip("no NIC in the matrix")
        return
    nearest = {name: topology.nearest_nics(name) for name in topology.gpus}
    near = [name for name, (path, _) in nearest.items() if path in _NEAR]
    far = {name: path for name, (path, _) in nearest.items() if path not in _NEAR and path}
    if bare := _bare_socket(topology, near, nearest):
        summary = (
            f"no NIC on the socket of {numbered('GPU', map(_gpu_number, bare))} (SYS to all), "
            f"{numbered('GPU', map(_gpu_number, near))} have theirs: NICs of one socket are missing"
        )
        yield Finding.warn(
            summary, subject="topo:socket", evidence=[_matrix_row(name) for name in bare], fix=_RAIL
        )
        return
    if len(near) < 3 or len(near) * 4 < len(topology.gpus) * 3:
        paths = ", ".join(sorted({path for path, _ in nearest.values() if path})) or "none"
        few = f"{len(near)} of {len(topology.gpus)} GPUs have a NIC under their PCIe switch: no rule here"
        none = "no NICs under the GPUs' PCIe switches on this machine"
        yield Finding.skip(f"{few if near else none} (best paths: {paths})")
        return
    for name, path in far.items():
        summary = (
            f"nearest NIC at {path}; {count_with_noun(len(near), 'other GPU')} "
            f"{singular_or_plural(len(near), 'has', 'have')} one under the same switch"
        )
        yield Finding.warn(
            summary, subject=f"gpu:{_gpu_number(name)}", evidence=[_matrix_row(name)], fix=_RAIL
        )
    if topology.damaged:
        yield _damaged_rows(topology)
    elif not far:
        yield Finding.ok(f"{count_with_noun(len(near), 'GPU')} with a NIC under the same PCIe switch")


def _bare_socket(
    topology: Topology, near: list[str], nearest: Mapping[str, tuple[str, tuple[str, ...]]]
) -> list[str]:
    """The GPUs of sockets without any NIC, where the other's GPUs have one each behind their PCIe switches.

    Nothing is judged in a paste whose rows of NICs are cut off, nor where the GPUs and NICs of one socket are
    not nearer to each other than those of two.
    """
    if any(nic not in topology.links for nic in topology.nics):
        return []
    sockets: dict[str, list[str]] = {}
    for name in topology.gpus:
        place = topology.affinity.get(name, {})
        sockets.setdefault(place.get("numa") or place.get("cpus") or "", []).append(name)
    bare = [gpus for gpus in sockets.values() if all(nearest[name][0] == "SYS" for name in gpus)]
    names = [name for gpus in bare for name in gpus]
    own = {nic for name in near for nic in nearest[name][1]}
    one_socket = all(topology.links[name].get(nic) != "SYS" for name in near for nic in own)
    rails = RAILS <= len(near) <= len(own) and len(near) == len(topology.gpus) - len(names)
    return names if rails and one_socket and "" not in sockets and len(names) >= RAILS else []
