"""Outputs that became pieces, as the observations of nodes: what of each kind counts, and who it is of."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from nodedoctor.engine.recording import LARGEST, Snapshot
from nodedoctor.intake.convert import CONVERTED
from nodedoctor.intake.long_texts import LongText
from nodedoctor.intake.split import Piece
from nodedoctor.model import Observation
from nodedoctor.probes.kernel.kernel_log import shorten
from nodedoctor.record import record, replace
from nodedoctor.triage.identity.world import short_host

COPY = 0.5
"""Share of the longest copy from which a later one is as good: it is the newer state of the node. Ours."""


@record
class NodeOutput:
    """A piece, the file it is from, and the bundle that is of ("" for a loose paste)."""

    piece: Piece
    name: str
    bundle: str = ""


def by_folder(outputs: list[NodeOutput]) -> list[NodeOutput]:
    """The outputs, those of no name as their folder's where several folders show GPUs: each is a node.

    A node has its GPUs shown once. Where the same output lies in two folders, these are of two nodes, or of
    one at two times; outputs that are sorted into folders by their kind stay together.
    """
    loose = [item for item in outputs if not item.bundle and not item.piece.host]
    folders: dict[str, set[tuple[str, ...]]] = {}
    for item in loose:
        if item.piece.shape.first and item.piece.shape.about == "gpu":
            folders.setdefault(item.piece.shape.probe, set()).add(_folder(item.name))
    twice = [folder for places in folders.values() if len(places) > 1 for folder in places]
    if not twice:
        return outputs
    above = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*twice, strict=False))]
    names: dict[str, str] = {}  # a prompt in one of its outputs names the node better than its folder
    for item in outputs:
        if item.piece.host and not item.bundle and (own := _below(above, item)):
            names.setdefault(own, item.piece.host)
    return [
        replace(item, piece=replace(item.piece, host=names.get(own, own)))
        if not item.bundle and not item.piece.host and (own := _below(above, item))
        else item
        for item in outputs
    ]


def _below(above: list[str], item: NodeOutput) -> str:
    """The folder right below one in which an output lies; "" where it lies elsewhere."""
    folder = _folder(item.name)
    return folder[len(above)] if len(folder) > len(above) and [*folder[: len(above)]] == above else ""


def _folder(name: str) -> tuple[str, ...]:
    """The folder of a file, in an archive or not, as its parts."""
    return tuple(name.replace("!", "/").split("/")[:-1])


def by_node(outputs: Iterable[NodeOutput]) -> dict[str, list[NodeOutput]]:
    """The outputs of each node: a bundle is one, and so is what prompts and prefixes give one name.

    Loose outputs that name no node belong to the only one there is, or are one by themselves.
    """
    nodes: dict[str, list[NodeOutput]] = {}
    for item in outputs:
        host = short_host(item.piece.host)
        key = f"bundle {item.bundle}" if item.bundle else f"host {host}" if host else ""
        nodes.setdefault(key, []).append(item)
    nameless = nodes.pop("", [])
    if nameless and len(nodes) == 1:
        (only,) = nodes.values()
        only += nameless
    elif nameless:
        nodes[""] = nameless
    return nodes


def readable(outputs: list[NodeOutput]) -> list[NodeOutput]:
    """The outputs of a node; one of which only lines were pasted, too few to be read, has no probe."""
    probes = {
        item.piece.shape.probe
        for item in outputs
        if item.piece.shape.needs is None or item.piece.shape.needs.search(item.piece.text)
    }
    return [item if item.piece.shape.probe in probes else _part(item) for item in outputs]


def _part(item: NodeOutput) -> NodeOutput:
    shape = item.piece.shape
    part = replace(shape, probe="", what=f"lines of {shape.what}, without what they are of")
    return replace(item, piece=replace(item.piece, shape=part))


def snapshot_of(outputs: list[NodeOutput], name: str) -> Snapshot:
    """What these outputs show of one node, as if it had been recorded."""
    kinds: dict[str, list[Piece]] = {}
    for item in outputs:
        if item.piece.shape.probe:
            kinds.setdefault(item.piece.shape.probe, []).append(item.piece)
    observations = {probe: _observation(probe, pieces) for probe, pieces in kinds.items()}
    host = next((item.piece.host for item in outputs if item.piece.host), "") or name
    return Snapshot(
        observations=observations,
        node={"hostname": host} if host else {},
        provenance="pasted",
        origin="read from " + ", ".join(dict.fromkeys(item.name for item in outputs))[:400],
    )


def counting(pieces: list[Piece]) -> list[Piece]:
    """Of several copies of an output the newest that is whole; parts of one output all."""
    if pieces[0].shape.joins:
        return pieces
    copies = [piece for piece in pieces if piece.shape.first]
    if not copies:
        return pieces
    most = max(len(piece.text) for piece in copies)
    newest = [piece for piece in copies if len(piece.text) >= COPY * most][-1]
    return [piece for piece in pieces if piece is newest or not piece.shape.first]


def _observation(probe: str, pieces: list[Piece]) -> Observation:
    used = counting(pieces)
    if probe == "kernel-log":
        return _kernel_log(used)
    convert = CONVERTED.get(probe)
    text = convert(used) if convert else "".join(piece.text for piece in used)
    is_cut = any(piece.is_cut for piece in used)
    argv = tuple(used[0].shape.tool.split()[:6])
    too_long = len(text) > LARGEST // 4
    return Observation(
        probe,
        text=text[-(LARGEST // 4) :] if too_long else text,
        rc=0,
        argv=argv,
        truncated=is_cut or too_long,
    )


def _kernel_log(pieces: list[Piece]) -> Observation:
    """All parts of the kernel's log, without what the probe on the node would have left out."""
    log = LongText(is_kernel=True)
    for piece in pieces:
        log.add(piece.text.encode("utf-8", "replace"))
    text, shortened = shorten(log.data())
    is_cut = shortened or log.is_cut or any(piece.is_cut for piece in pieces)
    argv = tuple(pieces[0].shape.tool.split())
    return Observation("kernel-log", text=text.decode("utf-8", "replace"), rc=0, argv=argv, truncated=is_cut)
