"""A document of ours as one HTML file that needs nothing else: for a ticket, a phone, a printer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nodedoctor.report.saved import read

if TYPE_CHECKING:
    from nodedoctor.report.comparison import Comparison


def render(document: Mapping[str, Any]) -> str:
    """The page of one of our documents; ValueError for a kind that has none."""
    schema = str(document.get("schema", ""))
    for kind in ("node", "triage", "fleet", "pairs", "accept", "rates"):
        if schema.startswith(f"nodedoctor.{'report' if kind == 'node' else kind}/1"):
            page = import_module(f"{__name__}.{kind}")
            return str(page.render(read(document) if kind == "node" else document))
    raise ValueError(f"no page for a document of schema {schema[:80]!r}")


def render_comparison(comparison: Comparison, before: str, after: str) -> str:
    """The page of a comparison; `before` and `after` name the two sides."""
    from nodedoctor.report.html import comparison as page

    return page.render(comparison, before, after)
