"""All texts of a document: what is learned from them must be seen as it will be replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def every_text(value: Any, *, keys: bool = False) -> Iterator[str]:
    """Every text as it stands, and as JSON has it; with `keys` also the keys of objects."""
    if isinstance(value, str):
        yield value
        yield json.dumps(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if keys:
                yield str(key)
            yield from every_text(inner, keys=keys)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from every_text(inner, keys=keys)
