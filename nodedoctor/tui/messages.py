"""What a screen asks of the app."""

from __future__ import annotations

from textual.message import Message


class ShowCheck(Message):
    """Go to the Checks screen and put the cursor on this check."""

    def __init__(self, check: str) -> None:
        super().__init__()
        self.check = check


class ShowProbe(Message):
    """Go to the Probes screen, to what one probe printed, and there to a line."""

    def __init__(self, probe: str, line: str) -> None:
        super().__init__()
        self.probe = probe
        self.line = line


class AskCompare(Message):
    """Ask for a saved report, then compare with it."""


class AskTriage(Message):
    """Ask for the logs of a job, then show why it died."""


class OpenNode(Message):
    """Show the report of one node of a fleet, from the file it lies in."""

    def __init__(self, host: str, report: str) -> None:
        super().__init__()
        self.host = host
        self.report = report
