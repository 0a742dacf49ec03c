"""What tables there are, how large and how old: `nodedoctor list knowledge`."""

from __future__ import annotations

from datetime import date

from nodedoctor.knowledge.table import FOLDER, load
from nodedoctor.record import record


@record
class TableInfo:
    """One table. `rows` counts all sections, `unverified` the rows that were not checked against a source.

    `as_of` is the day its facts were looked up, like 2026-11-21.
    """

    name: str
    about: str
    as_of: str
    rows: int
    sections: dict[str, int]
    unverified: int
    bytes: int

    def age_days(self, today: date) -> int:
        """Days since its facts were looked up."""
        return (today - date.fromisoformat(self.as_of)).days


def tables() -> tuple[TableInfo, ...]:
    """Every table that ships, by name."""
    return tuple(_info(path.stem) for path in sorted(FOLDER.glob("*.json")))


def _info(name: str) -> TableInfo:
    document = load(name)
    sections = {key: value for key, value in document.items() if isinstance(value, list)}
    every = [row for section in sections.values() for row in section]
    return TableInfo(
        name=name,
        about=document["about"],
        as_of=document["as_of"],
        rows=len(every),
        sections={key: len(value) for key, value in sections.items()},
        unverified=sum(bool(row.get("unverified")) for row in every),
        bytes=(FOLDER / f"{name}.json").stat().st_size,
    )
