"""The tables of ibdiagnet: what it warns of, counters that grew while it ran, and what ports have counted.

Format: ibdiagnet2.db_csv of MLNX_OFED 4 to 24 and UFM: `START_X`, a header, rows, `END_X`. Tables of errors
and warnings: `ERRORS_STAGE` and `WARNINGS_STAGE` with Scope, NodeGUID, PortGUID, PortNumber, EventName and
Summary.
Names of counters: PM_INFO and PM_DELTA, as in InfiniBand Architecture 1.6, chapter 16 (PortCounters).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from functools import partial

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Result, Verdict, make_verdict
from nodedoctor.knowledge.infiniband import Counter, counter_key, counters
from nodedoctor.patterns import regex
from nodedoctor.wording import comma_list, count_with_noun

PROBE = "ibdiagnet-csv"
ibdiagnet_csv = pasted(PROBE, "ibdiagnet2.db_csv.")
_fabric_verdict = partial(make_verdict, PROBE, "ibdiagnet")

_TABLE = regex(
    r"^START_(?P<name>[A-Z0-9_()]{2,60})[ \t]*\n(?P<rows>(?:(?!END_|START_)[^\n]*\n){1,200000})", re.M
)
_MOST = 5
"""Ports that are named; ours."""
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,16}|[1-9]\d{0,18}")
_GREW = regex(r"COUNTER_INCREASED|COUNTERS?_DIFF")
_OF_LINK = regex(r"BER_\w{0,30}(?:EXCEED|EXCESSIVE)|DEGRADATION|DOWNGRADE")
"""Warnings of a link that is worse than it must be; others are of firmware, or of what was not answered."""

Row = Mapping[str, str]


def verdicts(output: str) -> Iterator[Verdict]:
    """Errors and growing counters as warnings, as none is known to be of this node; totals as notes."""
    tables = {match["name"]: match["rows"] for match in _TABLE.finditer(output)}
    nodes = _parse_rows(tables.get("NODES", ""))
    names = {row["nodeguid"]: row["nodedesc"] for row in nodes if "nodedesc" in row}
    for name, rows in tables.items():
        if name.startswith(("ERRORS_", "WARNINGS_")):
            yield from _event_verdicts(name, _parse_rows(rows), names)
    for row in _parse_rows(tables.get("PM_DELTA", "")):
        if growth := _grown_counters(row):
            words = f"{comma_list(growth)} at {_port_label(row, names)} while it ran"
            yield _fabric_verdict("warn", words, f"growth:{_port_key(row)}", row["nodeguid"])
    ports = _parse_rows(tables.get("PM_INFO", ""))
    yield from _link_down_verdicts(ports, names)
    downs = sum(bool(_counter_value(row, "linkdowned")) for row in ports)
    size = f"{count_with_noun(len(names), 'node')}, {count_with_noun(len(ports), 'port')} with counters"
    yield _fabric_verdict("note", f"{size}{f', the links of {downs} went down' if ports else ''}", "fabric")


def _event_verdicts(table: str, rows: list[Row], names: Mapping[str, str]) -> Iterator[Verdict]:
    """What one stage summary, each kind of event once with the ports that it is of."""
    severity, _, stage = table.partition("_")
    events: dict[tuple[str, Result], list[Row]] = {}
    for row in rows:
        event = row.get("eventname", "")
        events.setdefault((event, _event_result(severity, event, row.get("summary", ""))), []).append(row)
    for (event, result), same in events.items():
        places = list(dict.fromkeys(_port_label(row, names) for row in same))
        summary = same[0].get("summary", "")
        where = f"{comma_list(places, _MOST)} ({stage.replace('_', ' ').lower()})"
        words = f"{event or 'an entry'} at {where}: {summary}".rstrip(" :")
        yield _fabric_verdict(result, words, f"stage:{stage.lower()}/{event.lower()}/{result}", event)


def _event_result(severity: str, event: str, summary: str) -> Result:
    if severity == "ERRORS" or _OF_LINK.search(event):
        return "warn"
    if not _GREW.search(event):
        return "note"
    words = {counter_key(word) for word in re.findall(r"\w+", summary)}
    return (
        "warn"
        if any(counter_key(row.counter) in words and row.limit_unit for row in _with_limit())
        else "note"
    )


def _grown_counters(row: Row) -> list[str]:
    """Counters that grew beyond what they may, or, as no time is known, beyond what ibqueryerrors prints."""
    counts = ((item, _counter_value(row, counter_key(item.counter))) for item in _with_limit())
    return [
        f"{item.counter} rose by {count}"
        for item, count in counts
        if count and (item.limit_unit == "growth" or item.is_reported(count))
    ]


def _with_limit() -> list[Counter]:
    """Counters whose growth means trouble. PAM4 lanes make symbol errors, and correct them."""
    return [row for row in counters() if row.limit is not None and row.counter != "symbol_error"]


def _link_down_verdicts(ports: list[Row], names: Mapping[str, str]) -> Iterator[Verdict]:
    """The ports whose links went down most often: since they were last cleared, at an unknown time."""
    downs = [(count, row) for row in ports if (count := _counter_value(row, "linkdowned"))]
    for count, row in sorted(downs, key=lambda entry: -entry[0])[:_MOST]:
        times = count_with_noun(count, "time")
        words = f"{_port_label(row, names)}: its link went down {times} since the counters were cleared"
        yield _fabric_verdict("note", words, f"port:{_port_key(row)}", row["nodeguid"])


def _parse_rows(table: str) -> list[Row]:
    """The rows of a table by the names of its columns in small letters, which differ in their case."""
    lines = csv.reader(table.splitlines(), skipinitialspace=True)
    header = [name.strip().lower() for name in next(lines, [])]
    if not {"nodeguid"} <= set(header):
        return []
    rows = (dict(zip(header, map(str.strip, line), strict=False)) for line in lines if line)
    return [row for row in rows if "nodeguid" in row]


def _counter_value(row: Row, plain: str) -> int:
    """What a port counted; the extended counter does not stop at 255."""
    counts = (value for name, value in row.items() if counter_key(name) == plain)
    return max((int(count, 0) for count in counts if _NUMBER.fullmatch(count)), default=0)


def _port_label(row: Row, names: Mapping[str, str]) -> str:
    guid, number = row["nodeguid"], row.get("portnumber") or row.get("portnum") or ""
    name = names.get(guid, guid)
    return f"{name} port {number}" if number.strip("0") else name or "the fabric"


def _port_key(row: Row) -> str:
    return f"{row['nodeguid']}/{row.get('portnumber') or row.get('portnum') or '?'}"
