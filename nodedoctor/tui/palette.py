"""The command palette: what can be done here, a row each, and every check by its name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from nodedoctor.report.document import severity_of
from nodedoctor.tui.keys import KeyCommand
from nodedoctor.tui.messages import ShowCheck


class Commands(Provider):
    """Everything that has a key here, the most useful first."""

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for command in self._commands:
            yield DiscoveryHit(_title(command), command.run, text=command.text)

    async def search(self, query: str) -> Hits:
        """Those that fit what was typed."""
        matcher = self.matcher(query)
        for command in self._commands:
            title = _title(command)
            if (score := matcher.match(title)) > 0:
                yield Hit(score, matcher.highlight(title), command.run, text=command.text)

    @property
    def _commands(self) -> Iterable[KeyCommand]:
        commands: Iterable[KeyCommand] = getattr(self.app, "commands", lambda _: ())(self.screen)
        return commands


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
                yield Hit(score, matcher.highlight(f"{text}   {result['title']}"), show, text=text)


def _title(command: KeyCommand) -> str:
    """The words of a command, with its key."""
    key = command.keys.split(" ")[0]
    words = f"{command.text}: {command.about}" if command.about else command.text
    return f"{words}   ({key})" if key else words
