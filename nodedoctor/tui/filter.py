"""What `/` understands: words that must occur, `!word`, `tag:ib`, `is:fail`."""

from __future__ import annotations

from collections.abc import Callable

from nodedoctor.record import record
from nodedoctor.report.document import Result, full_summary, is_blind, is_broken, severity_of, worst
from nodedoctor.wording import about

KINDS: dict[str, Callable[[Result], bool]] = {
    "fail": lambda result: result["status"] == "fail",
    "warn": lambda result: result["status"] == "warn",
    "pass": lambda result: result["status"] == "pass",
    "skip": lambda result: result["status"] == "skip",
    "unknown": lambda result: result["status"] == "unknown",
    "unkn": lambda result: result["status"] == "unknown",
    "blind": lambda result: is_blind(worst(result)),
    "broken": lambda result: is_broken(worst(result)),
    "problem": lambda result: severity_of(result).is_problem,
    "note": lambda result: any(finding["note"] for finding in result["findings"]),
    "waived": lambda result: any(finding["waived"] is not None for finding in result["findings"]),
}
"""What may follow `is:`, besides `run`."""


@record
class Filter:
    """Words that all have to fit; an empty one fits everything."""

    text: str = ""

    def fits(self, result: Result, running: bool = False) -> bool:
        """Whether a row is to be shown; while it runs only its id, title and tags are known."""
        return all(_matches_word(word.lower(), result, running) for word in self.text.split())


def _matches_word(word: str, result: Result, running: bool) -> bool:
    if word.startswith("!"):
        return not _matches_word(word[1:], result, running) if len(word) > 1 else True
    key, colon, value = word.partition(":")
    if colon and key == "tag":
        return any(tag.startswith(value) for tag in result["tags"])
    if colon and key == "is":
        return running if value == "run" else not running and value in KINDS and KINDS[value](result)
    summaries = (
        ()
        if running
        else (
            f"{finding['subject'] or ''} {about(finding['subject'] or '', full_summary(finding))}"
            for finding in result["findings"]
        )
    )
    return any(word in text.lower() for text in (result["check"], result["title"], *summaries))
