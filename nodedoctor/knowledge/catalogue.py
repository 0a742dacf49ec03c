"""What tables there are, how large and how old: `nodedoctor list knowledge`."""

from __future__ import annotations

from nodedoctor.knowledge.table import FOLDER, load
from nodedoctor.record import record


@record
class TableInfo:
    """One table. `rows` counts those of all sections.

    `as_of` is the day its facts were looked up, like 2026-11-21.
    """

    name: str
    about: str
    as_of: str
    rows: int


def tables() -> tuple[TableInfo, ...]:
    """Every table that ships, by name."""
    return tuple(_info(path.stem) for path in sorted(FOLDER.glob("*.json")))


def _info(name: str) -> TableInfo:
    document = load(name)
    rows = sum(len(section) for section in document.values() if isinstance(section, list))
    return TableInfo(name, document["about"], document["as_of"], rows)
