"""Checks by name in the command palette: type a word, land on the check."""

from __future__ import annotations

from functools import partial

from textual.command import Hit, Hits, Provider

from nodedoctor.report.document import severity_of
from nodedoctor.tui.messages import ShowCheck


class GoToCheck(Provider):
    """Finds checks by id and title; they are searched, not listed, because there are many."""

    async def search(self, query: str) -> Hits:
        """The checks that fit what was typed."""
        matcher = self.matcher(query)
        state = getattr(self.app, "state", None)
        for result in state.report["results"] if state else ():
            text = f"Go to {result['check']}"
            score = max(matcher.match(text), matcher.match(result["title"]))
            # What begins like the id, or its second word, comes first; then what is not well.
            prefix = 2 * result["check"].startswith(query) or f".{query}" in result["check"]
            if score > 0 or prefix:
                score = score + 100 * prefix + 10 * severity_of(result).is_problem
                show = partial(self.app.post_message, ShowCheck(result["check"]))
                yield Hit(score, matcher.highlight(text), show, help=result["title"])
