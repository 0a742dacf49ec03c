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


def plan(told: Mapping[str, Any]) -> str:
    """What will be done and how long it takes, in three lines."""
    rounds, again = told["rounds"], told["rounds_again"]
    pairs = f"{told['pairs']} of {told['of_pairs']} pairs"
    load = f"{count_with_noun(rounds, 'round')} of {told['seconds_each']:g} s load"
    return (
        f"pairs: {told['nodes']} nodes, mode {told['mode']}, {pairs}, {METHODS[told['what']].plan}\n"
        f"  {load}: {told['expected_seconds'] / 60:.1f} minutes;"
        f" with {again} rounds for doubts {told['longest_seconds'] / 60:.1f} at most\n"
        f"  load: the network between these nodes and a core or two on each; nothing is changed\n"
    )


def render(told: Mapping[str, Any], width: int = 100) -> str:
    """The whole document as lines."""
    lines: list[str] = []
    made = told["plan"]

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
        f"{_WORD[told['verdict']]} ",
        f"{made['nodes']} nodes measured, {count_with_noun(made['rounds_run'], 'round')} in "
        f"{told['seconds']:.0f} s",
    )
    if told["interrupted"]:
        show("     ", "interrupted: what was measured until then")
    for status in (status.value for status in WORST_FIRST):
        for finding in told["findings"]:
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
    if told["bisection"] and told["bisection"]["smallest"]:
        show("     smallest set that fails: ", fold(told["bisection"]["smallest"]))
    if told["seen_once"]:
        pairs = ", ".join(" - ".join(one) for one in told["seen_once"][:5])
        show("     ", f"odd once and not confirmed: {pairs}")
    if told["next"]:
        nodes = fold(sorted({name for one in told["next"] for name in one}))
        show("     ", f"measure next: {nodes} ({len(told['next'])} pairs)")
    if told["reference_gbps"] is not None:
        bounds = f"slow is below {told['slow_below']:.0%} of {told['reference_gbps']:.3g} Gb/s"
        lossy = (
            f", lossy above {told['lossy_above']:.2%} sent again" if made["what"] in ("tcp", "rails") else ""
        )
        show("     ", bounds + lossy)
    for untried in told["untried"]:
        show("     ", untried)
    return "\n".join(lines) + "\n"
