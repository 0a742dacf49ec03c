"""The page about a row of the first screen: a cause as a card, a fold, or that all is well.

Of a card the first lines matter most: at 80x24 the headline is whole and a command to type is in view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

from textual.geometry import Size

from nodedoctor.report.document import Cause, Report, Result, Step, is_blind, worst
from nodedoctor.report.inert import inert
from nodedoctor.report.page import FIX, FOLLOWS, PROOF, SEE_IT, VERIFY, CausePage, cause_page, group_results
from nodedoctor.report.steps import told_step
from nodedoctor.tui.lines.detail import LONGEST, labelled, lead_of
from nodedoctor.tui.lines.home import title_of
from nodedoctor.tui.lines.ticket import keyed, steps_of
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import DANGER, LABEL, QUIET, STYLE, Para, height
from nodedoctor.wording import count_with_noun

_AMPLE = 16
"""Lines of proof where everything fits with them; ours."""
_PROOF = 2
"""Lines of proof on the card where the steps fit below them, else one; enter shows all of it."""
_ALL = 200
"""Lines of proof beside the steps: all of it, but for a log that was quoted as a whole; ours."""
_TYPED = 2
"""Lines of a command that somebody may type; a longer one is copied."""


def card(report: Report, cause: Cause, *, titled: bool = True, room: Size | None = None) -> list[Para]:
    """A cause in the order of every view: headline, owner, why, the proof, the steps, what follows.

    Not `titled` where the row above it says the headline whole. What is in view of a page of the size `room`
    ends with a whole step; the others are below.
    """
    page = cause_page(report, cause)
    paras = _card_parts(page, titled)
    by_key = keyed(steps_of([page.fix]))
    below = [*_advice_paras(page), *_follows_paras(page)]
    for most, tall in ((_AMPLE, 2), (_PROOF, 2), (_PROOF, 1), (1, 1)) if room else ((_PROOF, 1),):
        proof = list(_proof_paras(page, room, most, tall))
        body = [*proof, *_safe_paras(by_key, None, ()), *(below if most > _PROOF else ())]
        if room is None or _steps_left(room, paras, [body]) >= 0:
            break
    paras += proof
    paras += _safe_paras(by_key, room, tuple(paras))
    return [*paras, *below]


def explained(report: Report, cause: Cause) -> list[Para]:
    """What is behind the steps of a cause: the card without them, with all of the proof."""
    page = cause_page(report, cause)
    return [
        *_card_parts(page, titled=True),
        *_proof_paras(page, None, _ALL, 0),
        *_advice_paras(page),
        *_follows_paras(page),
    ]


def _card_parts(page: CausePage, titled: bool) -> list[Para]:
    """Headline, and what comes before the proof."""
    title = Para(page.headline + page.mark, f"{page.status.word}  ", LABEL, STYLE[page.status])
    paras = [title] if titled else []
    return [*paras, *(Para(part.text, lead_of(part.label), most=2) for part in page.opening)]


def _advice_paras(page: CausePage) -> Iterator[Para]:
    if page.advice:
        yield Para()
        yield labelled(FIX, page.advice)
    yield from (labelled(part.label, part.text) for part in page.closing if part.label != VERIFY)


def steps(report: Report, cause: Cause) -> tuple[Step, ...]:
    """The steps of a cause, as the card numbers them."""
    return steps_of([cause_page(report, cause).fix])


def fold(state: State, key: str, results: Sequence[Result]) -> list[Para]:
    """What a fold holds: a line a check, or a line for all that say the same, and how to see it."""
    paras = [Para(title_of(key, len(results)), style=LABEL), Para("enter opens it", style=QUIET), Para()]
    if key == "running":
        for result in results:
            probe = state.running[result["check"]].probe
            paras.append(Para(f"waits for {probe}" if probe else "its turn comes", f"{result['check']}  "))
        return paras
    for summary, group in group_results(results).items():
        if len(group) == 1:
            text = summary.removeprefix(f"{group[0]['check']}  ")
            paras.append(Para(inert(text), f"{group[0]['check']}  "))
        else:
            paras.append(Para(inert(summary), f"{len(group)} checks  "))
            paras.append(Para(" ".join(result["check"] for result in group), "  ", QUIET))
        fix = worst(group[0])["fix"]
        if fix and is_blind(worst(group[0])):
            paras.append(Para(inert(fix["text"]), f"  {SEE_IT}  ", lead_style=QUIET))
    return paras


def _proof_paras(page: CausePage, room: Size | None, most: int, tall: int) -> Iterator[Para]:
    """So many lines of the evidence at most, each so tall on the screen."""
    shown = page.proof[:most]
    for number, line in enumerate(shown, 1):
        more = f"   (+{count_with_noun(len(page.proof) - number, 'line')}: enter)"
        more = more if number == len(shown) < len(page.proof) else ""
        if room and 10 + len(line) + len(more) > room.width * tall:
            more = ""  # it is cut, which says that there is more
        yield Para(f"{line[:LONGEST]}{more}", lead_of(PROOF if number == 1 else ""), verbatim=True, most=tall)


def _safe_paras(by_key: Mapping[str, Step], room: Size | None, above: Sequence[Para]) -> Iterator[Para]:
    """The numbered steps; a last resort is in the list that `c` opens, under its own key.

    They are shown in their order: what does not fit below `above` is named in a line, and comes out of view.
    So a reset is never in view without what must come before it.
    """
    safe = {
        key: list(_step_paras(key, step)) for key, step in by_key.items() if step["role"] != "last-resort"
    }
    blocks = list(safe.values())
    if room and _steps_left(room, above, blocks) < 0:
        safe = {key: _without_long(paras, room) for key, paras in safe.items()}
        blocks = list(safe.values())
    shown = _in_view(blocks, room, above) if room else len(blocks)
    if room and shown < len(blocks):
        yield from (para for paras in blocks[:shown] for para in paras)
        yield Para(_step_ranges(by_key, list(safe)[:shown]), lead_style=QUIET, style="cyan", most=1)
        yield from (Para() for _ in range(_steps_left(room, above, blocks[:shown]) - 1))
        blocks = blocks[shown:]
    yield from (para for paras in blocks for para in paras)
    if last := len(by_key) - len(safe):
        text = (
            f"{last} last resort{'s'[: last > 1]} that end{'s'[last > 1 :]} other work: c shows the condition"
        )
        yield Para(text, " " * 10, "red")


def _step_paras(key: str, step: Step) -> Iterator[Para]:
    shown = told_step(step)
    yield Para(shown.command, f"{key} {shown.word:<7} $ ", "bold cyan", "cyan", verbatim=True)
    if shown.detail:
        yield Para(shown.detail, " " * 12, DANGER if shown.interrupts else QUIET)


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


def _step_ranges(by_key: Mapping[str, Step], opening: Collection[str]) -> str:
    """Of the steps that are not shown: `4-6 8-9 repair, a verify: key c`."""
    runs = groupby(by_key.items(), key=lambda pair: (pair[0] in opening, told_step(pair[1]).word.lower()))
    places: dict[str, list[str]] = {}
    for (shown, word), run in runs:
        keys = [key for key, _ in run]
        if not shown:
            places.setdefault(word, []).append(f"{keys[0]}-{keys[-1]}" if len(keys) > 1 else keys[0])
    ranges = [f"{' '.join(keys)} {word}" for word, keys in places.items()]
    return f"{', '.join(ranges)}: key c"


def _follows_paras(page: CausePage) -> Iterator[Para]:
    for number, text in enumerate(page.follows):
        if not number:
            yield Para()
        yield Para(text, lead_of("" if number else FOLLOWS))
