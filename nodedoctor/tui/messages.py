"""What a screen asks of the app."""

from __future__ import annotations

from textual.message import Message


class ShowCheck(Message):
    """Go to the Checks screen and put the cursor on this check."""

    def __init__(self, check: str) -> None:
        super().__init__()
        self.check = check


class AskCompare(Message):
    """Ask for a saved report, then compare with it."""


class AskTriage(Message):
    """Ask for the logs of a job, then show why it died."""
