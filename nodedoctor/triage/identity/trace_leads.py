"""What is constant in front of a traceback is a prefix of it, whether or not other lines have it.

The prefix that most lines have in common is learned. Of what a few lines have, a traceback is the proof: its
head, its frames and its last line begin with the same text. Without it only its rank is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from nodedoctor.triage.model import Line

HEAD = "Traceback (most recent call last)"
_FRAME = re.compile(r'( {0,9})  File "')
_CONTINUES = re.compile(r"\s|Traceback \(most|During handling of|The above exception")
LEADS_AT_MOST = 64
"""Different texts in front of tracebacks that are remembered. Ours."""
LONGEST_LEAD = 160
"""Characters in front of a traceback; more are a message, or a bar."""


@dataclass(slots=True)
class _Lead:
    """A text in front of a traceback's head, and the blanks behind it, which the first frame shows."""

    text: str
    head: Line
    blanks: str | None = None
    has_ended: bool = False

    def strip(self, line: Line) -> Line | None:
        """A line of this traceback without the lead; None for any other line."""
        rest = line.text.removeprefix(self.text)
        if self.blanks is None:
            frame = _FRAME.match(rest)
            self.blanks = frame[1] if frame else None
        if self.blanks is None or not rest.startswith(self.blanks) or not rest.strip():
            return None
        rest = rest[len(self.blanks) :]
        if not _CONTINUES.match(rest):
            if self.has_ended:
                return None
            self.has_ended = True
        return self.own(line, rest)

    def own(self, line: Line, text: str) -> Line:
        """A line as one of this traceback's, with this text."""
        return replace(line, text=text, key=f"{line.key}|{self.text}")


class TraceLeads:
    """Takes what is in front of tracebacks off their lines."""

    def __init__(self) -> None:
        self._leads: dict[str, _Lead] = {}
        self._recent: list[Line] = []
        """The last lines: the message above a traceback, what was split off its head, and the head."""

    def read(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines, those of a traceback without the text in front of each of them."""
        recent = self._recent
        for line in lines:
            if recent and line.text.startswith(HEAD) and recent[-1].place == line.place:
                line = self._begin(recent[-1].text, line)
            elif self._leads:
                line = self._continue(line)
            recent.append(line)
            while len(recent) > 3:
                yield recent.pop(0)
        yield from recent

    def _begin(self, text: str, head: Line) -> Line:
        """The head of a traceback behind a text, which is its lead if it was that of another one."""
        lead = self._leads.get(text)
        if lead is None or lead.blanks is None:
            if len(text) <= LONGEST_LEAD and len(self._leads) < LEADS_AT_MOST:
                self._leads[text] = _Lead(text, head)
            return head
        lead.head, lead.has_ended = head, False
        return self._take_head(lead)

    def _continue(self, line: Line) -> Line:
        for lead in self._leads.values():
            if not line.text.startswith(lead.text):
                continue
            is_new = lead.blanks is None
            own = lead.strip(line)
            if own is not None and is_new:
                if self._recent[-1] is lead.head:
                    del self._recent[-1]
                self._recent.append(self._take_head(lead))
            if own is not None:
                return own
        return line

    def _take_head(self, lead: _Lead) -> Line:
        """The head without its lead, which was split off; so is the message above it."""
        if self._recent and self._recent[-1].text == lead.text:
            del self._recent[-1]
            above = f"{lead.text}{lead.blanks}"
            if self._recent and self._recent[-1].text.startswith(above):
                self._recent[-1] = lead.own(self._recent[-1], self._recent[-1].text.removeprefix(above))
        return lead.own(lead.head, lead.head.text)
