"""What each rank printed last before the others gave up: of one that stopped, less than of the others."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nodedoctor.record import record
from nodedoctor.triage.model import SERIOUS, Event, Identity, Line
from nodedoctor.triage.patterns.log_pattern import rank_in_words

MOST_FORMS = 8
"""Forms of lines that are kept of each speaker, the last ones. Ours."""
MOST_LINES = 8
"""Lines of each form that are kept, the last ones. Ours."""
BESIDE = 3
"""Forms of lines at most that are of monitors, or of one line with a part that grows. Ours."""
MOST_SPEAKERS = 4096
"""Speakers whose lines are kept."""
GAP = 64 << 10
"""Bytes between two lines that were read of a log, behind which a speaker may have said more. Ours."""
_BEGINS = re.compile(
    r"^(?:[\w.]{1,40}: )?\W{0,2}(?:global[ _])?(?:[Rr]ank|RANK)[ =:_]{0,2}(?P<rank>\d{1,7})\b(?!/\d)"
)
"""How lines of programs without a prefix begin: `rank=3 done`."""
_PART = re.compile(r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?) ?(?:[KMGT]i?B)? ?(%|/ ?\d{1,9}(?:\.\d{1,9})?)")
"""How much of a whole: `31/64`, `12 %`, `24.7/412.0 GiB`."""
_NUMBERS = re.compile(r"\d+(?:\.\d+)?")

WAS_DONE = re.compile(
    r"(?i)\b(?:exhausted|StopIteration|(?:no more|(?:ran|run|is|was) out of|no \w{1,12} left"
    r"|end of(?: the| its)?) (?:train\w{0,3} )?(?:data\w{0,8}|batch(?:es)?|samples?|examples?|shards?)"
    r"|(?:leav(?:es?|ing)|left|exit(?:s|ed|ing)?)(?: \w{1,8})? (?:training|(?:training|train|main) loop"
    r"|cleanly|normally|early|with (?:exit )?(?:code|status) 0)|early[ -]stop(?:ping|ped)?"
    r"|train\w{0,3}(?: loop)? (?:is |has )?(?:done|finished|complete[d]?|over|ended))\b"
)
"""Words of a rank that has done what it had to, by itself."""


def without_numbers(text: str) -> str:
    """The form of a line: what lines that differ in numbers alone have in common."""
    return _NUMBERS.sub("0", text)


def _advances(texts: Iterable[str]) -> bool:
    """True where a part of a whole rises in lines of one form, and never falls, as a load does."""
    parts = [_PART.findall(text) for text in texts]
    for column in zip(*parts, strict=False):
        values = [float(value) for value, _ in column]
        if values[-1] > values[0] and sorted(values) == values and len({total for _, total in column}) == 1:
            return True
    return False


@record
class LastLines:
    """The last lines of a speaker that say different things, numbers left out, the last of them last."""

    forms: tuple[str, ...]
    repeats: tuple[int, ...] = ()
    """How often it said each, as far as these lines are kept."""
    advances: bool = False
    """Whether a share or a part of a whole rose in one of the last of them: `31/64`, `12 %`."""


@dataclass(slots=True)
class _Speaker:
    last: Line
    forms: dict[str, deque[str]] = field(default_factory=dict)
    """The last lines of each."""

    def add(self, line: Line) -> None:
        """Keep a line as the last one."""
        self.last = line
        form = without_numbers(line.text)
        texts = self.forms.pop(form, None) or deque(maxlen=MOST_LINES)
        texts.append(line.text)
        self.forms[form] = texts
        if len(self.forms) > MOST_FORMS:
            del self.forms[next(iter(self.forms))]


class LastLinesOfRanks:
    """Keeps the last plain lines of each speaker until somebody gives up."""

    def __init__(self) -> None:
        self._speakers: dict[Identity, _Speaker] = {}
        self._is_over = False
        self._offset = 0

    def read(self, line: Line) -> None:
        """Keep a line that tells of nothing that went wrong."""
        offset = line.place.offset
        if offset - self._offset > GAP:
            self._speakers.clear()
        self._offset = offset
        if self._is_over or line.level in SERIOUS or not line.text:
            return
        who = rank_in_words(line.who, _BEGINS, line.text)
        speaker = self._speakers.get(who)
        if speaker is None:
            if len(self._speakers) >= MOST_SPEAKERS:
                return
            speaker = self._speakers[who] = _Speaker(line)
        speaker.add(line)

    def restart(self) -> None:
        """Forget the lines of an earlier run."""
        self._speakers.clear()
        self._is_over = False

    def flush(self) -> Iterator[Event[LastLines]]:
        """What each speaker said last: where the first gives up, and where the log ends."""
        for who, speaker in self._speakers.items():
            texts = list(speaker.forms.values())
            what = LastLines(
                tuple(speaker.forms), tuple(map(len, texts)), any(map(_advances, texts[-BESIDE:]))
            )
            yield Event.at(speaker.last, what, who=who)
        self._speakers.clear()
        self._is_over = True
