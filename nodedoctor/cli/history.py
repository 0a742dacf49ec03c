"""`nodedoctor history`: what earlier runs on this node found, in their order, and how each rate went."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from nodedoctor import journal
from nodedoctor.cli import endings, headless
from nodedoctor.cli.console import Parser, complain, emit
from nodedoctor.cli.exit_codes import Exit
from nodedoctor.json_shapes import Json, number, part, parts, text
from nodedoctor.knowledge.floors import steady_share
from nodedoctor.report.inert import inert
from nodedoctor.wording import count_with_noun

BARS = "▁▂▃▄▅▆▇█"
SHOWN = 40
"""Runs of a rate that are plotted, the latest; ours."""


def main(words: list[str]) -> int:
    """Show the journal; 64 where there is none."""
    arguments = parser().parse_args(words)
    folder = journal.folder_of(arguments.journal)
    if not folder:
        return complain(f"which journal? --journal DIR or {journal.VARIABLE} names its directory")
    entries, problem = endings.run(headless.read_journal(folder))
    if problem:
        return complain(f"{folder}: {problem}")
    form = f"{json.dumps({'entries': entries}, indent=1)}\n" if arguments.json else render(entries)
    return Exit.OK if emit(form) else Exit.OUTPUT


def render(entries: Sequence[Json]) -> str:
    """The runs with their causes, causes that came back, and a plot of each rate."""
    lines = [*_run_lines(entries)]
    repeated = {cause: times for cause, times in journal.recurring_causes(entries).items() if len(times) > 1}
    if repeated:
        lines += ["", "Found more than once"]
        lines += [
            f"  {inert(cause)}: {len(times)} times, {times[0][:10]} to {times[-1][:10]}"
            for cause, times in repeated.items()
        ]
    plots = list(_rate_plots(entries))
    return "\n".join([*lines, *(["", "Rates, oldest run first"] if plots else []), *plots]) + "\n"


def _run_lines(entries: Sequence[Json]) -> Iterator[str]:
    """A line a run; runs that follow each other and say the same have one, with the time of the last."""
    latest = dict[str, Json]()
    runs = []
    for entry in entries:
        command = text(entry, "command")
        runs.append((f"{command:<6}  {_new_causes(latest.get(command), entry)}", text(entry, "time")))
        latest[command] = entry
    for shown, series in groupby(runs, lambda run: run[0]):
        times = [time for _, time in series]
        more = f"  {count_with_noun(len(times), 'run')} until {times[-1]}" if len(times) > 1 else ""
        yield inert(f"{times[0]}  {shown}{more}")


def _new_causes(before: Json | None, entry: Json) -> str:
    """The causes of a run, and what is new since the run before it."""
    causes = [text(cause, "id") for cause in parts(entry, "causes")]
    earlier = {text(cause, "id") for cause in parts(before, "causes")} if before is not None else set(causes)
    new = [f"{cause} (new)" if cause not in earlier else cause for cause in causes]
    changes = [
        f"{name} {text(entry, name)}"
        for name in ("driver", "kernel", "tool")
        if before is not None and text(before, name) != text(entry, name)
    ]
    if before is not None and text(before, "boot") != text(entry, "boot"):
        changes.insert(0, "rebooted")
    causes_shown = ", ".join(new) or "nothing found"
    changed = f"  [{', '.join(changes)}]" if changes else ""
    return f"{causes_shown}{changed}"


def _rate_plots(entries: Sequence[Json]) -> Iterator[str]:
    """Each rate over the runs, from half of its highest to the highest."""
    rates: dict[str, list[float]] = {}
    for entry in entries:
        for key in part(entry, "rates"):
            if (rate := number(part(entry, "rates").get(key))) is not None:
                rates.setdefault(key, []).append(rate)
    earlier = {key: journal.earlier_rates(_runs_with(entries, key)[:-1]).get(key) for key in rates}
    for key, values in rates.items():
        past = earlier[key]
        trend = past.trend(values[-1], steady_share(key)) if past else ""
        latest, highest = values[-SHOWN:], max(values)
        heights = (2 * rate / highest - 1 if highest else 0.0 for rate in latest)
        bars = "".join(BARS[max(0, round(7 * height))] for height in heights)
        words = (count_with_noun(len(values), "run"), trend)
        yield inert(
            f"  {bars}  {latest[-1]:g} now, {highest:g} at best, {', '.join(filter(None, words))}: {key}"
        )


def _runs_with(entries: Sequence[Json], key: str) -> list[Json]:
    return [entry for entry in entries if number(part(entry, "rates").get(key)) is not None]


def parser() -> Parser:
    """The parser of `nodedoctor history`."""
    parser = Parser(
        prog="nodedoctor history",
        description="What earlier runs on this node found, from the journal that --journal DIR keeps.",
    )
    parser.add_argument("--journal", default="", metavar="DIR", help="directory of the journal")
    parser.add_argument("--json", action="store_true", help="print the entries as one JSON document")
    return parser
