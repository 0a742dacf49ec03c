"""Reading JSON that a child printed: whatever stands in it, these give a value of the wanted shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nodedoctor.model import Observation

Document = Mapping[str, Any]


def document(seen: Observation) -> Document | None:
    """The object a child printed; None when there was no answer or it is no JSON object.

    What a start-up file of a foreign interpreter printed before it, on lines of its own, is passed over.
    """
    if not seen.answered:
        return None
    for candidate in (seen.text, seen.text.rstrip().rpartition("\n")[2]):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else None
    return None


def text(item: Document, key: str) -> str:
    """A string, "" for anything else."""
    value = item.get(key)
    return value if isinstance(value, str) else ""


def texts(item: Document, key: str) -> tuple[str, ...]:
    """The strings of a list."""
    value = item.get(key)
    return tuple(part for part in value if isinstance(part, str)) if isinstance(value, list | tuple) else ()


def whole(item: Document, key: str) -> int | None:
    """A number that is not negative; None for anything else."""
    value = item.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def part(item: Document, key: str) -> Document:
    """An object, an empty one for anything else."""
    value = item.get(key)
    return value if isinstance(value, dict) else {}


def parts(item: Document, key: str) -> tuple[Document, ...]:
    """The objects of a list."""
    value = item.get(key)
    return tuple(entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()
