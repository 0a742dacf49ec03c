"""What was read of the node, for reading: keys and values, like things side by side, equal values once.

What is empty or not known is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from nodedoctor.grouping import group_pairs
from nodedoctor.report.html import blocks
from nodedoctor.report.html.markup import Markup, each_piece, element, join_pieces

ABREAST = 16
"""Things side by side in columns; more of them below each other. Ours: nodes have 8 or 16 GPUs."""
MANY, FEW = 12, 4
"""Keys of one object, and different values among them, from and to which it is shown by value. Ours."""
ROWS = 300
"""Rows of one table; the JSON report has all of them. Ours: with more, phones get slow."""
DEPTH = 12
"""How deep a value is followed; facts of ours are half as deep."""
_KEYS = ("index", "name", "hca", "link", "device", "address", "path", "probe", "pid", "number", "node")
"""What names the elements of a list, the first that all of them have."""

Rows = Mapping[str, str]


def facts(facts: Mapping[str, Any]) -> Markup:
    """Every fact, folded."""
    shown: list[tuple[str, Any]] = []
    return each_piece(_fact_block(str(name), value, shown) for name, value in facts.items())


def _fact_block(name: str, value: Any, shown: list[tuple[str, Any]]) -> Markup:
    """One fact; a large part of it that is in an earlier one, too, is only named."""
    parts = value.items() if isinstance(value, dict) else [("", value)]
    plain: dict[str, str] = {}
    tables: list[Markup] = []
    for key, part in parts:
        path = f"{name}.{key}" if key else name
        same = next((where for where, earlier in shown if earlier == part), None) if _is_large(part) else None
        if same:
            plain[str(key)] = f"as in {same}"
        elif _is_objects(part):
            tables.append(_objects_table(str(key), part))
        else:
            _flatten(part, str(key), plain)
        if _is_large(part) and not same:
            shown.append((path, part))
    body = join_pieces(_values_table(plain) if any(plain.values()) else None, *tables)
    if _is_large(value):
        shown.append((name, value))
    head = element("summary", element("code", name))
    return element("details", head, body, class_="fact") if body else body


def _is_large(value: Any) -> bool:
    return isinstance(value, list | tuple | dict) and len(value) > 2


def _is_objects(value: Any) -> bool:
    """True for a list of objects."""
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, dict) for item in value)


def _objects_table(title: str, things: list[Mapping[str, Any]]) -> Markup:
    """Objects side by side, a row per key; many of them below each other."""
    flat = [_flat_values(thing) for thing in things]
    names = _object_labels(things)
    caption = element("p", f"{title} ({len(things)})" if title else None, class_="caption")
    if len(things) == 1:
        return join_pieces(caption, _values_table(flat[0]))
    if len(things) > ABREAST:
        return join_pieces(
            caption, _values_table({name: _row_line(row) for name, row in zip(names, flat, strict=True)})
        )
    keys = list(dict.fromkeys(key for row in flat for key, value in row.items() if value))
    head = element("tr", element("th", ""), *(element("th", name, scope="col") for name in names))
    body = (_row_across(key, [row.get(key, "") for row in flat]) for key in keys[:ROWS])
    table = element("table", element("thead", head), element("tbody", each_piece(body), _left_out(keys)))
    return join_pieces(caption, blocks.scroll(table, title or "values"))


def _row_across(key: str, values: list[str]) -> Markup:
    """One key of several things; one cell where all of them have the same."""
    head = element("th", key, scope="row")
    if len(set(values)) == 1:
        return element(
            "tr", head, element("td", values[0], colspan=str(len(values)), class_="same"), class_="item"
        )
    usual = max(set(values), key=values.count)
    few = values.count(usual) * 2 > len(values)
    cells = (
        element("td", f"{value} <", class_="odd") if few and value != usual else element("td", value)
        for value in values
    )
    return element("tr", head, *cells, class_="item")


def _values_table(rows: Rows) -> Markup:
    keys = [key for key, value in rows.items() if value]
    body = (
        element("tr", element("th", key, scope="row"), element("td", rows[key]), class_="item")
        for key in keys[:ROWS]
    )
    return element("table", element("tbody", each_piece(body), _left_out(keys)), class_="values")


def _left_out(keys: list[str]) -> Markup | None:
    rest = len(keys) - ROWS
    if rest <= 0:
        return None
    return element("tr", element("td", f"{rest} more in the JSON report", colspan="2", class_="quiet"))


def _object_labels(things: list[Mapping[str, Any]]) -> list[str]:
    for key in _KEYS:
        names = [str(thing.get(key, "")) for thing in things]
        if all(names) and len(set(names)) == len(names):
            return names
    return [str(number) for number in range(len(things))]


def _row_line(row: Rows) -> str:
    return ", ".join(f"{key} {value}" for key, value in row.items() if value)


def _flat_values(value: Any) -> dict[str, str]:
    """Every value by its path; lists of objects by column, what repeats counted."""
    rows: dict[str, str] = {}
    _flatten(value, "", rows)
    return rows


def _flatten(value: Any, path: str, rows: dict[str, str], depth: int = 0) -> None:
    if depth > DEPTH:
        rows[path] = "..."
    elif isinstance(value, dict) and (grouped := _group_keys(value)):
        rows[path] = grouped
    elif isinstance(value, dict):
        for key, inner in value.items():
            _flatten(inner, f"{path}.{key}" if path else str(key), rows, depth + 1)
    elif _is_objects(value):
        columns: dict[str, list[str]] = {}
        for number, thing in enumerate(value):
            row: dict[str, str] = {}
            _flatten(thing, f"{path}[]", row, depth + 1)
            for key, told in row.items():
                columns.setdefault(key, [""] * number).append(told)
        rows.update((key, _count_runs(told)) for key, told in columns.items())
    elif isinstance(value, list | tuple | set | frozenset):
        rows[path] = _count_runs([_plain_value(item, depth + 1) for item in value])
    else:
        rows[path] = _plain_value(value, depth)


def _group_keys(value: Mapping[str, Any]) -> str:
    """Many keys with few different values, by value; nothing for any other object."""
    if len(value) < MANY or any(isinstance(inner, dict | list | tuple) for inner in value.values()):
        return ""
    keys = group_pairs((_plain_value(inner, 0), str(key)) for key, inner in value.items())
    if len(keys) > FEW:
        return ""
    usual = max(keys, key=lambda inner: len(keys[inner]))
    others = [f"{inner}: {', '.join(names)}" for inner, names in keys.items() if inner != usual]
    return "; ".join([f"{usual} x{len(keys[usual])}", *others])


def _count_runs(values: list[str]) -> str:
    """Values in order; what repeats is written once, with how often."""
    if not any(values):
        return ""
    runs = ((value, sum(1 for _ in same)) for value, same in groupby(values))
    return ", ".join(
        f"{value} x{count}" if count > 2 else ", ".join([value] * count) for value, count in runs
    )


def _plain_value(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list | tuple):
        inner: dict[str, str] = {}
        _flatten(value, "", inner, depth)
        return ", ".join(f"{key} {text}".strip() for key, text in inner.items())
    return "" if value is None else str(value)
