"""What every view says of a job's verdict, in the same words and order; the views only draw it.

The order is headline, decision, owner, who, the first command; then the sections: proof, ranks, timeline,
what to do, what it is not, what it may be, and what was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.grouping import group_by
from nodedoctor.json_shapes import Json, as_list, mapping, number, objects, text, texts, whole_number, words
from nodedoctor.knowledge.ownership import owner_word
from nodedoctor.model import Status
from nodedoctor.nodeset import fold
from nodedoctor.record import record
from nodedoctor.report import ranks
from nodedoctor.report.document import Fix
from nodedoctor.report.inert import inert
from nodedoctor.report.moments import Moment, moments
from nodedoctor.report.page import OWNER, Labelled, after_steps
from nodedoctor.report.ranks import is_span, ranges
from nodedoctor.report.saved import fix as fix_of
from nodedoctor.report.steps import StepText, advice, repair_steps
from nodedoctor.whole_numbers import spans
from nodedoctor.wording import capitalised, count_with_noun, decimal, first_few

CALM = ("clean", "recovered")
"""Outcomes without a failure."""
UNSURE = (*CALM, "nothing")
"""Outcomes that have no cause, and so no confidence in one."""
_STATUS = {"failure": Status.FAIL, "clean": Status.PASS, "recovered": Status.PASS}
_LINKS = (("nvlink4", "NVLink"), ("ib_400g", "400 Gb/s InfiniBand"), ("ethernet_10g", "10 GbE"))
"""The links whose times are shown: the fastest, the usual one between nodes, and a slow one."""
_MINUTE = len("11-21 08:00")


@record
class Quote:
    """A line of a log: its place, its rank, and what is said about it."""

    source: str
    line: int | None
    rank: str
    time: str
    text: str
    note: str = ""

    @property
    def place(self) -> str:
        """Its place, as `train.log:88`."""
        return f"{self.source}:{self.line}" if self.line else self.source


@record
class Pair:
    """A name and what is said of it."""

    name: str
    text: str


@record
class Advice:
    """What to do: prose, its steps, what comes behind them; `fix` is what it was made from."""

    text: str
    steps: tuple[StepText, ...]
    closing: tuple[Labelled, ...]
    fix: Fix | None


Entry = Quote | Pair | Advice


@record
class Section:
    """A part of the page: its name, its title, the word before each entry in a list, and the entries.

    What is not `short` is left out of a page of one screen.
    """

    name: str
    title: str
    word: str
    entries: tuple[Entry, ...]
    short: bool = True


@record
class JobPage:
    """A verdict as every view shows it, all inert; `seats` is what each rank was."""

    status: Status
    headline: str
    confidence: str
    opening: tuple[Labelled, ...]
    first: StepText | None
    sections: tuple[Section, ...]
    seats: tuple[ranks.Seat, ...]

    def section(self, name: str) -> Section:
        """A section by its name; an empty one where nothing is said."""
        nothing = Section(name, "", "", ())
        return next((section for section in self.sections if section.name == name), nothing)


def job_page(document: Json) -> JobPage:
    """The page of a `nodedoctor.triage/1` document, of any shape."""
    outcome, headline = text(document, "outcome"), inert(text(document, "headline"))
    sure = inert(text(document, "confidence"))
    fixes, then = (tuple(_advice_entries(document, key)) for key in ("fixes", "next"))
    first = next((s for entry in (*fixes, *then) for s in entry.steps if not s.last), None)
    seats = tuple(ranks.rank_marks(document))
    sections = (
        Section("proof", "Proof", "proof", tuple(_evidence_quotes(document))),
        Section("ranks", "Ranks", "who", tuple(_rank_pairs(document, seats))),
        Section("fix", "Fix", "fix", fixes),
        Section("next", "What would decide", "next", then),
        Section(
            "not", "What it is not", "not it", tuple(_read_pairs(document, "not_the_cause", "claim", "why"))
        ),
        Section(
            "maybe",
            "Less likely" if outcome == "failure" else "What it may be",
            "may be",
            tuple(_read_pairs(document, "alternatives", "cause", "why_less_likely")),
        ),
        Section("timeline", "Timeline", "when", tuple(map(_in_words, moments(document))), short=False),
        Section("collective", "The collective", "waits in", tuple(_collective_pairs(document)), short=False),
        Section("also", "Errors that decided nothing", "also", tuple(_also_seen(document)), short=False),
        Section("earlier", "Earlier runs in these logs", "before", tuple(_earlier_runs(document))),
        Section("jobs", "Jobs in these logs (--job ID picks one)", "job", tuple(_job_pairs(document))),
        Section("read", "Read", "read", tuple(Pair("", inert(line)) for line in _coverage_lines(document))),
    )
    return JobPage(
        _STATUS.get(outcome, Status.UNKNOWN),
        (headline[:1].upper() + headline[1:]) or "Nothing is said",
        f"{sure} confidence" if sure and outcome not in UNSURE else "",
        tuple(_opening_lines(document, first)),
        first,
        tuple(section for section in sections if section.entries),
        seats,
    )


def _opening_lines(document: Json, first: StepText | None) -> Iterator[Labelled]:
    """What comes right below the headline."""
    if chosen := text(document, "decision"):
        without = f" {fold(texts(document, 'exclude'))}" if document.get("exclude") else ""
        yield Labelled("decision", inert(f"{chosen}{without}, as {text(document, 'kind')}"))
    if text(document, "outcome") not in UNSURE:
        yield Labelled(OWNER, owner_word(text(document, "owner")))
    for role, key in (("who", "culprits"), ("one of", "parties")):
        if members := objects(document.get(key)):
            yield Labelled(role, inert(_rank_names(members)))
    if first:
        yield Labelled("first", f"$ {first.command}")
    if weighed := text(document, "weighed"):
        basis = weighed.removeprefix("Based on: ")
        yield Labelled("based on", capitalised(inert(basis)))


def _rank_names(members: Sequence[Json]) -> str:
    """`rank 37 on gpu-005, GPU 5, pid 4242`; of several on a host the ranks alone."""
    hosts = group_by(members, lambda who: (words(who.get("world")), words(who.get("host"))))
    return "; ".join(_host_ranks(world, host, members) for (world, host), members in hosts.items())


def _host_ranks(world: str, host: str, members: Sequence[Json]) -> str:
    numbers = sorted({rank for who in members if (rank := whole_number(who, "rank")) is not None})
    several = "s" if len(members) > 1 else ""
    world_name = "" if world in ("", "default") else f" of {world}"
    text_parts = [
        f"rank{several} {ranges(spans(numbers)) or 'not known'}{world_name}" + (f" on {host}" if host else "")
    ]
    if len(members) == 1:
        who = members[0]
        inner = words(who.get("group_rank"))
        text_parts += [
            f"{label} {words(who[key])}"
            for key, label in (("gpu", "GPU"), ("pid", "pid"))
            if who.get(key) is not None
        ]
        text_parts += [f"rank {inner} of its group"] if inner else []
    return ", ".join(text_parts)


def _evidence_quotes(document: Json) -> Iterator[Quote]:
    for item in objects(document.get("evidence")):
        yield _read_quote(item)


def _read_quote(item: Json, note: str = "") -> Quote:
    fields = (inert(words(item.get(key)).strip()) for key in ("source", "rank", "time", "text"))
    source, rank, time, quoted = fields
    return Quote(source, whole_number(item, "line"), rank, time, quoted, inert(note))


def _rank_pairs(document: Json, seats: Sequence[ranks.Seat]) -> Iterator[Pair]:
    """What the ranks of a live job do; of a dead one, where each was, in groups."""
    standings = objects(document.get("standings"))
    for standing in standings:
        hosts = texts(standing, "hosts")
        where = f" on {fold(hosts)}" if hosts else ""
        yield Pair(inert(f"{words(standing.get('who'))}{where}"), inert(words(standing.get("doing"))))
    rank_groups = [] if standings else ranks.groups(seats)
    if all(mark == ranks.UNKNOWN for mark, *_ in rank_groups):
        return  # that nothing is known of any rank tells nothing
    for group in rank_groups:
        name, _, meaning = ranks.in_words(group).partition(": ")
        yield Pair(name, meaning)


def _advice_entries(document: Json, key: str) -> Iterator[Advice]:
    for item in objects(document.get(key)):
        fix = fix_of(item)
        prose = advice(fix) if fix else words(item.get("text"))
        yield Advice(inert(prose), tuple(repair_steps(fix)), tuple(after_steps(fix)), fix)


def _read_pairs(document: Json, key: str, name: str, why: str) -> Iterator[Pair]:
    for item in objects(document.get(key)):
        yield Pair(inert(words(item.get(name))), inert(words(item.get(why))))


def _also_seen(document: Json) -> Iterator[Quote]:
    """Each error that decided nothing: its line, and what became of it with the reason."""
    for error in objects(document.get("also_seen")):
        count = whole_number(error, "count") or 1
        times = f" (first of {count} that are alike)" if count > 1 else ""
        yield _read_quote(error, f"{words(error.get('fate'))}: {words(error.get('reason'))}{times}")


def _collective_pairs(document: Json) -> Iterator[Pair]:
    """What was waited for: its size, and how long that takes on links of three speeds."""
    work = mapping(document.get("collective"))
    if not work:
        return
    seq, limit = whole_number(work, "seq"), number(work.get("timeout_seconds"))
    what = (words(work.get("op")) or "a collective") + (f" number {seq}" if seq is not None else "")
    what += f" of group {words(work.get('group'))}" if work.get("group") else ""
    yield Pair("operation", inert(what + (f", timeout {limit:g} s" if limit else "")))
    for label, key in (
        ("elements in", "numel_in"),
        ("elements out", "numel_out"),
        ("ranks", "implied_ranks"),
    ):
        if (count := whole_number(work, key)) is not None:
            yield Pair(label, f"{count:,}")
    sizes = mapping(work.get("bytes_by_dtype")).items()
    if volume := ", ".join(f"{_megabytes(count)} as {dtype}" for dtype, count in sizes):
        yield Pair("size", inert(volume))
    times = mapping(work.get("expected_seconds"))
    if durations := ", ".join(f"{duration(times[key])} over {name}" for key, name in _LINKS if key in times):
        can = work.get("size_can_explain_wait")
        verdict = {
            True: ": a slow link could explain the wait",
            False: ": its size does not explain the wait",
        }
        yield Pair("takes", inert(durations + (verdict[can] if isinstance(can, bool) else "")))


def _earlier_runs(document: Json) -> Iterator[Pair]:
    """Each run before the judged one: what it ended of, in a sentence, and its place in the logs."""
    for run in objects(document.get("earlier")):
        first = _read_quote(next(iter(objects(run.get("evidence"))), {}))
        calm = words(run.get("outcome")) in CALM
        where = f" ({first.place})" if first.place else ""
        name = "no failure" if calm else words(run.get("cause"))
        sentence = words(run.get("headline")).removeprefix("no failure: ")
        yield Pair(inert(name), inert(sentence + where))


def _job_pairs(document: Json) -> Iterator[Pair]:
    """Each job where there are several: its id, what is known of it, and whether it was judged."""
    jobs = objects(document.get("jobs"))
    for job in jobs if len(jobs) > 1 else ():
        hosts = [words(host) for host in as_list(job.get("hosts"))]
        count, first, last = words(job.get("world")), words(job.get("first")), words(job.get("last"))
        facts = (
            first_few(hosts, 4),
            f"{count} ranks" if count else "",
            f"{first[:_MINUTE]} to {last[:_MINUTE]}" if first and last else "",
            "no failure" if words(job.get("outcome")) in CALM else words(job.get("cause")),
            "judged here" if job.get("judged") is True else "",
        )
        yield Pair(inert(words(job.get("id"))), inert("; ".join(filter(None, facts))))


def _coverage_lines(document: Json) -> Iterator[str]:
    """What was read, and what of it could not be."""
    coverage = mapping(document.get("coverage"))
    if not coverage:
        return
    expected, count = whole_number(coverage, "ranks_expected"), len(as_list(coverage.get("ranks_seen")))
    before = earlier_failures(document)
    yield ", ".join(
        filter(
            None,
            (
                count_with_noun(whole_number(coverage, "files") or 0, "file"),
                f"{whole_number(coverage, 'bytes') or 0:,} bytes",
                f"{count} of {expected} ranks" if expected else "",
                f"{count_with_noun(before, 'earlier failure')} before this attempt" if before > 0 else "",
            ),
        )
    )
    if absent := missing(document):
        yield f"no line of rank{'' if absent.isdecimal() else 's'} {absent} was read"
    if unread := whole_number(document, "unread_lines"):
        yield f"{count_with_noun(unread, 'line or file', 'lines or files')} could not be opened"
    if count := sum(whole_number(error, "count") or 1 for error in objects(document.get("also_seen"))):
        yield f"{count_with_noun(count, 'error')} decided nothing (-v lists them with the reason)"
    yield from texts(coverage, "notes")


def earlier_failures(document: Json) -> int:
    """How many failures came before the judged run."""
    return (whole_number(document, "incidents") or 0) - (text(document, "outcome") not in UNSURE)


def missing(document: Json) -> str:
    """The ranks that nothing was read from, as `8-15, 17`."""
    coverage = mapping(document.get("coverage"))
    pairs = [pair for pair in as_list(coverage.get("ranks_missing_spans")) if is_span(pair)]
    pairs = pairs or spans(rank for rank in as_list(coverage.get("ranks_missing")) if isinstance(rank, int))
    return ranges(pairs[:32]) + (f" and {len(pairs) - 32} more ranges" if len(pairs) > 32 else "")


def _in_words(moment: Moment) -> Pair:
    until = f" until {moment.last}" if moment.last != moment.first else ""
    event = ranks.event_words(moment.event)
    return Pair(
        inert(moment.first or "at an unknown time"), inert(f"{moment.who or 'the job'}: {event}{until}")
    )


def duration(value: object) -> str:
    """A duration in the unit that reads best."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return words(value) or "not known"
    if value and value < 1e-6:
        return "under 1 µs"
    for bound, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if 0 < value < bound:
            return f"{decimal(value * factor, 3)} {unit}"
    return f"{decimal(value)} s"


def _megabytes(count: object) -> str:
    return f"{count / 1e6:,.1f} MB" if isinstance(count, int | float) else words(count)
