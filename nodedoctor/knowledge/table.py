"""Reads the tables: the JSON files of `tables`, one row per line, each row with its source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from nodedoctor.record import field_names

FOLDER = Path(__file__).parent / "tables"
FOR_EDITORS = frozenset({"source", "note", "unverified"})
"""Keys that every row may have for who edits the table; row types have them where the code reads them."""
Row = TypeVar("Row")


@cache
def load(table: str) -> Mapping[str, Any]:
    """The parsed file of a table, read on first use and kept."""
    document: dict[str, Any] = json.loads((FOLDER / f"{table}.json").read_bytes())
    return document


def raw_rows(table: str, section: str) -> list[dict[str, Any]]:
    """The rows of one section as the file has them."""
    entries: list[dict[str, Any]] = load(table)[section]
    return entries


def rows(table: str, section: str, row_type: type[Row]) -> tuple[Row, ...]:
    """The rows of one section as frozen rows; callers keep them, this builds them at each call."""
    return tuple(typed(table, raw, row_type) for raw in raw_rows(table, section))


def cached_rows(table: str, section: str, row_type: type[Row]) -> Callable[[], tuple[Row, ...]]:
    """A function that builds the rows of one section when it is first called, and keeps them."""
    return cache(lambda: rows(table, section, row_type))


def typed(table: str, raw: Mapping[str, Any], row_type: type[Row]) -> Row:
    """One row as its dataclass: lists become tuples, source keys become what they name."""
    fields = field_names(row_type)
    values = {key: _as_tuples(value) for key, value in raw.items() if key in fields or key not in FOR_EDITORS}
    if "source" in fields:
        values["source"] = source_text(table, raw["source"])
    return row_type(**values)


def source_text(table: str, source: str | list[str]) -> str:
    """Where a row comes from, in words: keys of the file's `sources` are replaced by what they name."""
    sources: Mapping[str, str] = load(table).get("sources", {})
    keys = [source] if isinstance(source, str) else source
    return "; ".join(sources.get(key, key) for key in keys)


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value
