"""Outputs that became pieces, as the observations of nodes: what of each kind counts, and who it is of."""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor.engine.recording import LARGEST, Snapshot
from nodedoctor.intake.convert import CONVERTED
from nodedoctor.intake.split import Piece
from nodedoctor.model import Observation
from nodedoctor.record import record
from nodedoctor.triage.node_reports import short_name

COPY = 0.5
"""Share of the longest copy from which a later one is as good: it is the newer state of the node. Ours."""


@record
class Found:
    """A piece, the file it is from, and the bundle that is of ("" for a loose paste)."""

    piece: Piece
    name: str
    bundle: str = ""


def by_node(found: Iterable[Found]) -> dict[str, list[Found]]:
    """The outputs of each node: a bundle is one, and so is what prompts and prefixes give one name.

    Loose outputs that name no node belong to the only one there is, or are one by themselves.
    """
    nodes: dict[str, list[Found]] = {}
    for one in found:
        host = short_name(one.piece.host)
        key = f"bundle {one.bundle}" if one.bundle else f"host {host}" if host else ""
        nodes.setdefault(key, []).append(one)
    nameless = nodes.pop("", [])
    if nameless and len(nodes) == 1:
        (only,) = nodes.values()
        only += nameless
    elif nameless:
        nodes[""] = nameless
    return nodes


def snapshot_of(found: list[Found], name: str) -> Snapshot:
    """What these outputs show of one node, as if it had been recorded."""
    kinds: dict[str, list[Piece]] = {}
    for one in found:
        if one.piece.shape.probe:
            kinds.setdefault(one.piece.shape.probe, []).append(one.piece)
    seen = {probe: _observation(probe, pieces) for probe, pieces in kinds.items()}
    host = next((one.piece.host for one in found if one.piece.host), "") or name
    return Snapshot(
        observations=seen,
        node={"hostname": host} if host else {},
        provenance="pasted",
        origin="read from " + ", ".join(dict.fromkeys(one.name for one in found))[:400],
    )


def counting(pieces: list[Piece]) -> list[Piece]:
    """Of several copies of an output the newest that is whole; parts of one output all."""
    if pieces[0].shape.joins:
        return pieces
    whole = [piece for piece in pieces if piece.shape.first]
    if not whole:
        return pieces
    most = max(len(piece.text) for piece in whole)
    newest = [piece for piece in whole if len(piece.text) >= COPY * most][-1]
    return [piece for piece in pieces if piece is newest or not piece.shape.first]


def _observation(probe: str, pieces: list[Piece]) -> Observation:
    kept = counting(pieces)
    convert = CONVERTED.get(probe)
    text = convert(kept) if convert else "".join(piece.text for piece in kept)
    argv = tuple(kept[0].shape.tool.split()[:6])
    cut = len(text) > LARGEST // 4
    return Observation(probe, text=text[-(LARGEST // 4) :] if cut else text, rc=0, argv=argv, truncated=cut)
