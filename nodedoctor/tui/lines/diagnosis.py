"""A job's verdict as rows and pages: who, the proof, when, what to do, what it is not."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from nodedoctor.json_shapes import Json, as_list, mapping, objects, whole_number, words
from nodedoctor.record import record, replace
from nodedoctor.report import ranks as marks
from nodedoctor.report.document import Step
from nodedoctor.report.inert import inert
from nodedoctor.report.job_page import Advice, Entry, JobPage, Pair, Quote, Section, missing
from nodedoctor.report.moments import moments
from nodedoctor.report.page import PROOF
from nodedoctor.report.steps import told_step
from nodedoctor.tui.lines import ranks
from nodedoctor.tui.lines.detail import lead_of
from nodedoctor.tui.lines.ticket import keyed, steps_of
from nodedoctor.tui.lines.timeline import timeline
from nodedoctor.tui.theme import DANGER, LABEL, QUIET, STYLE, Glyphs, Para, Part, Row
from nodedoctor.wording import count_with_noun

LONGEST_NAME = 32
_PROOF = 2
"""Lines of proof on the first page; the rows have all of them."""


@record
class Item:
    """One row of the screen, what there is to read about it, and what can be copied."""

    row: Row
    paras: tuple[Para, ...] = ()
    steps: tuple[Step, ...] = ()
    source: str = ""
    line: int | None = None


def head(document: Json, page: JobPage) -> list[tuple[Part, ...]]:
    """Two lines: what was read, and the verdict in words."""
    coverage = mapping(document.get("coverage"))
    present, expected = as_list(coverage.get("ranks_seen")), whole_number(coverage, "ranks_expected")
    parts = [count_with_noun(whole_number(coverage, "files") or 0, "file")]
    parts.append(f"{len(present)} of {expected} ranks" if expected else count_with_noun(len(present), "rank"))
    if absent := missing(document):
        parts.append(f"missing {absent}")
    incidents = document.get("incidents")
    if isinstance(incidents, int) and incidents > 1:
        parts.append(f"{incidents} incidents, the last shown")
    opening = [
        f"{part.label} {part.text.partition(', as ')[0]}"
        for part in page.opening
        if part.label in ("owner", "decision")
    ]
    summary = "   ".join(filter(None, (page.confidence, *reversed(opening))))
    return [
        (("triage", LABEL), (inert("   " + "   ".join(parts)), "")),
        ((page.status.word, STYLE[page.status]), (f"  {summary}", LABEL)),
    ]


def items(document: Json, page: JobPage, width: int, glyphs: Glyphs) -> list[Item]:
    """Everything the verdict says, in the order of every view, for a page of a width."""
    items = [_verdict_item(document, page, width, glyphs)]
    for section in page.sections:
        own = {"ranks": _rank_items, "timeline": _timeline_items}.get(section.name)
        items += (
            own(document, page.seats) if own else (_entry_item(section, entry) for entry in section.entries)
        )
    return [_keyed_item(item, number) for number, item in enumerate(items)]


def behind(page: JobPage) -> list[Para]:
    """What the steps are for: the verdict, and the lines of the logs that it rests on."""
    paras = [Para(page.headline, f"{page.status.word}  ", LABEL, STYLE[page.status])]
    for entry in page.section("proof").entries:
        paras += [Para(), *_entry_paras(entry)]
    return paras


def _verdict_item(document: Json, page: JobPage, width: int, glyphs: Glyphs) -> Item:
    """The verdict on one page: decision, who, the first command, the ranks, the proof, the steps."""
    style = STYLE[page.status]
    fixes = [e for name in ("fix", "next") for e in page.section(name).entries if isinstance(e, Advice)]
    steps = steps_of([entry.fix for entry in fixes])
    sure = f" ({page.confidence})" if page.confidence else ""
    paras = [Para(page.headline + sure, f"{page.status.word}  ", LABEL, style)]
    for part in page.opening:
        typed = "cyan" if part.label == "first" else ""
        paras.append(Para(part.text, lead_of(part.label), typed, verbatim=bool(typed)))
    paras += [Para(), *ranks.matrix(page.seats)]
    for group in marks.groups(page.seats):
        paras.append(Para(marks.in_words(group), f"{group[0]}  ", lead_style=ranks.style_of(group[0])))
    paras.append(Para())
    for number, quote in enumerate(page.section("proof").entries[:_PROOF]):
        if isinstance(quote, Quote):
            paras.append(Para(quote.text, lead_of("" if number else PROOF), verbatim=True, most=2))
    if lines := timeline(document, width, glyphs):
        paras += [Para(), *(Para(parts=line) for line in lines)]
    paras.append(Para())
    for key, step in keyed(steps).items():
        shown = told_step(step)
        if not shown.last:
            paras.append(Para(shown.command, f"{key} {shown.word:<7} $ ", "bold cyan", "cyan", verbatim=True))
            paras += [Para(shown.detail, " " * 12, QUIET)] if shown.detail else []
    paras += [Para(entry.text, lead_of("fix")) for entry in fixes]
    for name in ("not", "collective", "read"):
        section = page.section(name)
        paras += [Para()] if section.entries else []
        for entry in section.entries:
            if isinstance(entry, Pair):
                text = ": ".join(filter(None, (entry.name, entry.text)))
                paras.append(Para(text, lead_of(section.word), lead_style=QUIET))
    return Item(Row("", page.status.word, style, "", page.headline, body=LABEL), tuple(paras), steps)


def _entry_item(section: Section, entry: Entry) -> Item:
    if isinstance(entry, Quote):
        whose = (
            f"rank {entry.rank}  " if entry.rank and not entry.text.startswith(f"rank {entry.rank} ") else ""
        )
        text = entry.note or f"{whose}{entry.text}"
        quiet = QUIET if entry.note else LABEL
        row = Row("", section.word, quiet, _name_tail(entry.place), text)
        return Item(row, tuple(_entry_paras(entry)), (), entry.source, entry.line)
    if isinstance(entry, Advice):
        steps = tuple(entry.fix["steps"]) if entry.fix else ()
        action = entry.fix["action"] if entry.fix else ""
        return Item(Row("", section.word, "bold cyan", action, entry.text), tuple(_entry_paras(entry)), steps)
    return Item(Row("", section.word, QUIET, entry.name, entry.text), tuple(_entry_paras(entry)))


def _entry_paras(entry: Entry) -> Iterator[Para]:
    """All of an entry, for a page of its own."""
    if isinstance(entry, Quote):
        yield Para(entry.place, style=LABEL, verbatim=True)
        if label := "  ".join(filter(None, (entry.time, f"rank {entry.rank}" if entry.rank else ""))):
            yield Para(label)
        yield from (Para(), Para(entry.text, verbatim=True))
        yield from (Para(), Para(entry.note)) if entry.note else ()
    elif isinstance(entry, Advice):
        yield Para(entry.text)
        for step in entry.steps:
            if step.last:
                yield Para(step.heading, style="bold red")
            yield Para(step.command, "$ ", "bold cyan", "cyan", verbatim=True)
            if step.interrupts and not step.last:
                yield Para(f"interrupts {step.interrupts}", "  ", DANGER)
        yield from (Para(part.text, lead_of(part.label)) for part in entry.closing)
    else:
        yield from (Para(entry.name, style=LABEL),) if entry.name else ()
        yield Para(entry.text)


def _rank_items(document: Json, seats: Sequence[marks.Seat]) -> Iterator[Item]:
    """Where each rank was: where it began first, then who waited in what and who is missing."""
    for group in marks.groups(seats):
        mark, _, members = group
        style, text = ranks.style_of(mark), marks.in_words(group)
        paras = (Para(text, f"{mark}  ", LABEL, style), Para(), *ranks.matrix(marks.alone(seats, members)))
        yield Item(Row("", "who", style, "", text, body=style if mark in marks.GRAVE else ""), paras)
    for standing in objects(document.get("standings")):
        if not as_list(standing.get("ranks")):  # processes of which no rank is known
            text = inert(f"{words(standing.get('who'))}: {words(standing.get('doing'))}")
            yield Item(Row("", "who", LABEL, "", text), (Para(text),))


def _timeline_items(document: Json, seats: Sequence[marks.Seat]) -> Iterator[Item]:
    """What happened when; what many ranks report within seconds of each other is one row."""
    seats = sorted(seats, key=lambda seat: seat.rank)
    numbers = [seat.rank for seat in seats]
    for moment in moments(document):
        who = inert(moment.who or "the job")
        first, event = inert(moment.first or "no time"), inert(marks.event_words(moment.event))
        label = f"{moment.count} ranks" if moment.count > 1 and len(who) > LONGEST_NAME else who
        page = [Para(f"{who}: {event}", style=LABEL)]
        if moment.first:
            page.append(Para(first + (f" until {inert(moment.last)}" if moment.last != moment.first else "")))
        if moment.source:
            where = f"{moment.source}:{moment.line}" if moment.line else moment.source
            page.append(Para(inert(where), "first in  " if moment.count > 1 else "", verbatim=True))
        runs = (seats[bisect_left(numbers, a) : bisect_right(numbers, b)] for a, b in moment.ranks)
        members = [seat for run in runs for seat in run]
        if 1 < len(members) < len(seats):
            page += [Para(), *ranks.matrix(marks.alone(seats, members))]
        row = Row("", "when", QUIET, first, f"{label:<10} {event}")
        yield Item(row, tuple(page), (), moment.source, moment.line)


def _keyed_item(item: Item, number: int) -> Item:
    """With a key; the name before the text, because long names would leave no room for any text."""
    row = item.row
    text = "  ".join(filter(None, (row.name, row.text)))
    return replace(item, row=replace(row, key=str(number), name="", text=text))


def _name_tail(source: str) -> str:
    """The end of a file's name, where ranks and line numbers are."""
    name = source.rpartition("/")[2]
    return name if len(name) <= LONGEST_NAME else f"~{name[1 - LONGEST_NAME :]}"
