"""What a fact of the node holds: its fields with types and units, as checks may ask for them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import get_args, get_type_hints

from nodedoctor.cli.explain_lines import label_lines, source_lines, text_lines, wrapped
from nodedoctor.declare.registry import Fact

_UNITS = {
    "_gib": "GiB",
    "_mib": "MiB",
    "_gbps": "Gb/s",
    "_mhz": "MHz",
    "_seconds": "seconds",
    "_ms": "ms",
    "_us": "microseconds",
    "_percent": "%",
    "_w": "W",
    "_c": "degrees Celsius",
}
"""Units by the end of a field's name, as the records of facts have them."""


def fact_lines(fact: Fact) -> Iterator[str]:
    """A fact with its fields, and the probes it is read from."""
    sources = [source if isinstance(source, str) else source.__name__ for source in fact.sources]
    yield f"{fact.name}: a fact of the node"
    yield from text_lines(fact.about)
    yield from _field_lines(fact.cls)
    yield ""
    yield from label_lines("Read from", ", ".join(sources))
    yield from source_lines(fact.cls.__module__)


def _field_lines(cls: type, shown: tuple[type, ...] = ()) -> Iterator[str]:
    """Each field of a fact with its type and unit, each property with what it says, then its parts."""
    types = get_type_hints(cls)
    names = [name for name in getattr(cls, "__slots__", ()) or types if name in types and name[:1] != "_"]
    yield ""
    yield f"Fields of {cls.__name__}"
    for name in names:
        unit = next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "")
        kind = types[name].__name__ if isinstance(types[name], type) else str(types[name])
        plain = re.sub(r"(?<![\w.])(?:[a-z_]+\.)+(?=\w)", "", kind).replace("NoneType", "None")
        yield from wrapped(f"  {name}: {plain}{f', in {unit}' if unit else ''}", "    ")
    for name, value in vars(cls).items():
        if isinstance(value, property) and value.__doc__ and name[:1] != "_":
            yield from wrapped(f"  {name}: {' '.join(value.__doc__.split(chr(10) * 2)[0].split())}", "    ")
    parts = dict.fromkeys(part for name in names for part in _records_in(types[name]))
    for part in parts:
        if part not in (cls, *shown):
            yield ""
            yield from text_lines(inspect.getdoc(part) or "", indent=0)
            yield from _field_lines(part, (cls, *shown, *parts))


def _records_in(kind: object) -> Iterator[type]:
    """The records of ours in a type: Gpu in `tuple[Gpu, ...]`."""
    if isinstance(kind, type) and kind.__module__.startswith("nodedoctor.facts") and get_type_hints(kind):
        yield kind
    for inner in get_args(kind):
        yield from _records_in(inner)
