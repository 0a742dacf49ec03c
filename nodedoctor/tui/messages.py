"""What a screen asks of the app."""

from __future__ import annotations

from collections.abc import Sequence

from textual.message import Message

from nodedoctor.report.document import Evidence


class ShowCheck(Message):
    """Go to the Checks screen and put the cursor on this check."""

    def __init__(self, check: str) -> None:
        super().__init__()
        self.check = check


class ShowProbe(Message):
    """Go to the Probes screen, to what the probe of some evidence printed, and there to its line."""

    def __init__(self, evidence: Sequence[Evidence]) -> None:
        super().__init__()
        self.evidence = tuple(evidence)


class Mark(Message):
    """Mark the tab of a screen with a status word (none for PASS), and a figure where it has one."""

    def __init__(self, mode: str, word: str, figure: str = "!") -> None:
        super().__init__()
        self.mode = mode
        self.word = word
        self.figure = figure


class OpenNode(Message):
    """Show the report of one node of a fleet, from the file it lies in."""

    def __init__(self, host: str, report: str) -> None:
        super().__init__()
        self.host = host
        self.report = report
