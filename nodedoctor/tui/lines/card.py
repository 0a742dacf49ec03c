"""The page about a row of the first screen: a cause as a card, a fold, or that all is well.

Of a card the first lines matter most: at 80x24 the headline is whole and a command to type is in view.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

from textual.geometry import Size

from nodedoctor.model import Status
from nodedoctor.report.document import (
    Cause,
    Finding,
    Fix,
    Report,
    Result,
    Step,
    full_summary,
    is_blind,
    marked,
    preview_mark,
    worst,
)
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.report.lead import root, whose
from nodedoctor.report.steps import advice, told_step
from nodedoctor.report.text import group_results
from nodedoctor.tui.lines.detail import LONGEST, labelled, sentence
from nodedoctor.tui.lines.home import title_of
from nodedoctor.tui.lines.ticket import keyed, steps_of
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import LABEL, QUIET, STYLE, Para, height
from nodedoctor.wording import capitalised

_AMPLE = 16
"""Lines of proof where everything fits with them; ours."""
_PROOF = 2
"""Lines of proof on the card where the steps fit below them, else one; enter shows all of it."""
_ALL = 200
"""Lines of proof beside the steps: all of it, but for a log that was quoted as a whole; ours."""
_TYPED = 2
"""Lines of a command that somebody may type; a longer one is copied."""
_LOGGED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")


def card(report: Report, cause: Cause, *, titled: bool = True, room: Size | None = None) -> list[Para]:
    """A cause: headline, whose move it is, what it does to training, the proof, the steps, what follows.

    Not `titled` where the row above it says the headline whole. What is in view of a page of the size `room`
    ends with a whole step; the others are below.
    """
    found = root(report, cause)
    paras = _card_parts(report, cause, titled)
    if found is None:
        return [*paras, *_follows(report, cause)]
    _, finding, _ = found
    known = keyed(steps_of([finding["fix"]]))
    about = list(_about(finding["fix"]))
    below = [*about, *_follows(report, cause)]
    for most, tall in ((_AMPLE, 2), (_PROOF, 2), (_PROOF, 1), (1, 1)) if room else ((_PROOF, 1),):
        proof = list(_proof(finding, room, most, tall))
        taken = [*proof, *_steps(known, None, ()), *(below if most > _PROOF else ())]
        if room is None or _steps_left(room, paras, [taken]) >= 0:
            break
    paras += proof
    paras += _steps(known, room, tuple(paras))
    return [*paras, *below]


def explained(report: Report, cause: Cause) -> list[Para]:
    """What is behind the steps of a cause: the card without them, with all of the proof."""
    found = root(report, cause)
    paras = _card_parts(report, cause, titled=True)
    if found is not None:
        finding = found[1]
        paras += [*_proof(finding, None, _ALL, 0), *_about(finding["fix"])]
    return [*paras, *_follows(report, cause)]


def _card_parts(report: Report, cause: Cause, titled: bool) -> list[Para]:
    """Headline, the finding, whose move it is, what it does to training, when the kernel logged it."""
    status = Status(cause["status"])
    title = Para(inert(cause["headline"]) + preview_mark(cause), f"{status.word}  ", LABEL, STYLE[status])
    found = root(report, cause)
    if found is None:
        return [title, labelled("who acts", whose(report, cause))]
    check, finding, why = found
    said = inert(full_summary(finding))
    text = check if said.lower() in cause["headline"].lower() else f"{check}: {said}"
    first = (f"{status.word}  ", STYLE[status]) if not titled else (" " * (len(status.word) + 2), LABEL)
    paras = [title] if titled else []
    paras.append(Para(text, first[0], lead_style=first[1], most=2))
    paras.append(Para(inert(whose(report, cause)), f"{'who acts':<9} ", most=2))
    if why:
        paras.append(Para(capitalised(inert(why)), f"{'training':<9} ", most=2))
    if logged := _logged(report, cause):
        paras.append(labelled("logged", logged))
    return paras


def _about(fix: Fix | None) -> Iterator[Para]:
    if fix:
        yield Para()
        yield labelled("about it", advice(fix))
        if fix["docs"]:
            yield labelled("docs", fix["docs"])


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
    for said, group in group_results(results).items():
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


def _proof(finding: Finding, room: Size | None, most: int, tall: int) -> Iterator[Para]:
    """So many lines of the evidence at most, each so tall on the screen."""
    lines = [
        line for one in finding["evidence"] for line in marked(one, inert_lines(one["text"].strip("\n")))
    ]
    shown = lines[:most]
    for number, line in enumerate(shown, 1):
        more = f"   (+{len(lines) - number} lines: enter)" if number == len(shown) < len(lines) else ""
        if room and 10 + len(line) + len(more) > room.width * tall:
            more = ""  # it is cut, which says that there is more
        lead = f"{'proof' if number == 1 else '':<9} "
        yield Para(f"{line[:LONGEST]}{more}", lead, verbatim=True, most=tall)


def _steps(known: Mapping[str, Step], room: Size | None, above: Sequence[Para]) -> Iterator[Para]:
    """The numbered steps; a last resort stands in the list that `c` opens, under its own key.

    They are shown in their order: what does not fit below `above` is named in a line, and comes out of view.
    So a reset is never in view without what must come before it.
    """
    safe = {key: list(_step(key, step)) for key, step in known.items() if step["role"] != "last-resort"}
    whole = list(safe.values())
    if room and _steps_left(room, above, whole) < 0:
        safe = {key: _without_long(paras, room) for key, paras in safe.items()}
        whole = list(safe.values())
    shown = _in_view(whole, room, above) if room else len(whole)
    if room and shown < len(whole):
        yield from (para for paras in whole[:shown] for para in paras)
        yield Para(_ranges(known, list(safe)[:shown]), lead_style=QUIET, style="cyan", most=1)
        yield from (Para() for _ in range(_steps_left(room, above, whole[:shown]) - 1))
        whole = whole[shown:]
    yield from (para for paras in whole for para in paras)
    if last := len(known) - len(safe):
        text = (
            f"{last} last resort{'s'[: last > 1]} that end{'s'[last > 1 :]} other work: c shows the condition"
        )
        yield Para(text, " " * 10, "red")


def _step(key: str, step: Step) -> Iterator[Para]:
    said = told_step(step)
    yield Para(said.command, f"{key} {said.word:<7} $ ", "bold cyan", "cyan", verbatim=True)
    if said.detail:
        yield Para(said.detail, " " * 12, "yellow" if said.interrupts else QUIET)


def _without_long(step: Sequence[Para], room: Size) -> list[Para]:
    """A step without a command that is too long to be typed: of half a command nothing good comes."""
    command, *detail = step
    if height([command], room.width) <= _TYPED:
        return list(step)
    lead = command.lead.removesuffix("$ ")
    return [Para("a long command: c shows it and copies it", lead, QUIET, command.lead_style), *detail]


def _in_view(steps: Sequence[Sequence[Para]], room: Size, above: Sequence[Para]) -> int:
    """How many steps to show at once: all if they fit, else those that are whole on a line, at least one."""
    if _steps_left(room, above, steps) >= 0:
        return len(steps)
    shown = 1
    while _steps_left(room, above, steps[: shown + 1]) > 0 and _is_typed(steps[shown][0], room):
        shown += 1
    return shown


def _is_typed(command: Para, room: Size) -> bool:
    return command.verbatim and height([command], room.width) == 1


def _steps_left(room: Size, above: Sequence[Para], steps: Sequence[Sequence[Para]]) -> int:
    return room.height - height(above, room.width) - sum(height(paras, room.width) for paras in steps)


def _ranges(known: Mapping[str, Step], told: Collection[str]) -> str:
    """Of the steps that are not shown: `4-6 8-9 repair, a verify: key c`."""
    runs = groupby(known.items(), key=lambda one: (one[0] in told, told_step(one[1]).word.lower()))
    places: dict[str, list[str]] = {}
    for (shown, word), run in runs:
        keys = [key for key, _ in run]
        if not shown:
            places.setdefault(word, []).append(f"{keys[0]}-{keys[-1]}" if len(keys) > 1 else keys[0])
    said = [f"{' '.join(keys)} {word}" for word, keys in places.items()]
    return f"{', '.join(said)}: key c"


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
