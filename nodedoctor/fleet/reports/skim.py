"""A report out of whatever is around it, and of ten thousand reports only what a fleet compares.

Parsing all of a report of eight GPUs takes 3 ms, half a minute for ten thousand. report/json.py gives every
result and fact a line of its own, so that those not asked for can be passed over without parsing them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from itertools import islice
from typing import Any

from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import first_of, loaded
from nodedoctor.record import record
from nodedoctor.report.document import SCHEMA

_START = re.compile(r'\{\s*"schema"\s*:\s*"(nodedoctor\.[a-z]+/[0-9]+)"')
_GOOD_STATUSES = frozenset({"pass", "skip"})
_CHECK_IS = ' {"check":"'
_STATUS = '","status":"'
_RESULTS, _PROBES, _FACTS, _END = '\n"results": [\n', '\n"probes": [', '\n"facts": {\n', "\n}}"
_CHECK = re.compile(r'\{"check": ?"([^"\\]+)"')
_KEY = re.compile(r'^"([a-z_]+)":', re.M)
_LINKS, _PEERS = '"nvlinks":[', '"peers":['
_REMEMBERED = 256  # texts whose meaning is kept
_TRIES = 5  # beginnings of documents that are looked at in one text


class NoReport(NodeDoctorError):
    """Why a text holds no report, in one line."""


@record
class Skimmed:
    """A report as far as it was wanted. `well` are results that were passed over: their checks and statuses.

    `before` and `after` are how many lines, empty ones apart, were around it.
    """

    document: dict[str, Any]
    well: dict[str, str]
    before: int = 0
    after: int = 0


def skim(text: str, facts: Collection[str]) -> Skimmed:
    """The report in a text, with at least these facts; NoReport when there is none."""
    starts: list[re.Match[str]] = []
    for start in islice(_START.finditer(text), _TRIES):
        starts.append(start)
        if start[1] != SCHEMA:
            continue
        begin = start.start()
        if report_parts := _by_lines(text, begin, facts) or _whole_document(text, begin):
            document, statuses, end = report_parts
            return Skimmed(document, statuses, _count_lines(text[:begin]), _count_lines(text[end:]))
    begin = len(text) - len(text.lstrip())
    if not starts and (report_parts := _whole_document(text, begin)):  # the schema need not come first
        document, _, end = report_parts
        if document.get("schema") == SCHEMA:
            return Skimmed(document, {}, 0, _count_lines(text[end:]))
        raise NoReport(f"JSON, but not a report: it does not say {SCHEMA}")
    raise NoReport(_missing_reason(text, starts))


def find_document(text: str, schema: str) -> dict[str, Any]:
    """The document of another schema in a text, or an empty one."""
    for start in islice(_START.finditer(text), _TRIES):
        if start[1] == schema:
            try:
                return dict(first_of(text, start.start())[0])
            except ValueError:
                continue
    return {}


Found = tuple[dict[str, Any], dict[str, str], int]
"""Document, results passed over, and where the document ends."""


def _by_lines(text: str, begin: int, facts: Collection[str]) -> Found | None:
    """The report if it is laid out as we do it, None for any other layout and for a damaged one."""
    places, place = [], begin
    for mark in (_RESULTS, _PROBES, _FACTS, _END):
        place = text.find(mark, place)
        if place < 0:
            return None
        places.append(place)
    results, probes, first, end = places
    try:
        document: dict[str, Any] = loaded(f"{text[begin:results].rstrip().rstrip(',')}}}")
        entries, statuses = _read_results(text[results + len(_RESULTS) : probes])
        document["results"] = entries
        document["facts"] = _read_facts(text[first + len(_FACTS) : end], facts)
    except ValueError:
        return None
    return document, statuses, end + len(_END)


def _read_results(block: str) -> tuple[list[Any], dict[str, str]]:
    """Results that are not well, parsed; of the others check and status."""
    entries, statuses = [], {}
    begin = len(_CHECK_IS)
    for line in block.removesuffix("\n],").split("\n"):
        # Quotes inside of strings are escaped, so these are the keys of the result itself.
        status = line.partition(_STATUS)[2].partition('"')[0]
        if status in _GOOD_STATUSES and line.startswith(_CHECK_IS):
            statuses[line[begin : line.index('"', begin)]] = status
        else:
            entries.append(loaded(line.rstrip(",")))
    return entries, statuses


def _read_facts(block: str, wanted: Collection[str]) -> dict[str, Any]:
    facts = {}
    for line in block.split("\n"):
        mark = line.index('": ', 2)
        if (name := line[2:mark]) in wanted:
            text = line[mark + 3 :].rstrip(",")
            facts[name] = _read_gpus(text) if name == "gpus" else _parse_cached(text)
    return facts


def _read_gpus(text: str) -> Any:
    """The largest fact. Half of it are lists of NVLinks, most of which read the same: those are parsed once.

    Which GPU reaches which peer is left out.
    """
    text, _ = _take_lists(text, _PEERS)
    text, links = _take_lists(text, _LINKS)
    fact = loaded(text)
    gpus = fact.get("gpus") if isinstance(fact, dict) else None
    for gpu in gpus if isinstance(gpus, list) else ():
        match gpu:
            case {"nvlinks": [int(number)]} if 0 <= number < len(links):
                gpu["nvlinks"] = _parse_cached(f"[{links[number]}]")
    return fact


def _take_lists(text: str, key: str) -> tuple[str, list[str]]:
    """Text with the lists of a key taken out, each replaced by its number, and what was inside of them.

    Only lists without lists in them are; no string looks like a key, as a quote inside of it is escaped.
    """
    first, *others = text.split(key)
    pieces, contents = [first], []
    for number, tail in enumerate(others):
        inside, _, rest = tail.partition("]")
        if "[" in inside:
            return text, []
        pieces.append(f"{key}{number}]{rest}")
        contents.append(inside)
    return "".join(pieces), contents


@lru_cache(maxsize=_REMEMBERED)
def _parse_cached(text: str) -> Any:
    """What JSON means; much reads the same on all nodes of a fleet. What it returns must not be changed."""
    return loaded(text)


def _whole_document(text: str, begin: int) -> Found | None:
    try:
        document, end = first_of(text, begin)
    except ValueError:
        return None
    return (document, {}, end) if isinstance(document, dict) else None


def _count_lines(around: str) -> int:
    return sum(1 for line in around.split("\n") if line.strip())


def _missing_reason(text: str, starts: list[re.Match[str]]) -> str:
    """Why there is no report in this text, as precisely as it is known."""
    if not text.strip():
        return "the answer is empty"
    ours = next((start for start in starts if start[1] == SCHEMA), None)
    if ours is None and starts:
        return f"it is {starts[0][1]}, and only {SCHEMA} can be read"
    if ours is None:
        first = next(line for line in text.split("\n") if line.strip())
        return f"not a report; it begins {first.strip()[:60]!r}"
    size = len(text.encode("utf-8", "replace"))
    if text.rstrip().endswith("}"):
        return f"damaged: the report of {size} bytes is no valid JSON"
    return f"cut off after {size} bytes, in the middle of {_last_part(text[ours.start() :])}"


def _last_part(text: str) -> str:
    """What of a report its last bytes tell about."""
    key = next((match[1] for match in reversed(list(_KEY.finditer(text)))), "the report")
    check = next((match[1] for match in reversed(list(_CHECK.finditer(text)))), "")
    return f"the result of {check}" if key == "results" and check else key
