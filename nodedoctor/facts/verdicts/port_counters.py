"""Counters of single ports: `ibqueryerrors` over a fabric, and `perfquery` of one port.

Formats: linux-rdma/rdma-core 17 to 60, infiniband-diags/ibqueryerrors.c (ports with counters above the tool's
thresholds) and perfquery.c (`Name:....value`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Verdict, make_verdict
from nodedoctor.knowledge.infiniband import Counter, counter_key, counters
from nodedoctor.patterns import regex
from nodedoctor.wording import comma_list, count_with_noun

ERRORS, COUNTERS = "ibqueryerrors", "perfquery"
ibqueryerrors = pasted(ERRORS, "The output of ibqueryerrors.")
perfquery = pasted(COUNTERS, "The output of perfquery.")
_of_fabric = partial(make_verdict, ERRORS, ERRORS)
_of_port = partial(make_verdict, COUNTERS, COUNTERS)

_NODE = regex(r"^Errors for (?:0x[\da-f]{1,16} )?\"(?P<name>[^\"\n]{1,100})\"", re.MULTILINE)
_PORT = regex(
    r"^[ \t]{1,8}GUID (?P<guid>0x[\da-f]{1,16}) port (?P<port>\d{1,3}|ALL): (?P<counts>\[[^\n]{5,600}\])",
    re.MULTILINE,
)
_COUNT = regex(r"\[(\w{3,60}) == (\d{1,20})")
_SUMMARY = regex(r"^## Summary: (?P<nodes>\d{1,9}) nodes? checked, (?P<bad>\d{1,9}) bad", re.MULTILINE)
_QUERIED = regex(r"^(?P<name>[A-Z]\w{3,60}):\.{2,60}(?P<value>\d{1,20})[ \t]*$", re.MULTILINE)
_HEAD = regex(r"^# Port (?:extended )?counters: (?P<port>[^\n(]{3,80})", re.MULTILINE)
_NEVER = ("portxmitwait",)
"""Counters that say nothing of errors: congestion grows on busy healthy fabrics."""


_DOWN = (counter_key("link_downed"), counter_key("LinkDownedCounter"))
"""How often the link went down: nothing else is as sure."""
_OF_LINK = frozenset((
    "symbolerror", "linkerrorrecovery", "linkdowned", "portrcverrors", "locallinkintegrityerrors",
    "excessivebufferoverrunerrors",
))  # fmt: skip
"""Counters of this port's own cable and transceiver; others tell of congestion, or of a link further on."""
_MAXIMUM = {
    "symbolerrorcounter": 0xFFFF,
    "portrcverrors": 0xFFFF,
    "portrcvremotephysicalerrors": 0xFFFF,
    "linkerrorrecoverycounter": 0xFF,
    "linkdownedcounter": 0xFF,
    "locallinkintegrityerrors": 0xF,
    "excessivebufferoverrunerrors": 0xF,
}
"""Where counters of errors stop (InfiniBand architecture, PortCounters): how many more there were is lost."""


def fabric(output: str) -> Iterator[Verdict]:
    """Each port that the tool names, as its counters are beyond the tool's thresholds."""
    nodes = [*_NODE.finditer(output)]
    for row in _PORT.finditer(output):
        counts = {name: value for name, value in _COUNT.findall(row["counts"]) if name.lower() not in _NEVER}
        if not counts or row["port"] == "ALL":
            continue
        name = next((node["name"] for node in reversed(nodes) if node.start() < row.start()), row["guid"])
        totals = comma_list(f"{counter} {value}" for counter, value in counts.items())
        words = f"{name} port {row['port']}: {totals} since the counters were cleared"
        yield _of_fabric("warn", words, f"errors:{row['guid']}/{row['port']}", row["counts"])
    if summary := _SUMMARY.search(output):
        words = f"{count_with_noun(int(summary['nodes']), 'node')} checked, {summary['bad']} with errors"
        yield _of_fabric("note" if int(summary["bad"]) else "pass", words, "fabric", summary[0])


def port(output: str) -> Iterator[Verdict]:
    """The totals of each port since an unknown time: a warning where a counter of its link is too high.

    Of two blocks of one port, plain and extended, the higher count of each counter.
    """
    heads = [*_HEAD.finditer(output)]
    ends = [*(head.start() for head in heads[1:]), len(output)]
    by_port: dict[str, dict[str, int]] = {}
    quotes: dict[str, str] = {}
    for head, end in zip(heads, ends, strict=False):
        where = head["port"].strip()
        counts = by_port.setdefault(where, {})
        for row in _QUERIED.finditer(output, head.end(), end):
            counts[row["name"]] = max(int(row["value"]), counts.get(row["name"], 0))
        quotes.setdefault(where, head[0])
    rated = _rated_counters()
    for where, counts in by_port.items():
        many = exceeded_counters(counts)
        if many:
            first = sorted(many, key=lambda name: counter_key(name) not in _DOWN)
            summary = f"{comma_list(many[name] for name in first)}; since the counters were cleared"
        elif any(counter_key(name) in rated for name in counts):
            summary = "no counter of errors is beyond what ibqueryerrors accepts"
        elif counts:
            yield _of_port(
                "unknown", f"{where}: no counter of errors is shown", f"counters:{where}", quotes[where]
            )
            continue
        else:
            continue
        full = [f"{name} {value}" for name, value in counts.items() if value == _MAXIMUM.get(name.lower())]
        if full:
            summary += f"; {comma_list(full)} is as high as it counts"
        of_link = any(counter_key(name) in _OF_LINK for name in many)
        yield _of_port(
            "warn" if of_link else "note", f"{where}: {summary}", f"counters:{where}", quotes[where]
        )


def _rated_counters() -> dict[str, Counter]:
    """The counters of errors, by key: those for which ibqueryerrors has a threshold."""
    rows = {counter_key(row.counter): row for row in counters() if row.ibqueryerrors}
    return {key: row for key, row in rows.items() if key not in _NEVER}


def exceeded_counters(counts: Mapping[str, int]) -> dict[str, str]:
    """The counters that ibqueryerrors would print, each with its value in words."""
    rated = _rated_counters()
    return {
        name: f"{name} {count}"
        for name, count in counts.items()
        if (row := rated.get(counter_key(name))) and row.is_reported(count)
    }
