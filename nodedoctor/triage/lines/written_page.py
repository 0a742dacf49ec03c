"""Pages that people wrote about failures: runbooks, post-mortems, templates of issues.

Such a page quotes lines of logs, each of another job or of none. A mail or an issue about one job has the log
as evidence: it has more of that than of anything else, and no title.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

FEWEST_HEADINGS = 3
"""Headings of a page with one title, that included: a mail may have one or two. Comments of shells and of
nccl-tests look like titles, and are several. Ours."""
_HEADING = re.compile(r"(#{1,6}) +\S.{0,79}$")
_FENCE = re.compile(r"\s{0,3}(?:```|~~~)")
_FIELD = re.compile(r"[A-Za-z_]\w*:(?:\s|$)")
_QUOTED = (">", "    ")
"""How lines begin that are quoted."""
_CODE = re.compile(r"`[^`]*`")


def is_written_page(texts: Sequence[str], is_printed: Callable[[str], bool]) -> bool:
    """Whether a whole text is a page with a title and headings, and holds little but the words of its author.

    `is_printed` tells what a process printed: on a page that is only in its quotations.
    """
    body = _behind_fields(texts)
    has_fields = len(body) < len(texts)
    own: list[str] = []
    headings: list[int] = []
    quoted, in_tables, is_fenced = 0, 0, False
    for text in body:
        if _FENCE.match(text):
            is_fenced = not is_fenced
            continue
        heading = None if is_fenced else _HEADING.match(text)
        if heading is not None:
            headings.append(len(heading[1]))
        elif text.startswith("|") and not is_fenced:
            in_tables += 1
        elif text.strip() and (is_fenced or text.startswith(_QUOTED)):
            quoted += 1
        elif text.strip():
            own.append(text)
    is_titled = headings[:1] == [1] == [level for level in headings if level == 1]
    has_title = is_titled and next(filter(None, map(str.strip, body))).startswith("# ")
    is_short = quoted < len(own) + len(headings) or has_fields
    only_tables = in_tables > 0 == quoted
    is_page = has_fields or (has_title and (only_tables or len(headings) >= FEWEST_HEADINGS))
    return is_page and is_short and not any(is_printed(_CODE.sub("", text)) for text in own)


def _behind_fields(texts: Sequence[str]) -> Sequence[str]:
    """The text behind the fields that generators of sites and forms of issues have in front of a page."""
    if not texts or texts[0].strip() != "---":
        return texts
    end = next((index for index, text in enumerate(texts) if index and text.strip() == "---"), 0)
    return texts[end + 1 :] if end > 1 and all(map(_FIELD.match, texts[1:end])) else texts
