"""JSON of which nothing is certain, read as values of the wanted shape.

It comes from children, other machines, other versions and damaged files. What has another shape counts as
absent; only `int_of` and `text_of` raise. Numbers are bounded here: what does not fit into 64 bits, NaN and
the infinite are no numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from nodedoctor.model import Observation
from nodedoctor.probes.plain_json import members

Json = Mapping[str, Any]

BOUND = 2**64
"""Numbers are below it; kernels and drivers count in 64 bits."""
DEEPEST = 64
"""Lists and objects within each other. Real documents nest at most 15 deep; what walks through a value, in
functions that call themselves, must stay far below Python's limit of 1000 calls."""

_NESTING = frozenset((dict, list))
_TOO_DEEP = "it is nested too deeply to be read"


def loaded(text: str | bytes, **options: Any) -> Any:
    """The value that a text from outside holds, with the options of `json.loads`.

    ValueError when it is no JSON, and also when it is nested more than DEEPEST deep: from 1000 on `json`
    raises RecursionError, which callers forget, and below that whatever walks through the value may.
    """
    try:
        value = json.loads(text, **options)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _count_openings(text) > DEEPEST and not _is_shallow(value):
        raise ValueError(_TOO_DEEP)
    return value


def answer(text: str, **options: Any) -> Any:
    """As `loaded`, the document of a child of ours; ValueError also when it has lost members since."""
    value = loaded(text, **options)
    if not is_whole(value):
        raise ValueError("it has fewer members than it says")
    return value


def is_whole(document: Any) -> bool:
    """Whether a document has as many members as it says; older versions did not say how many."""
    count = document.get("members") if isinstance(document, dict) else None
    return type(count) is not int or count == members(document) - 1  # the number itself was not counted


def first_of(text: str, at: int = 0, **options: Any) -> tuple[Any, int]:
    """The value that begins at a place of a text, and where it ends; ValueError as for `loaded`."""
    try:
        value, end = json.JSONDecoder(**options).raw_decode(text, at)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if not _is_shallow(value):
        raise ValueError(_TOO_DEEP)
    return value, end


def _count_openings(text: str | bytes) -> int:
    """How many lists and objects a text may open: an upper bound, quickly counted."""
    return text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")


def _is_shallow(value: Any) -> bool:
    """Whether a value nests at most DEEPEST deep, looked at level by level."""
    level = [value] if type(value) in _NESTING else []
    for _ in range(DEEPEST):
        inside = [item.values() if type(item) is dict else item for item in level]
        level = [part for parts in inside for part in parts if type(part) in _NESTING]
        if not level:
            break
    return not level


def document(observation: Observation) -> Json | None:
    """The object a child printed; None when there was no answer or it is no JSON object.

    What a start-up file of a foreign interpreter printed before it, on lines of its own, is passed over.
    """
    if not observation.answered:
        return None
    for candidate in (observation.text, observation.text.rstrip().rpartition("\n")[2]):
        try:
            printed = answer(candidate)
        except ValueError:
            continue
        return printed if isinstance(printed, dict) else None
    return None


def mapping(value: Any) -> Json:
    """An object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A list, an empty one for anything else."""
    return list(value) if isinstance(value, list | tuple) else []


def objects(value: Any) -> tuple[dict[str, Any], ...]:
    """The objects of a list."""
    return tuple(entry for entry in as_list(value) if isinstance(entry, dict))


def words(value: Any) -> str:
    """A string, or a number as one; "" for anything else."""
    if isinstance(value, str):
        return value
    return str(value) if _is_number(value) and abs(value) < BOUND else ""


def moment_of(value: object) -> datetime | None:
    """A time as our documents write it (`2026-11-28T05:15:00Z`); None for anything else."""
    try:
        return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None


def number(value: Any) -> float | None:
    """A number that is not negative; None for anything else."""
    return float(value) if _is_number(value) and 0 <= value < BOUND else None


def text(item: Json, key: str) -> str:
    """The string under a key, "" for anything else."""
    value = item.get(key)
    return value if isinstance(value, str) else ""


def texts(item: Json, key: str) -> tuple[str, ...]:
    """The strings of the list under a key."""
    return tuple(part for part in as_list(item.get(key)) if isinstance(part, str))


def whole_number(item: Json, key: str) -> int | None:
    """The whole number under a key that is not negative; None for anything else."""
    value = item.get(key)
    return value if type(value) is int and 0 <= value < BOUND else None


def part(item: Json, key: str) -> Json:
    """The object under a key, an empty one for anything else."""
    return mapping(item.get(key))


def parts(item: Json, key: str) -> tuple[dict[str, Any], ...]:
    """The objects of the list under a key."""
    return objects(item.get(key))


def int_of(value: Any) -> int:
    """A whole number, which may be negative; ValueError for anything else."""
    if type(value) is int and -BOUND < value < BOUND:
        return value
    raise ValueError(value)


def text_of(value: Any) -> str | None:
    """A text without blanks around it, None when it is empty; ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(value)
    return value.strip() or None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
