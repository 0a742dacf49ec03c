"""What the screen of an acceptance says: a line for each rate and finding, and a page about each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.report.accept_page import HEADS, AcceptPage, RatePage, accept_page
from nodedoctor.tui.theme import LABEL, QUIET, STYLE, Para, Part, Row


def head(document: Mapping[str, Any]) -> list[tuple[Part, ...]]:
    """Two lines: the verdict, and what was measured."""
    page = accept_page(document)
    return [((page.status.word, STYLE[page.status]), (f"  {page.headline}", LABEL)), ((page.when, QUIET),)]


def rows(document: Mapping[str, Any]) -> list[Row]:
    """The rates, then what was found and what was not measured."""
    page = accept_page(document)
    rates = [
        Row(
            f"rate {rate.key}",
            rate.mark,
            STYLE[rate.status],
            rate.title,
            f"{_rate_figures(rate)}; {rate.why}",
        )
        for rate in page.rates
    ]
    return rates + [Row(f"list {title}", "", QUIET, title, "; ".join(lines)) for title, lines in page.lists]


def page(document: Mapping[str, Any], key: str) -> list[Para]:
    """Everything about a row."""
    acceptance = accept_page(document)
    kind, _, name = key.partition(" ")
    if kind == "rate":
        return [para for rate in acceptance.rates if rate.key == name for para in _rate_paras(rate)]
    return list(_list_paras(acceptance, name)) or [Para("nothing was measured")]


def name_of(key: str) -> str:
    """The name of a rate, as a journal keeps it."""
    return key.partition(" ")[2]


def _rate_figures(rate: RatePage) -> str:
    figures = [f"{name} {number}" for name, number in zip(HEADS, rate.figures, strict=True) if number != "-"]
    return ", ".join(figures).removeprefix(f"{HEADS[0]} ")


def _rate_paras(rate: RatePage) -> Iterator[Para]:
    yield Para(rate.why, f"{rate.mark}  " if rate.mark else "", lead_style=STYLE[rate.status])
    for name, number in zip(HEADS, rate.figures, strict=True):
        yield Para(number, f"{name:8}  ")
    for label, text in (("how", rate.circumstances), ("source", rate.floor_source)):
        if text:
            yield Para(text, f"{label:8}  ")


def _list_paras(acceptance: AcceptPage, name: str) -> Iterator[Para]:
    for title, lines in acceptance.lists:
        if title == name:
            yield Para(title, style=LABEL)
            yield from map(Para, lines)
