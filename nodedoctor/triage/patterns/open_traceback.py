"""The rows of a traceback: its head, calls and their source, as Python prints them and as rich draws them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nodedoctor.triage.model import Line
from nodedoctor.triage.patterns.assertion import Assertion
from nodedoctor.triage.patterns.stacks import StackFrame, is_library_file

FRAME_INDENT = 2
"""Blanks in front of a frame's place in a traceback that begins at the margin (`Lib/traceback.py`)."""
LONGEST_STACK = 64
"""Frames kept per traceback: the innermost decide."""

FRAME = re.compile(r'^\s*File "([^"]{1,500})", line (\d{1,9})(?:, in (.+))?')
_BOX_HEAD = re.compile(r"^\s*[╭┌]─+ Traceback \(most recent call last\)")
_BOX_ROW = re.compile(r"^\s*[│╰└]|^\s")
_BOX_FRAME = re.compile(r"^\s*(?:│ )?(\S{1,500}):(\d{1,9}) in ?([^\s│]*)[ │]*$")
_BOX_SOURCE = re.compile(r"^\s*(?:│ )?❱ +\d{1,9}\s(.*)$")
"""How rich draws a traceback, with the lines of source around each call (`rich/traceback.py`); of a text that
is mostly a box the sides are taken away before."""
_HEAD = "Traceback (most recent call last)"
_HANDLER = re.compile(r"(?:^|_)(?:sig(?:int|term|kill|hup|nal)?_?handler|handle_sig\w{0,40}|on_sig\w{0,40})$")
"""Functions that handle signals, as programs call them."""


def is_head(text: str) -> bool:
    """True for a line with which a traceback begins."""
    return _HEAD in text and (text.lstrip(" ").startswith(_HEAD) or _BOX_HEAD.match(text) is not None)


@dataclass(slots=True)
class OpenTraceback:
    """A traceback whose exception has not come yet."""

    first: Line
    frames: list[StackFrame] = field(default_factory=list)
    later: bool = False
    manner: Assertion = "plain"
    steps: int = 0
    indent: str = ""
    """What is in front of each line: supervisors put it before the lines of their children."""
    after_error: bool = False
    """It is behind a line that the program's own logger printed as an error."""
    in_message: bool = False
    """A sentence of the program is in front of it in one line."""
    in_thread: bool = False
    announcement: str = ""
    """The line in front of it, which may announce it, or name another error."""
    caught: bool = False
    """Its outermost call is a function of the program."""
    cut_path: str = ""
    """The beginning of a path that was too long for a row of a box."""

    @property
    def is_of_handler(self) -> bool:
        """True for what is raised while a signal is handled."""
        return self.later or any(_HANDLER.search(frame.function) for frame in self.frames)

    def append(self, text: str) -> bool:
        """Take in a row of the stack; False for a line that is none."""
        if _BOX_HEAD.match(self.first.text):
            return self._append_box_row(text)
        frame = FRAME.match(text)
        if frame:
            if not self.frames:
                self.indent = text[: max(0, len(text) - len(text.lstrip(" ")) - FRAME_INDENT)]
                self.caught = self._begins_in_function(frame)
            self._add(StackFrame(frame[1], int(frame[2]), frame[3] or ""))
            return True
        if not text[:1].isspace():
            return False
        if self.frames and not self.frames[-1].source and not set(text.strip()) <= set("^~ "):
            self._set_source(text.strip())
        return True

    def _append_box_row(self, text: str) -> bool:
        """Take in a row of a box: a call, or its source."""
        if frame := _BOX_FRAME.match(text):
            self._add(StackFrame(self.cut_path + frame[1], int(frame[2]), frame[3]))
        elif self.frames and (source := _BOX_SOURCE.match(text)):
            self._set_source(source[1].strip(" │"))
        path = text.strip(" │")
        self.cut_path = path if "/" in path and " " not in path else ""
        return _BOX_ROW.match(text) is not None

    def _add(self, frame: StackFrame) -> None:
        self.frames.append(frame)
        del self.frames[:-LONGEST_STACK]

    def _set_source(self, source: str) -> None:
        last = self.frames[-1]
        self.frames[-1] = StackFrame(last.file, last.line, last.function, source[:300])

    def _begins_in_function(self, outermost: re.Match[str]) -> bool:
        """True for a stack with its head whose outermost call is a function of the program's own."""
        function = outermost[3] or "<module>"
        has_head = self.first.text.lstrip(" ").startswith(_HEAD)
        return has_head and not function.startswith("<") and not is_library_file(outermost[1])
