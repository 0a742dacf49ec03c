"""Outputs that became pieces, as the observations of a node: what of each kind counts."""

from __future__ import annotations

import re

from nodedoctor.engine.recording import LARGEST, Snapshot
from nodedoctor.intake.convert import CONVERTED
from nodedoctor.intake.long_texts import LongText
from nodedoctor.intake.split import Piece
from nodedoctor.model import Observation
from nodedoctor.probes.kernel.kernel_log import shorten
from nodedoctor.record import record, replace

_RECORD = re.compile(r"^\d{1,3},\d{1,12},(\d{1,15}),[^;\n]{1,40};", re.M)
"""The front of a line of /dev/kmsg: level, number, microseconds, flags (Linux, ABI/testing/dev-kmsg)."""
_ALSO = {"disk": ("limits",), "ethtool": ("priority-counters",)}
"""Other probes that an output tells something of: df has the size of /dev/shm."""
COPY = 0.5
"""Share of the longest copy from which a later one is as good: it is the newer state of the node. Ours."""


@record
class NodeOutput:
    """A piece, the file it is from, and the bundle that is of ("" for a loose paste)."""

    piece: Piece
    name: str
    bundle: str = ""


def readable(outputs: list[NodeOutput]) -> list[NodeOutput]:
    """The outputs of a node; one of which only lines were pasted, too few to be read, has no probe."""
    probes = {
        item.piece.shape.probe
        for item in outputs
        if item.piece.shape.needs is None or item.piece.shape.needs.search(item.piece.text)
    }
    return [item if item.piece.shape.probe in probes else _part_output(item) for item in outputs]


def _part_output(item: NodeOutput) -> NodeOutput:
    shape = item.piece.shape
    part = replace(shape, probe="", what=f"lines of {shape.what}, without what they are of")
    return replace(item, piece=replace(item.piece, shape=part))


def snapshot_of(outputs: list[NodeOutput], name: str) -> Snapshot:
    """What these outputs show of one node, as if it had been recorded."""
    kinds: dict[str, list[Piece]] = {}
    for item in outputs:
        probe = item.piece.shape.probe
        for kind in (probe, *_ALSO.get(probe, ())) if probe else ():
            kinds.setdefault(kind, []).append(item.piece)
    read = ((probe, _probe_observation(probe, pieces)) for probe, pieces in kinds.items())
    observations = {probe: observation for probe, observation in read if observation is not None}
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


def _probe_observation(probe: str, pieces: list[Piece]) -> Observation | None:
    """What the pieces say of a probe; None where none of it is what that probe asks for."""
    used = counting(pieces)
    if probe == "kernel-log":
        return _kernel_log(used)
    convert = CONVERTED.get(probe)
    text = convert(used) if convert else "".join(piece.text for piece in used)
    if convert and not text:
        return None
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


def _dmesg_stamp(record: re.Match[str]) -> str:
    """The front of a line as dmesg prints it."""
    seconds, micro = divmod(int(record[1]), 1_000_000)
    return f"[{seconds:5}.{micro:06}] "


_CUT_CODE = re.compile(r"(Xid \(PCI:[^)\n]{4,20}\): )(?:[1-9]|1[0-7])\n*\Z")
"""An Xid that may go on: the driver prints a comma behind it, and there are some up to 179."""


def _without_cut_code(piece: Piece) -> Piece:
    """The piece; where the text ends inside of a code, without that: another digit is another fault."""
    if not piece.is_last or not _CUT_CODE.search(piece.text):
        return piece
    return replace(piece, text=_CUT_CODE.sub(r"\1", piece.text), is_cut=True)


def _kernel_log(pieces: list[Piece]) -> Observation:
    """All parts of the kernel's log, without what the probe on the node would have left out."""
    log = LongText(is_kernel=True)
    pieces = [_without_cut_code(piece) for piece in pieces]
    for piece in pieces:
        log.add(_RECORD.sub(_dmesg_stamp, piece.text).encode("utf-8", "replace"))
    text, shortened = shorten(log.data())
    is_cut = shortened or log.is_cut or any(piece.is_cut for piece in pieces)
    argv = tuple(pieces[0].shape.tool.split())
    return Observation("kernel-log", text=text.decode("utf-8", "replace"), rc=0, argv=argv, truncated=is_cut)
