"""The page about a row of the first screen: a cause as a card, a fold, or that all is well.

Of a card the first lines matter most: at 80x24 the headline is whole and a command to type is in view.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from textual.geometry import Size

from nodedoctor.model import Status
from nodedoctor.report.document import (
    Cause,
    Finding,
    Report,
    Result,
    Step,
    full_summary,
    is_blind,
    marked,
    worst,
)
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.report.lead import root, well, whose
from nodedoctor.report.steps import told_step
from nodedoctor.report.text import alike
from nodedoctor.tui.lines.detail import LONGEST, labelled, sentence
from nodedoctor.tui.lines.home import title_of
from nodedoctor.tui.lines.ticket import keyed, steps_of
from nodedoctor.tui.look import LABEL, QUIET, RUN, STYLE, Para
from nodedoctor.tui.state import State

_PROOF = 2
"""Lines of proof on the card where the steps fit below them, else one; enter shows all of it."""
_UNMEASURED = 6
"""Lines about what was not measured where all is well; what to do next stays in view."""
_AROUND = 13
"""Lines of that page beside those, with what to do next."""
_LOGGED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
_MEASURED = ("bandwidth", "collective", "compute", "deep")
"""Subjects of checks that put load on the node, and so run only when they are asked for."""


def card(report: Report, cause: Cause, *, titled: bool = True, room: Size | None = None) -> list[Para]:
    """A cause: headline, whose move it is, what it does to training, the proof, the steps, what follows.

    Not `titled` where the row above it says the headline whole. What is in view of a page of the size `room`
    ends with a whole step; the others are below.
    """
    status = Status(cause["status"])
    preview = " (preview)" if cause.get("preview") else ""
    title = Para(inert(cause["headline"]) + preview, f"{status.word}  ", LABEL, STYLE[status])
    found = root(report, cause)
    if found is None:
        return [title, labelled("who acts", whose(cause)), *_follows(report, cause)]
    check, finding, why = found
    said = inert(full_summary(finding))
    text = check if said.lower() in cause["headline"].lower() else f"{check}: {said}"
    first = (f"{status.word}  ", STYLE[status]) if not titled else (" " * (len(status.word) + 2), LABEL)
    paras = [title] if titled else []
    paras.append(Para(text, first[0], lead_style=first[1], most=2))
    paras.append(Para(inert(whose(cause)), f"{'who acts':<9} ", most=2))
    if why:
        paras.append(Para(inert(why), f"{'training':<9} ", most=2))
    if logged := _logged(report, cause):
        paras.append(labelled("logged", logged))
    known = keyed(steps_of([finding["fix"]]))
    for most in (_PROOF, 1):
        proof = list(_proof(finding, room, most))
        taken = [*proof, *_steps(known, None, ())]
        if room is None or _left(room, paras, [taken]) >= 0:
            break
    paras += proof
    paras += _steps(known, room, tuple(paras))
    if finding["fix"]:
        paras += [Para(), labelled("about it", finding["fix"]["text"])]
        if finding["fix"]["docs"]:
            paras.append(labelled("docs", finding["fix"]["docs"]))
    return [*paras, *_follows(report, cause)]


def steps(report: Report, cause: Cause) -> tuple[Step, ...]:
    """The steps of a cause, as the card numbers them."""
    found = root(report, cause)
    return steps_of([found[1]["fix"]]) if found else ()


def fold(state: State, key: str, results: Sequence[Result]) -> list[Para]:
    """What a fold holds: a line a check, or a line for all that say the same, and how to see it."""
    paras = [Para(title_of(key, len(results)), style=LABEL), Para("enter opens it", style=QUIET), Para()]
    if key == "running":
        for result in results:
            probe = state.running[result["check"]].probe
            paras.append(Para(f"waits for {probe}" if probe else "its turn comes", f"{result['check']}  "))
        return paras
    for said, group in alike(results).items():
        if len(group) == 1:
            text = said.removeprefix(f"{group[0]['check']}  ")
            paras.append(Para(inert(text), f"{group[0]['check']}  "))
        else:
            paras.append(Para(inert(said), f"{len(group)} checks  "))
            paras.append(Para(" ".join(result["check"] for result in group), "  ", QUIET))
        fix = worst(group[0])["fix"]
        if fix and is_blind(worst(group[0])):
            paras.append(Para(inert(fix["text"]), "  see it  ", lead_style=QUIET))
    return paras


def all_clear(state: State, of_fleet: bool, room: Size | None) -> list[Para]:
    """What a node without a cause gets: what was looked at, what was not measured, what to do next.

    On a page of a small `room` less is said of what was not measured.
    """
    report = state.report
    status = Status(report["verdict"])
    counts = report["counts"]
    head = well(report).partition(": ")[2]
    paras = [Para(head, f"{status.word}  ", LABEL, STYLE[status])]
    if state.running:
        longest = sorted(state.asking.items(), key=lambda item: (-int(item[1]), item[0]))
        paras = [Para(f"{state.done} of {len(report['results'])} checks have answered", style=LABEL), Para()]
        return [
            *paras,
            *(Para(name, f"{f'{seconds:.0f} s':>8}  ", lead_style=RUN) for name, seconds in longest),
        ]
    text = f"{counts['pass']} checks passed, {counts['skip']} do not apply here"
    paras += [Para(text, " " * 6), Para(), Para("Not measured", style=LABEL)]
    unmeasured = _unmeasured(report["results"])
    shown = max(1, min(_UNMEASURED, room.height - _AROUND if room else _UNMEASURED))
    wide = max((len(name) for name, _ in unmeasured[:shown]), default=0)
    paras += [Para(text, f"  {name:<{wide}}  ", most=1) for name, text in unmeasured[:shown]]
    if more := len(unmeasured) - shown:
        paras += (
            [Para(f"{more} more: the row of checks not judged lists them", "  ", QUIET)] if more > 0 else []
        )
    paras += [Para(), Para("Next", style=LABEL)]
    of_gpus = (
        ("3", "watch the load of the GPUs while a job runs"),
        ("2", "look at the links between GPUs and network adapters"),
    )
    measured = (("$", "nodedoctor --deep         measure bandwidth and compute, idle node only"),)
    without = report["node"].get("gpus") == 0  # that there is none is known, not merely unseen
    for key, text in (
        *(() if without else of_gpus),
        ("s", "save this as the reference; d compares with it later"),
        *((("esc", "back to the fleet"),) if of_fleet else ()),
        *(() if without else measured),
        ("$", "nodedoctor expect         write down what this healthy node has"),
        ("$", "nodedoctor fleet --slurm  compare with the other nodes of a job"),
    ):
        paras.append(Para(text, f"  {key:<4} ", lead_style="bold cyan", verbatim=key == "$"))
    return paras


def _unmeasured(results: Sequence[Result]) -> list[tuple[str, str]]:
    """What nodedoctor says of itself, then what was not measured, then what could not be judged."""
    found = []
    for result in results:
        subject = result["check"].partition(".")[0]
        measured = subject in _MEASURED and result["status"] == "skip"
        if result["status"] == "unknown" or measured:
            order = (subject != "doctor", not measured, result["check"])
            found.append((order, result["check"], sentence(worst(result))))
    return [(check, text) for _, check, text in sorted(found)]


def _logged(report: Report, cause: Cause) -> str:
    """When the kernel log first speaks of it, as far as the evidence shows."""
    wanted = {cause["id"], *cause["explains"]}
    times = [
        match[0].replace("T", " ")
        for result in report["results"]
        if result["check"].startswith("kernel.")
        for finding in result["findings"]
        if finding["id"] in wanted
        for evidence in finding["evidence"]
        for match in _LOGGED.finditer(evidence["text"])
    ]
    return f"{min(times)} in the kernel log" if times else ""


def _proof(finding: Finding, room: Size | None, most: int) -> Iterator[Para]:
    lines = [
        line for one in finding["evidence"] for line in marked(one, inert_lines(one["text"].strip("\n")))
    ]
    shown = lines[:most]
    for number, line in enumerate(shown, 1):
        more = f"   (+{len(lines) - number} lines: enter)" if number == len(shown) < len(lines) else ""
        if room and 10 + len(line) + len(more) > room.width:
            more = ""  # it is cut, which says that there is more
        lead = f"{'proof' if number == 1 else '':<9} "
        yield Para(f"{line[:LONGEST]}{more}", lead, verbatim=True, most=1)


def _steps(known: Mapping[str, Step], room: Size | None, above: Sequence[Para]) -> Iterator[Para]:
    """The numbered steps; a last resort stands in the list that `c` opens, under its own key.

    What does not fit below `above` is named in a line, and comes out of view: all but the decisive repair.
    """
    safe = {key: list(_step(key, step)) for key, step in known.items() if step["role"] != "last-resort"}
    whole = list(safe.values())
    shown = _in_view(whole, room, above) if room else len(whole)
    if room and shown < len(whole):
        shown, repair = _with_repair(whole, shown, safe.get(_decisive(known), []), room, above)
        yield from (para for paras in [*whole[:shown], repair] for para in paras)
        rest = {key: step for key, step in known.items() if key not in list(safe)[:shown]}
        yield Para(_ranges(rest), lead_style=QUIET, style="cyan", most=1)
        yield from (Para() for _ in range(_left(room, above, [*whole[:shown], repair]) - 1))
        whole = whole[shown:]
    yield from (para for paras in whole for para in paras)
    if last := len(known) - len(safe):
        text = (
            f"{last} last resort{'s'[: last > 1]} that end{'s'[last > 1 :]} other work: c shows the condition"
        )
        yield Para(text, " " * 10, "red")


def _decisive(known: Mapping[str, Step]) -> str:
    """The key of the repair that the others prepare or clear up after: the last that interrupts something."""
    repairs = {key: told_step(step) for key, step in known.items() if step["role"] == "repair"}
    keys = [key for key, said in repairs.items() if said.interrupts] or list(repairs)
    return keys[-1] if keys else ""


def _with_repair(
    steps: Sequence[Sequence[Para]],
    shown: int,
    repair: Sequence[Para],
    room: Size,
    above: Sequence[Para],
) -> tuple[int, Sequence[Para]]:
    """How many steps to show above a repair that is not among them, and the repair; none where none fits."""
    if repair not in steps[:shown]:
        for fewer in range(shown, 0, -1):
            if _left(room, above, [*steps[:fewer], repair]) > 0:
                return fewer, repair
    return shown, ()


def _step(key: str, step: Step) -> Iterator[Para]:
    said = told_step(step)
    yield Para(said.command, f"{key} {said.word:<7} $ ", "bold cyan", "cyan", verbatim=True)
    if said.detail:
        yield Para(said.detail, " " * 12, "yellow" if said.interrupts else QUIET)


def _in_view(steps: Sequence[Sequence[Para]], room: Size, above: Sequence[Para]) -> int:
    """How many steps to show at once: all if they fit, else those that are whole on a line, at least one."""
    if _left(room, above, steps) >= 0:
        return len(steps)
    shown = 1
    while _left(room, above, steps[: shown + 1]) > 0 and _height(steps[shown][:1], room) == 1:
        shown += 1
    return shown


def _left(room: Size, above: Sequence[Para], steps: Sequence[Sequence[Para]]) -> int:
    return room.height - _height(above, room) - sum(_height(paras, room) for paras in steps)


def _height(paras: Sequence[Para], room: Size) -> int:
    return sum(1 for para in paras for _ in para.lines(room.width))


def _ranges(known: Mapping[str, Step]) -> str:
    """`4-9 repair, a verify: press c`."""
    words = [
        (word, [key for key, _ in group])
        for word, group in groupby(known.items(), key=lambda one: told_step(one[1]).word.lower())
    ]
    said = [f"{keys[0]}{f'-{keys[-1]}' if len(keys) > 1 else ''} {word}" for word, keys in words]
    return f"{', '.join(said)}: press c"


def _follows(report: Report, cause: Cause) -> Iterator[Para]:
    shared = {f"{cause['id'].partition('@')[0]}@{subject}" for subject in cause["subjects"]}
    said = {
        finding["id"]: f"{result['check']}: {sentence(finding)}"
        for result in report["results"]
        for finding in result["findings"]
    }
    follows = [said.get(id, inert(id)) for id in cause["explains"] if id not in shared]
    if follows or cause["unjudged"]:
        yield Para()
        yield Para("Follows from it", style=LABEL)
    for text in follows:
        yield Para(text, "  ")
    if count := cause["unjudged"]:
        yield Para(f"{count} check{'s'[: count > 1]} could not be judged because of it", "  ")
