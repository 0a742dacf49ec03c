"""`nodedoctor list`, `explain` and `schema`: what there is, what a word means, what a document looks like."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from datetime import date
from importlib import resources
from typing import Any

from nodedoctor.cli.console import Parser, columns, complain, emit
from nodedoctor.cli.exit_codes import Exit
from nodedoctor.declare.registry import probes_of
from nodedoctor.engine.plugins import Catalogue, discover
from nodedoctor.errors import NodeDoctorError

FEW = 3
"""Outputs that the table of checks names; `--json` and `explain` have all of them."""
WIDTH = 100
"""Columns of a list at most; ours."""
SCHEMAS = (
    "accept",
    "compare",
    "fleet",
    "journal",
    "pairs",
    "rates",
    "read",
    "report",
    "run",
    "snapshot",
    "triage",
)


def main(words: list[str]) -> int:
    """Answer one of the three; returns the exit code."""
    arguments = parser().parse_args(words)
    run: Callable[[Any], int] = arguments.run
    return run(arguments)


def parser() -> Parser:
    """The parser of `nodedoctor list|explain|schema`."""
    parser = Parser(prog="nodedoctor")
    commands = parser.add_subparsers(required=True, parser_class=Parser)
    listing = commands.add_parser("list", help="list checks, facts, probes or knowledge")
    listing.add_argument("kind", choices=sorted(_LISTS))
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(run=_print_list)
    explaining = commands.add_parser(
        "explain", help="explain a check, an Xid, an environment variable or a cause"
    )
    explaining.add_argument("word", nargs="+", help="a check, an Xid (79), an environment variable, a cause")
    explaining.set_defaults(run=_print_explanation)
    schema = commands.add_parser("schema", help="the JSON Schema of a document")
    schema.add_argument("name", choices=SCHEMAS)
    schema.set_defaults(run=_print_schema)
    return parser


def _print_list(arguments: Any) -> int:
    try:
        rows = _LISTS[arguments.kind](discover())
    except NodeDoctorError as error:
        return complain(error)
    if arguments.json:
        text = json.dumps(rows, indent=1) + "\n"
    else:
        text = "".join(f"{line}\n" for line in _row_lines(arguments.kind, rows, min(columns(WIDTH), WIDTH)))
    return Exit.OK if emit(text) else Exit.OUTPUT


def _print_explanation(arguments: Any) -> int:
    from nodedoctor.cli.explain import explain

    word = " ".join(arguments.word)
    catalogue = discover()
    answer = explain(word, catalogue.checks.values(), catalogue.facts.values())
    if answer is None:
        return complain(f"unknown: {word!r}; see `nodedoctor list checks` and `list knowledge`")
    return Exit.OK if emit(f"{answer}\n") else Exit.OUTPUT


def _print_schema(arguments: Any) -> int:
    name = f"{arguments.name}.schema.json"
    text = (resources.files("nodedoctor.report") / "schemas" / name).read_text(encoding="utf-8")
    return Exit.OK if emit(text) else Exit.OUTPUT


def _check_rows(catalogue: Catalogue) -> list[dict[str, Any]]:
    from nodedoctor.knowledge.tested_hardware import missing_for, seen_on

    return [
        {
            "id": check.id,
            "stage": check.stage,
            "title": check.title,
            "tags": sorted(check.tags),
            "probes": sorted(probes_of(check)),
            "seen_on": [
                {"provenance": row.provenance, "hardware": row.hardware, "source": row.source}
                for row in seen_on(check.id)
            ],
            "missing": missing_for(check.id),
        }
        for _, check in sorted(catalogue.checks.items())
    ]


def _fact_rows(catalogue: Catalogue) -> list[dict[str, Any]]:
    return [
        {
            "name": fact.name,
            "about": fact.about,
            "sources": [source if isinstance(source, str) else source.__name__ for source in fact.sources],
        }
        for _, fact in sorted(catalogue.facts.items())
    ]


def _probe_rows(catalogue: Catalogue) -> list[dict[str, Any]]:
    return [
        {
            "name": probe.name,
            "about": probe.about,
            "runs": probe.plan is not None,
            "lane": probe.lane.value,
            "timeout_seconds": probe.timeout,
        }
        for _, probe in sorted(catalogue.probes.items())
    ]


def _knowledge_rows(_: Catalogue) -> list[dict[str, Any]]:
    from nodedoctor.knowledge.table import FOLDER, load

    tables = {path.stem: load(path.stem) for path in sorted(FOLDER.glob("*.json"))}
    return [
        {
            "name": name,
            "rows": sum(len(section) for section in table.values() if isinstance(section, list)),
            "as_of": table["as_of"],
            "age_days": (date.today() - date.fromisoformat(table["as_of"])).days,
            "about": table["about"],
        }
        for name, table in tables.items()
    ]


_LISTS: dict[str, Callable[[Catalogue], list[dict[str, Any]]]] = {
    "checks": _check_rows,
    "facts": _fact_rows,
    "probes": _probe_rows,
    "knowledge": _knowledge_rows,
}


def _row_lines(kind: str, rows: list[dict[str, Any]], width: int) -> Iterator[str]:
    """A row in columns, and what is longer in lines below it that end between words."""
    shown = [_TEXTS[kind](row) for row in rows]
    if not shown:
        return
    widths = [max(map(len, column)) for column in zip(*(cells for cells, _ in shown), strict=True)]
    for cells, texts in shown:
        head = "".join(cell.ljust(size + 2) for cell, size in zip(cells, widths, strict=True))
        indent = " " * (widths[0] + 2)
        first, *others = texts
        yield from _wrap_text(head, " " * len(head), first, width)
        for text in others:
            yield from _wrap_text(indent, indent + "  ", text, width)


def _wrap_text(lead: str, indent: str, text: str, width: int) -> list[str]:
    room = max(width, len(indent) + 20)
    lines = textwrap.wrap(
        text,
        room,
        initial_indent=lead,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [lead.rstrip()]


Shown = tuple[tuple[str, ...], tuple[str, ...]]
"""The columns of a row, and its texts."""


def _check_texts(row: dict[str, Any]) -> Shown:
    hardware = f"seen on {_hardware_text(row['seen_on'])}" if row["seen_on"] else ""
    missing = f"not seen yet: {row['missing']}" if row["missing"] else ""
    shown = filter(None, (hardware, missing))
    return (row["id"], row["stage"], row["title"]), (", ".join(row["tags"]), *shown)


def _fact_texts(row: dict[str, Any]) -> Shown:
    return (row["name"],), (row["about"], f"from {', '.join(row['sources'])}")


def _probe_texts(row: dict[str, Any]) -> Shown:
    source = "asked" if row["runs"] else "pasted only"
    return (row["name"], source, row["lane"], f"{row['timeout_seconds']:g} s"), (row["about"],)


def _table_texts(row: dict[str, Any]) -> Shown:
    return (row["name"], str(row["rows"]), row["as_of"], f"{row['age_days']} days"), (row["about"],)


_TEXTS: dict[str, Callable[[dict[str, Any]], Shown]] = {
    "checks": _check_texts,
    "facts": _fact_texts,
    "probes": _probe_texts,
    "knowledge": _table_texts,
}


def _hardware_text(rows: list[dict[str, Any]]) -> str:
    """On what a check was seen, in words: the first few."""
    names = list(dict.fromkeys(f"{row['hardware']} ({row['provenance']})" for row in rows))
    more = f", {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more
