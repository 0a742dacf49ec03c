"""One statement of another tool, in its own words."""

from __future__ import annotations

import json
from typing import Literal

from nodedoctor.record import record

Result = Literal["pass", "note", "unknown", "warn", "fail"]
WORDS = 400
"""Characters of a tool's own words that are kept; ours."""
SUBJECT = 80
"""Characters of what they are about that are kept; ours."""


@record
class Verdict:
    """What a tool says about one thing: `words` are its own, `quote` is where it says them."""

    probe: str
    tool: str
    result: Result
    words: str
    subject: str = ""
    quote: str = ""


def make_verdict(
    probe: str, tool: str, result: Result, words: str, subject: str = "", quote: str = ""
) -> Verdict:
    """What a tool says, as much of it as is kept; each reader has this for its own probe and tool."""
    return Verdict(probe, tool, result, words[:WORDS], subject[:SUBJECT], quote.strip()[:WORDS])


def in_json(value: str, text: str) -> str:
    """How a string is written in a JSON text; "" where it is not there."""
    for ascii_only in (True, False):
        written = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        if written and written in text:
            return written[:WORDS]
    return ""
