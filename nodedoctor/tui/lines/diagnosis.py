"""A triage document as rows and pages: who, why, what it is not, when, what to do."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.json_shapes import Json, as_list, mapping, number, objects, whole_number, words
from nodedoctor.record import record
from nodedoctor.report import triage_view
from nodedoctor.report.document import Step
from nodedoctor.report.inert import inert
from nodedoctor.report.saved import fix as fix_of
from nodedoctor.report.steps import advice, told_step
from nodedoctor.tui.lines import ranks
from nodedoctor.tui.lines.ticket import keyed, steps_of
from nodedoctor.tui.lines.timeline import timeline
from nodedoctor.tui.theme import LABEL, QUIET, Glyphs, Para, Part, Row
from nodedoctor.wording import count_with_noun

OUTCOME = {
    "failure": ("FAIL", "bold red"),
    "undetermined": ("UNKN", "bold magenta"),
    "clean": ("PASS", "green"),
    "recovered": ("PASS", "green"),
    "nothing": ("UNKN", "bold magenta"),
}
LONGEST_NAME = 32
NOT_KNOWN = "UNDETERMINED"
"""The owner of a cause of which it is not known who has to act."""
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
    seen, expected = as_list(coverage.get("ranks_seen")), whole_number(coverage, "ranks_expected")
    parts = [count_with_noun(whole_number(coverage, "files") or 0, "file")]
    parts.append(f"{len(seen)} of {expected} ranks" if expected else count_with_noun(len(seen), "rank"))
    if absent := triage_view.missing(document):
        parts.append(f"missing {absent}")
    incidents = document.get("incidents")
    if isinstance(incidents, int) and incidents > 1:
        parts.append(f"{incidents} incidents, the last shown")
    word, style = outcome(document)
    cause = words(document.get("cause")) or "undetermined"
    if document.get("outcome") in triage_view.UNSURE:
        cause, level, move = ("no failure" if cause == "none" else cause), "", ""
    else:
        level, move = words(document.get("confidence")), words(document.get("owner"))
    sure = f"   sure: {level}" if level else ""
    owner = f"   who acts: {move}" if move not in ("", NOT_KNOWN) else ""
    return [
        (("triage", LABEL), (inert("   " + "   ".join(parts)), "")),
        ((word, style), (inert(f"  {cause}{sure}{owner}"), LABEL)),
    ]


def entries(document: Json, width: int, glyphs: Glyphs) -> list[Entry]:
    """Everything the document says, in the order a person asks, for a page of a width."""
    made = [
        *_verdict(document, width, glyphs),
        *_ranks(document),
        *_evidence(document),
        *_advice(document, "fixes", "fix"),
        *_advice(document, "next", "next"),
        *_pairs("not", _values(document, "not_the_cause", "claim", "why")),
        *_pairs("or", _values(document, "alternatives", "cause", "why_less_likely")),
        *_pairs("also", triage_view.also_seen(document)),
        *_timeline(document),
        *_runs(document),
    ]
    return [_keyed(entry, number) for number, entry in enumerate(made)]


def behind(document: Json) -> list[Para]:
    """What the steps are for: the verdict, and the lines of the logs that it rests on."""
    word, style = outcome(document)
    paras = [Para(inert(words(document.get("headline"))), f"{word}  ", LABEL, style)]
    for entry in _evidence(document):
        paras += [Para(), *entry.paras]
    return paras


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
    headline = inert(words(document.get("headline")))
    fixes = [fix for key in ("fixes", "next") for item in objects(document.get(key)) if (fix := fix_of(item))]
    steps = steps_of(fixes)
    paras = [Para(headline, f"{word}  ", LABEL, style)]
    made = ranks.rank_marks(document)
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
        text = ": ".join(filter(None, (words(item.get("claim")), words(item.get("why")))))
        paras.append(Para(inert(text), f"{'not it':<9} ", lead_style=QUIET))
    if lost := triage_view.unread(document):
        paras.append(Para(f"{lost} lines or files could not be opened", f"{'unread':<9} "))
    for note in as_list(mapping(document.get("coverage")).get("notes")):
        paras.append(Para(inert(words(note)), f"{'read':<9} "))
    yield Entry(Row("", word, style, "", headline, body=LABEL), tuple(paras), steps)


def _collective(work: Any) -> Iterator[Para]:
    if not isinstance(work, dict):
        return
    group = f" of group {work['group']}" if work.get("group") else ""
    op, seq, limit = words(work.get("op")), whole_number(work, "seq"), number(work.get("timeout_seconds"))
    what = (op or "a collective") + (f" number {seq}" if seq is not None else "") + group
    yield Para(inert(what + (f", timeout {limit:g} s" if limit else "")), f"{'waits in':<9} ")
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
            hosts.setdefault((words(who.get("world")), words(who.get("host"))), []).append(who)
        for (world, host), found in hosts.items():
            numbers = spans(who.get("rank") for who in found) or "not known"
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
    seats = ranks.rank_marks(document)
    made = ranks.groups(seats)
    for mark, style, meaning, seated in made:
        if mark in ("X", "!"):
            continue
        text = f"{ranks.names(seated)}: {meaning}"
        paras = (Para(text, f"{mark}  ", LABEL, style), Para(), *ranks.matrix(ranks.alone(seats, seated)))
        yield Entry(Row("", "who", style, "", text, body=style if mark == "?" else ""), paras)
    for standing in objects(document.get("standings")):
        if not as_list(standing.get("ranks")):  # processes of which no rank is known
            text = inert(f"{words(standing.get('who'))}: {words(standing.get('doing'))}")
            yield Entry(Row("", "who", LABEL, "", text), (Para(text),))
    missing = triage_view.missing(document)
    if missing and all(mark != "?" for mark, *_ in made):
        yield Entry(Row("", "who", "bold yellow", missing, "no line of these was read"))


def _seat(found: Sequence[Json]) -> list[str]:
    if len(found) != 1:
        return []
    (who,) = found
    return [f"{key} {words(who[key])}" for key in ("gpu", "pid") if words(who.get(key))]


def _who(who: Json, role: str) -> Para:
    said = [f"rank {words(who.get('rank')) or 'not known'}", *_seat([who])]
    if inner := words(who.get("group_rank")):
        said.append(f"rank {inner} of its group")
    if host := words(who.get("host")):
        said.append(f"on {host}")
    return Para(inert("  ".join(said)), f"{role}  ")


def _evidence(document: Json) -> Iterator[Entry]:
    for item in objects(document.get("evidence")):
        source, line, text = (
            words(item.get("source")),
            whole_number(item, "line"),
            inert(words(item.get("text"))),
        )
        at = f":{line}" if line else ""
        rank = inert(f"rank {words(item.get('rank'))}") if words(item.get("rank")) else ""
        said = [part for part in (inert(words(item.get("time"))), rank) if part]
        paras = (
            Para(inert(f"{source}{at}"), style=LABEL, verbatim=True),
            *((Para("  ".join(said)),) if said else ()),
            Para(),
            Para(text, verbatim=True),
        )
        # What is read of a live process often begins with its rank.
        whole_text = text if not rank or text.startswith(f"{rank} ") else f"{rank}  {text}"
        row = Row("", "why", LABEL, inert(f"{_tail(source)}{at}"), whole_text)
        yield Entry(row, paras, (), source, line)


def _advice(document: Json, key: str, word: str) -> Iterator[Entry]:
    for item in objects(document.get(key)):
        fix = fix_of(item)
        steps = tuple(fix["steps"]) if fix else ()
        text = inert(words(item.get("text")))
        paras = [Para(inert(advice(fix)) if fix else text)]
        for step in map(told_step, steps):
            if step.last:
                paras.append(Para(step.heading, style="bold red"))
            paras.append(Para(step.command, "$ ", "bold cyan", "cyan", verbatim=True))
            if step.interrupts and not step.last:
                paras.append(Para(f"interrupts {step.interrupts}", "  ", "yellow"))
        for name in ("verify", "docs"):
            if item.get(name):
                paras.append(Para(inert(words(item[name])), f"{name:<9} "))
        yield Entry(Row("", word, "bold cyan", inert(words(item.get("action"))), text), tuple(paras), steps)


def _values(document: Json, key: str, title: str, reason: str) -> Iterator[tuple[str, str]]:
    for item in objects(document.get(key)):
        yield words(item.get(title)), words(item.get(reason))


def _pairs(word: str, pairs: Iterable[tuple[str, str]]) -> Iterator[Entry]:
    for title, reason in pairs:
        head, text = inert(title), inert(reason)
        yield Entry(Row("", word, QUIET, head, text), (Para(head, style=LABEL), Para(text)))


def _timeline(document: Json) -> Iterator[Entry]:
    """What happened when; what many ranks report within seconds of each other is one row."""
    seats = sorted(ranks.rank_marks(document), key=lambda seat: seat.rank)
    numbers = [seat.rank for seat in seats]
    for moment in triage_view.moments(document):
        who = inert(moment.who or "the job")
        first, event = inert(moment.first or "no time"), inert(moment.event.replace("_", " "))
        said = f"{moment.count} ranks" if moment.count > 1 and len(who) > LONGEST_NAME else who
        page = [Para(f"{who}: {event}", style=LABEL)]
        if moment.first:
            page.append(Para(first + (f" until {inert(moment.last)}" if moment.last != moment.first else "")))
        if moment.source:
            where = f"{moment.source}:{moment.line}" if moment.line else moment.source
            page.append(Para(inert(where), "first in  " if moment.count > 1 else "", verbatim=True))
        runs = (seats[bisect_left(numbers, a) : bisect_right(numbers, b)] for a, b in moment.ranks)
        members = [seat for run in runs for seat in run]
        if 1 < len(members) < len(seats):
            page += [Para(), *ranks.matrix(ranks.alone(seats, members))]
        row = Row("", "when", QUIET, first, f"{said:<10} {event}")
        yield Entry(row, tuple(page), (), moment.source, moment.line)


def _runs(document: Json) -> Iterator[Entry]:
    """Earlier runs in the same logs, and the other jobs."""
    for cause, headline, where in triage_view.earlier(document):
        title, text = inert(cause), inert(headline)
        paras = (Para(title, style=LABEL), Para(text), Para(inert(where), verbatim=True))
        yield Entry(Row("", "before", QUIET, title, text), paras)
    for name, known, judged in triage_view.jobs(document):
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
        return words(value) or "not known"
    for bound, factor, unit in ((1e-6, 1e6, "µs"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if value < bound:
            return f"under 1 {unit}" if bound == 1e-6 else f"{value * factor:.3g} {unit}"
    return f"{value:.3g} s"


def _megabytes(count: Any) -> str:
    return f"{count / 1e6:,.1f} MB" if isinstance(count, int | float) else words(count)
