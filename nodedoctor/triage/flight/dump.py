"""One rank's flight-recorder dump, pickle or JSON, of torch 2.1 to today."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from nodedoctor.debug import Log
from nodedoctor.json_shapes import first_of, loaded
from nodedoctor.record import record
from nodedoctor.triage.flight.records import (
    GroupState,
    Transfer,
    apply_status,
    group_states,
    members_of,
    open_transfers,
    sequence_number,
)
from nodedoctor.triage.flight.unpickle import (
    LARGEST,
    PickleRefused,
    bounded_memory,
    load_pickle,
    salvage_pickle,
    shorten_pickle,
)
from nodedoctor.triage.identity.paths import rank_of_dump
from nodedoctor.whole_numbers import json_integer, signed

SMALLEST = 32
"""Bytes of a record: nine keys of two bytes and their values, in the oldest and shortest form."""

_log = Log(__name__)


@record
class RankDump:
    """One rank's dump. `note` names a fault of the file, `entries` counts its records."""

    path: str
    rank: int | None
    groups: Mapping[str, GroupState]
    members: Mapping[str, tuple[int, ...]]
    entries: int
    frames: bool = False
    note: str = ""
    transfers: tuple[Transfer, ...] = ()

    @property
    def complete(self) -> bool:
        """False when the file's end is missing: its last record then proves nothing."""
        return not self.note


def read_dump(path: str) -> RankDump:
    """Read a file as a dump; PickleRefused when it is none, broken or dangerous."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return parse_dump(path, file.read(min(size, LARGEST) + 1))


def parse_dump(path: str, data: bytes) -> RankDump:
    """The bytes of a file as a dump; `path` names their source."""
    if data[:1] == b"\x80":
        document, note = _read_pickle(data)
    else:
        document, note = _read_json(data)
    return _make_dump(path, document, note, len(data))


def _read_pickle(data: bytes) -> tuple[Any, str]:
    short = shorten_pickle(data)
    if short is not None:
        try:
            ends = load_pickle(short)
            if _has_open_collectives(ends):
                return ends, ""
        except PickleRefused as refused:
            _log.debug("the ends of a dump cannot be read, so it is read whole: %s", refused)
    try:
        return load_pickle(data), ""
    except PickleRefused as refused:
        if not str(refused).startswith("broken"):
            raise
        rest = _salvage_document(salvage_pickle(data))
        if not rest["entries"]:
            raise
        return rest, f"cut off: {len(rest['entries'])} records could be saved"


def _has_open_collectives(document: Any) -> bool:
    """True when no open collective is missing among these records, by counters and gaps."""
    entries = document.get("entries") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(item, dict) for item in entries):
        return False
    groups, names_by_id = group_states(entries)
    if not all(_is_gapless(state) for state in groups.values()):
        return False
    status = document.get("pg_status")
    return not isinstance(status, dict) or all(
        _counters_agree(groups.get(names_by_id.get(str(key), "")), counters)
        for key, counters in status.items()
    )


def _is_gapless(state: GroupState) -> bool:
    """True when a group's open collectives and the one before them are all there."""
    pending = state.pending
    if pending is None:
        return True
    wanted = range(pending.seq if pending.seq == state.first else pending.seq - 1, state.enqueued + 1)
    return len(wanted) <= len(state.ops) and all(seq in state.ops for seq in wanted)


def _counters_agree(state: GroupState | None, counters: Any) -> bool:
    """True when a group's counters show no open collective beside the records."""
    if state is None or not isinstance(counters, dict):
        return False
    enqueued, completed = (
        signed(counters.get(f"last_{word}_collective")) for word in ("enqueued", "completed")
    )
    if enqueued is None or completed is None:
        return False
    return enqueued <= completed or {completed + 1, enqueued} <= state.ops.keys()


def _salvage_document(values: list[Any]) -> dict[str, Any]:
    """A document out of loose values: on the stack keys come before their values."""
    document: dict[str, Any] = {
        "entries": [v for v in values if isinstance(v, dict) and "profiling_name" in v]
    }
    for key, value in pairwise(values):
        if isinstance(key, str) and key in ("pg_config", "pg_status", "version"):
            document[key] = value
        if key == "entries" and isinstance(value, list) and value:
            document["entries"] = value
    return document


def _read_json(data: bytes) -> tuple[Any, str]:
    with bounded_memory(len(data)):
        text = data.decode("utf-8", "replace")
        try:
            return loaded(text, parse_int=json_integer), ""
        except ValueError:
            return _json_entries(text)
        except MemoryError:
            raise PickleRefused("it would need more memory than a dump can need") from None


def _json_entries(text: str) -> tuple[Any, str]:
    """The records of a document that is cut off."""
    entries: list[Any] = []
    start = re.search(r'"entries"\s*:\s*\[', text)
    position = start.end() if start else len(text)
    while position < len(text):
        try:
            entry, position = first_of(text, position, parse_int=json_integer)
        except ValueError:
            break
        entries.append(entry)
        gap = re.compile(r"\s*,\s*").match(text, position)
        position = gap.end() if gap else len(text)
    if not entries:
        raise PickleRefused("it is neither a pickle nor JSON of the flight recorder")
    return {"entries": entries}, f"cut off: {len(entries)} records could be saved"


def _make_dump(path: str, document: Any, note: str, size: int) -> RankDump:
    if isinstance(document, list):  # torch 2.1 and 2.2 wrote the bare list
        document = {"entries": document, "version": "1"}
    if not isinstance(document, dict) or not _RECORDER & document.keys():
        raise PickleRefused("it is not a flight-recorder dump")
    records = _read_records(document.get("entries", []), size)
    groups, names_by_id = group_states(records)
    apply_status(groups, names_by_id, document.get("pg_status"))
    return RankDump(
        path,
        rank_of_dump(path),
        groups,
        members_of(document.get("pg_config"), groups),
        len(records),
        any("frames" in item for item in records[-1:]),
        note or _unnumbered_note(records),
        open_transfers(records),
    )


def _read_records(entries: Any, size: int) -> list[dict[str, Any]]:
    """The records; PickleRefused for other things, or more than the file can hold."""
    if not isinstance(entries, list):
        raise PickleRefused(f"its entries are no list but {type(entries).__name__}")
    records = [entry for entry in entries if isinstance(entry, dict)]
    if len(records) < len(entries):
        raise PickleRefused(f"{len(entries) - len(records)} of its {len(entries)} entries are no records")
    if len(records) > size // SMALLEST or len({id(item) for item in records}) < len(records):
        raise PickleRefused(f"it refers to the same records again and again ({len(records)} in {size} bytes)")
    return records


def _unnumbered_note(records: list[dict[str, Any]]) -> str:
    """A note about collectives whose sequence number cannot be read."""
    unread = sum(item.get("is_p2p") is not True and sequence_number(item) is None for item in records)
    return (
        f"{unread} of its {len(records)} records have no sequence number that can be read" if unread else ""
    )


_RECORDER = {"entries", "pg_config", "pg_status", "nccl_comm_state"}


def one_per_rank(dumps: Iterable[RankDump]) -> tuple[list[RankDump], list[str]]:
    """The best dump of each rank (stack frames, more records), and notes about the rest."""
    best: dict[int, RankDump] = {}
    notes: list[str] = []
    for dump in dumps:
        if dump.note:
            notes.append(f"{dump.path}: {dump.note}")
        if dump.rank is None:
            notes.append(f"{dump.path}: its name does not say which rank it is from")
            continue
        best_dump = best.get(dump.rank)
        if best_dump is None or (dump.frames, dump.entries) > (best_dump.frames, best_dump.entries):
            best[dump.rank] = dump
    return [best[rank] for rank in sorted(best)], notes
