"""Tests between nodes for people: the plan before, and afterwards the odd ones first."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from nodedoctor.model import WORST_FIRST
from nodedoctor.nodeset import fold
from nodedoctor.pairs.methods import METHODS
from nodedoctor.report.inert import inert
from nodedoctor.wording import count_with_noun

_WORD = {"pass": "PASS", "warn": "WARN", "fail": "FAIL", "unknown": "UNKN", "skip": "SKIP"}
EVIDENCE = 3
"""Measurements shown under a finding."""


def plan(doc: Mapping[str, Any]) -> str:
    """What will be done and how long it takes, in three lines."""
    rounds, again = doc["rounds"], doc["rounds_again"]
    pairs = f"{doc['pairs']} of {doc['of_pairs']} pairs"
    load = f"{count_with_noun(rounds, 'round')} of {doc['seconds_each']:g} s load"
    return (
        f"pairs: {doc['nodes']} nodes, mode {doc['mode']}, {pairs}, {METHODS[doc['what']].plan}\n"
        f"  {load}: {doc['expected_seconds'] / 60:.1f} minutes;"
        f" with {again} rounds for doubts {doc['longest_seconds'] / 60:.1f} at most\n"
        f"  load: the network between these nodes and a core or two on each; nothing is changed\n"
    )


def render(document: Mapping[str, Any], width: int = 100) -> str:
    """The whole document as lines."""
    lines: list[str] = []
    plan = document["plan"]

    def show(lead: str, text: str) -> None:
        lines.extend(
            textwrap.wrap(
                inert(text),
                width,
                initial_indent=lead,
                subsequent_indent=" " * len(lead),
                break_long_words=False,
            )
        )

    show(
        f"{_WORD[document['verdict']]} ",
        f"{plan['nodes']} nodes measured, {count_with_noun(plan['rounds_run'], 'round')} in "
        f"{document['seconds']:.0f} s",
    )
    if document["interrupted"]:
        show("     ", "interrupted: what was measured until then")
    for status in (status.value for status in WORST_FIRST):
        for finding in document["findings"]:
            if finding["status"] != status:
                continue
            check, subject = finding["id"].partition("@")[0], finding["subject"]
            show(f"{_WORD[status]} ", f"{check}{f' {subject}' if subject else ''}: {finding['summary']}")
            if status in ("pass", "skip"):
                continue
            for evidence in finding["evidence"][:EVIDENCE]:
                show("       ", evidence["text"])
            if fix := finding["fix"]:
                show("     fix  ", fix["text"])
                for step in fix["steps"]:
                    show("       $ ", step["command"] + (f"   ({step['when']})" if step["when"] else ""))
    if document["bisection"] and document["bisection"]["smallest"]:
        show("     smallest set that fails: ", fold(document["bisection"]["smallest"]))
    if document["seen_once"]:
        pairs = ", ".join(" - ".join(pair) for pair in document["seen_once"][:5])
        show("     ", f"odd once and not confirmed: {pairs}")
    if document["next"]:
        nodes = fold(sorted({name for pair in document["next"] for name in pair}))
        show("     ", f"measure next: {nodes} ({len(document['next'])} pairs)")
    if document["reference_gbps"] is not None:
        bounds = f"slow is below {document['slow_below']:.0%} of {document['reference_gbps']:.3g} Gb/s"
        lossy = (
            f", lossy above {document['lossy_above']:.2%} sent again"
            if plan["what"] in ("tcp", "rails")
            else ""
        )
        show("     ", bounds + lossy)
    for untried in document["untried"]:
        show("     ", untried)
    return "\n".join(lines) + "\n"
