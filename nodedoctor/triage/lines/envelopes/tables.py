"""Tables of comma-separated values, or of any other mark."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from nodedoctor.triage.lines.envelopes.objects import column_name, table_records
from nodedoctor.triage.lines.envelopes.records import TEXT, EnvelopeRecord

HEAD = 65536
"""Bytes that are searched for what separates the columns."""


def csv_records(data: bytes) -> Iterator[EnvelopeRecord]:
    """The records of a table."""
    return table_records(_split_rows(data, find_separator(data[:HEAD].decode("utf-8", "replace")) or ","))


def _split_rows(data: bytes, mark: str) -> Iterator[list[str]]:
    """The rows of a table with this separator; a cell may hold several lines."""
    csv.field_size_limit(1 << 24)
    text = data.decode("utf-8", "replace").lstrip("\ufeff").replace("\0", "")
    try:
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    except csv.Error:
        return


LONGEST_HEADING = 4096
"""Characters of the first line of a table, at most."""


def find_separator(head: str) -> str:
    """The separator of a table that begins like this; '' for other texts."""
    first, _, rest = head.partition("\n")
    if len(first) > LONGEST_HEADING or "\r" in first.rstrip("\r"):  # bars that are drawn again and again
        return ""
    for mark in (",", "\t", ";"):
        names = list(map(column_name, next(csv.reader([first], delimiter=mark), [])))
        if len(names) > 1 and any(name in TEXT for name in names) and all(len(name) < 40 for name in names):
            row = _first_row(rest, mark)
            return mark if abs(len(row) - len(names)) < 2 else ""
    return ""


def _first_row(text: str, mark: str) -> list[str]:
    """The cells of a table's first row; none when the text is no table."""
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=mark), [])
    except csv.Error:
        return []
