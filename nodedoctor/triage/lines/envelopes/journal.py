"""The export of systemd's journal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.triage.lines.envelopes.objects import object_records
from nodedoctor.triage.lines.envelopes.records import EnvelopeRecord, who_of
from nodedoctor.triage.model import Identity


def is_journal(head: str) -> bool:
    """Whether this is what `journalctl -o export` prints."""
    return bool(re.match(r"__CURSOR=|__REALTIME_TIMESTAMP=", head))


def journal_records(data: bytes) -> Iterator[EnvelopeRecord]:
    """The records of a journal export; multi-line texts have their length in front."""
    fields: dict[str, Any] = {}
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        end = len(data) if end < 0 else end
        name, separator, value = data[position:end].decode("utf-8", "replace").partition("=")
        position = end + 1
        if not name and not separator:
            yield from _entry_record(fields)
            fields = {}
        elif separator:
            fields[name.lower()] = value
        else:
            size = int.from_bytes(data[position : position + 8], "little")
            fields[name.lower()] = data[position + 8 : position + 8 + size].decode("utf-8", "replace")
            position += 9 + size
    yield from _entry_record(fields)


def _entry_record(fields: Mapping[str, Any]) -> Iterator[EnvelopeRecord]:
    text = fields.get("message")
    if isinstance(text, str):
        yield from object_records(text, fields, who_of(fields, Identity()))
