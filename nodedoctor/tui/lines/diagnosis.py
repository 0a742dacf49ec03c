"""A triage document as rows and pages: who, why, what it is not, when, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.json_shapes import Json, listed, mapping, objects, words
from nodedoctor.record import record
from nodedoctor.report import triaged
from nodedoctor.report.document import Step
from nodedoctor.report.inert import inert
from nodedoctor.report.saved import fix as fix_of
from nodedoctor.report.steps import told_step
from nodedoctor.tui.lines import ranks
from nodedoctor.tui.lines.ticket import keyed, steps_of
from nodedoctor.tui.lines.timeline import timeline
from nodedoctor.tui.look import LABEL, QUIET, Glyphs, Para, Part, Row

OUTCOME = {
    "failure": ("FAIL", "bold red"),
    "undetermined": ("UNKN", "bold magenta"),
    "clean": ("PASS", "green"),
    "recovered": ("PASS", "green"),
    "nothing": ("UNKN", "bold magenta"),
}
LONGEST_NAME = 32
_LINKS = (("nvlink4", "NVLink"), ("ib_400g", "400 Gb/s InfiniBand"), ("ethernet_10g", "10 GbE"))
"""The links whose times are shown: the fastest, the usual one between nodes, and a slow one."""


@record
class Entry:
    """One row of the screen, what there is to read about it, and what can be copied."""

    row: Row
    paras: tuple[Para, ...] = ()
    steps: tuple[Step, ...] = ()
    source: str = ""
    line: int | None = None


def outcome(document: Json) -> tuple[str, str]:
    """The word of the verdict and its style."""
    return OUTCOME.get(str(document.get("outcome")), ("UNKN", "bold magenta"))


def head(document: Json) -> list[tuple[Part, ...]]:
    """Two lines: what was read, and the verdict in words."""
    coverage = mapping(document.get("coverage"))
    seen, expected = listed(coverage.get("ranks_seen")), coverage.get("ranks_expected")
    parts = [f"{coverage.get('files', 0)} files"]
    parts.append(f"{len(seen)} of {expected} ranks" if expected else f"{len(seen)} ranks")
    if absent := triaged.missing(document):
        parts.append(f"missing {absent}")
    incidents = document.get("incidents")
    if isinstance(incidents, int) and incidents > 1:
        parts.append(f"{incidents} incidents, the last shown")
    word, style = outcome(document)
    sure = "" if document.get("outcome") in triaged.UNSURE else f"   sure: {document.get('confidence')}"
    owner = f"   who acts: {document['owner']}" if document.get("owner") else ""
    return [
        (("triage", LABEL), (inert("   " + "   ".join(parts)), "")),
        ((word, style), (inert(f"  {document.get('cause')}{sure}{owner}"), LABEL)),
    ]


def entries(document: Json, width: int, glyphs: Glyphs) -> list[Entry]:
    """Everything the document says, in the order a person asks, for a page of a width."""
    made = [
        *_verdict(document, width, glyphs),
        *_ranks(document),
        *_evidence(document),
        *_advice(document, "fixes", "fix"),
        *_advice(document, "next", "next"),
        *_pairs(document, "not_the_cause", "not", "claim", "why"),
        *_pairs(document, "alternatives", "or", "cause", "why_less_likely"),
        *_timeline(document),
        *_runs(document),
    ]
    return [_keyed(entry, number) for number, entry in enumerate(made)]


def spans(numbers: Any) -> str:
    """`0-7, 9, 12-15` of a list of ranks."""
    ranks = sorted({number for number in numbers if isinstance(number, int)}) if numbers else []
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    return ", ".join("-".join(map(str, part)) for part in parts)


def _verdict(document: Json, width: int, glyphs: Glyphs) -> Iterator[Entry]:
    """The verdict on one page: its sentence, the ranks, the timeline, the steps, why this, what it is not."""
    word, style = outcome(document)
    headline = inert(str(document.get("headline", "")))
    fixes = [fix for key in ("fixes", "next") for item in objects(document.get(key)) if (fix := fix_of(item))]
    steps = steps_of(fixes)
    paras = [Para(headline, f"{word}  ", LABEL, style)]
    made = ranks.seats(document)
    paras += [Para(), *ranks.matrix(made)]
    for mark, tone, meaning, members in ranks.groups(made):
        detail = ", ".join(sorted({seat.detail for seat in members if seat.detail}))
        text = f"{ranks.names(members)}: {meaning}{f' ({detail})' if detail else ''}"
        paras.append(Para(text, f"{mark}  ", lead_style=tone))
    if drawn := timeline(document, width, glyphs):
        paras += [Para(), *(Para(parts=line) for line in drawn)]
    paras.append(Para())
    for key, step in keyed(steps).items():
        said = told_step(step)
        if not said.last:
            paras.append(Para(said.command, f"{key} {said.word:<7} $ ", "bold cyan", "cyan", verbatim=True))
            paras += [Para(said.detail, " " * 12, QUIET)] if said.detail else []
    paras += [Para(inert(fix["text"]), f"{'do':<9} ") for fix in fixes]
    paras.append(Para())
    if weighed := inert(words(document.get("weighed"))):
        paras.append(Para(weighed, f"{'why this':<9} "))
    paras += _collective(document.get("collective"))
    for item in objects(document.get("not_the_cause")):
        text = f"{item.get('claim', '')}: {item.get('why', '')}"
        paras.append(Para(inert(text), f"{'not it':<9} ", lead_style=QUIET))
    if lost := triaged.unread(document):
        paras.append(Para(f"{lost} lines or files could not be opened", f"{'unread':<9} "))
    for note in listed(mapping(document.get("coverage")).get("notes")):
        paras.append(Para(inert(str(note)), f"{'read':<9} "))
    yield Entry(Row("", word, style, "", headline, body=LABEL), tuple(paras), steps)


def _collective(work: Any) -> Iterator[Para]:
    if not isinstance(work, dict):
        return
    group = f" of group {work['group']}" if work.get("group") else ""
    what = f"{work.get('op')} number {work.get('seq')}{group}"
    yield Para(inert(f"{what}, timeout {work.get('timeout_seconds')} s"), f"{'waits in':<9} ")
    sizes = (
        f"{_megabytes(count)} as {dtype}" for dtype, count in mapping(work.get("bytes_by_dtype")).items()
    )
    if text := ", ".join(sizes):
        yield Para(inert(text), f"{'size':<9} ")
    times = mapping(work.get("expected_seconds"))
    told = ", ".join(f"{_seconds(times[key])} over {name}" for key, name in _LINKS if key in times)
    if told:
        can = work.get("size_can_explain_wait")
        verdict = "" if can is None else f": its size {'could' if can else 'does not'} explain the wait"
        yield Para(inert(told + verdict), f"{'takes':<9} ")


def _ranks(document: Json) -> Iterator[Entry]:
    """Who is guilty, one line a host; then who waited in what and who is missing, a line a group."""
    groups = (
        (objects(document.get("culprits")), "look here", "bold red"),
        (objects(document.get("parties")), "one of these", "bold yellow"),
    )
    for members, role, style in groups:
        hosts: dict[tuple[str, str], list[Json]] = {}
        for who in members:
            hosts.setdefault((str(who.get("world") or ""), str(who.get("host") or "")), []).append(who)
        for (world, host), found in hosts.items():
            numbers = spans(who.get("rank") for who in found) or "?"
            place = [host, *_seat(found)] if host or len(found) == 1 else []
            world = "" if world in ("", "default") else f"{world} "
            row = Row(
                "",
                "who",
                style or LABEL,
                inert(f"rank {world}{numbers}"),
                inert("  ".join([role, *place])),
                body=style,
            )
            yield Entry(row, tuple(_who(who, role) for who in found))
    seats = ranks.seats(document)
    made = ranks.groups(seats)
    for mark, style, meaning, seated in made:
        if mark in ("X", "!"):
            continue
        text = f"{ranks.names(seated)}: {meaning}"
        paras = (Para(text, f"{mark}  ", LABEL, style), Para(), *ranks.matrix(ranks.alone(seats, seated)))
        yield Entry(Row("", "who", style, "", text, body=style if mark == "?" else ""), paras)
    missing = triaged.missing(document)
    if missing and all(mark != "?" for mark, *_ in made):
        yield Entry(Row("", "who", "bold yellow", missing, "nothing was read from these"))


def _seat(found: Sequence[Json]) -> list[str]:
    if len(found) != 1:
        return []
    (who,) = found
    return [f"{key} {who[key]}" for key in ("gpu", "pid") if who.get(key) is not None]


def _who(who: Json, role: str) -> Para:
    said = [f"rank {who.get('rank')}", *_seat([who])]
    if who.get("group_rank") is not None:
        said.append(f"rank {who['group_rank']} of its group")
    if who.get("host"):
        said.append(f"on {who['host']}")
    return Para(inert("  ".join(said)), f"{role}  ")


def _evidence(document: Json) -> Iterator[Entry]:
    for item in objects(document.get("evidence")):
        place = f"{_tail(str(item.get('source', '')))}:{item.get('line') or '?'}"
        text = inert(str(item.get("text", "")))
        rank = f"rank {item['rank']}  " if item.get("rank") is not None else ""
        paras = (
            Para(inert(f"{item.get('source')}:{item.get('line')}"), style=LABEL, verbatim=True),
            Para(inert("  ".join(filter(None, (str(item.get("time") or ""), rank))))),
            Para(),
            Para(text, verbatim=True),
        )
        line = item.get("line")
        number = line if isinstance(line, int) else None
        yield Entry(
            Row("", "why", LABEL, inert(place), rank + text), paras, (), str(item.get("source", "")), number
        )


def _advice(document: Json, key: str, word: str) -> Iterator[Entry]:
    for item in objects(document.get(key)):
        fix = fix_of(item)
        steps = tuple(fix["steps"]) if fix else ()
        text = inert(str(item.get("text", "")))
        paras = [Para(text)]
        for step in map(told_step, steps):
            if step.last:
                paras.append(Para(step.heading, style="bold red"))
            paras.append(Para(step.command, "$ ", "bold cyan", "cyan", verbatim=True))
        for name in ("disturbs", "verify", "docs"):
            if item.get(name):
                paras.append(Para(inert(str(item[name])), f"{name:<9} "))
        yield Entry(
            Row("", word, "bold cyan", inert(str(item.get("action") or "")), text), tuple(paras), steps
        )


def _pairs(document: Json, key: str, word: str, name: str, why: str) -> Iterator[Entry]:
    for item in objects(document.get(key)):
        title, text = inert(str(item.get(name, ""))), inert(str(item.get(why, "")))
        yield Entry(Row("", word, QUIET, title, text), (Para(title, style=LABEL), Para(text)))


def _timeline(document: Json) -> Iterator[Entry]:
    """What happened when; what many ranks did one after the other is one line."""
    groups: list[tuple[str, list[Json]]] = []
    for item in objects(document.get("timeline")):
        event = str(item.get("event", ""))
        if groups and groups[-1][0] == event:
            groups[-1][1].append(item)
        else:
            groups.append((event, [item]))
    for event, items in groups:
        told = spans(item.get("rank") for item in items)
        who = f"rank{'s'[: len(items) > 1]} {told}" if told else ""
        first, last = (inert(str(items[at].get("time") or "no time")) for at in (0, -1))
        text = f"{who:<10} {inert(event.replace('_', ' '))}"
        paras = [Para(inert(f"{item.get('time') or 'no time'}  rank {item.get('rank')}")) for item in items]
        until = f"until {last}" if last != first else ""
        page = (Para(text, style=LABEL), Para(until), *paras)
        yield Entry(Row("", "when", QUIET, first, text), page)


def _runs(document: Json) -> Iterator[Entry]:
    """Earlier runs in the same logs, and the other jobs."""
    for cause, headline, where in triaged.earlier(document):
        title, text = inert(cause), inert(headline)
        paras = (Para(title, style=LABEL), Para(text), Para(inert(where), verbatim=True))
        yield Entry(Row("", "before", QUIET, title, text), paras)
    for name, known, judged in triaged.jobs(document):
        title, text = inert(name), inert(known)
        style = LABEL if judged else QUIET
        how = "judged here" if judged else "nodedoctor triage --job ID judges it"
        yield Entry(Row("", "job", style, title, text), (Para(title, style=LABEL), Para(text), Para(how)))


def _keyed(entry: Entry, number: int) -> Entry:
    """With a key; the name before the text, because long names would leave no room for any text."""
    row = entry.row
    text = "  ".join(filter(None, (row.name, row.text)))
    return replace(entry, row=replace(row, key=str(number), name="", text=text))


def _tail(source: str) -> str:
    """The end of a file's name: ranks and line numbers stand there."""
    name = source.rpartition("/")[2]
    return name if len(name) <= LONGEST_NAME else f"~{name[1 - LONGEST_NAME :]}"


def _seconds(value: Any) -> str:
    """A duration in the unit that reads best."""
    if not isinstance(value, int | float):
        return str(value)
    for bound, factor, unit in ((1e-6, 1e6, "µs"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if value < bound:
            return f"under 1 {unit}" if bound == 1e-6 else f"{value * factor:.3g} {unit}"
    return f"{value:.3g} s"


def _megabytes(count: Any) -> str:
    return f"{count / 1e6:,.1f} MB" if isinstance(count, int | float) else str(count)
