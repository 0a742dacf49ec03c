"""The keys that work on every screen, their sections in help and palette, and the palette itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider

from nodedoctor.report.document import severity_of
from nodedoctor.tui.messages import ShowCheck

EVERYWHERE = (
    Binding("1", "open('checks')", "Open Checks", id="screen-checks", tooltip="what is wrong here"),
    Binding("2", "open('topology')", "Open Topology", id="screen-topology", tooltip="links of GPUs"),
    Binding("3", "open('live')", "Open Live", id="screen-live", tooltip="load of GPUs and host"),
    Binding("4", "open('triage')", "Open Triage", id="screen-triage", tooltip="why a job died"),
    Binding("5", "open('compare')", "Open Compare", id="screen-compare", tooltip="with a saved report"),
    Binding("6", "open('probes')", "Open Probes", id="screen-probes", tooltip="what was run"),
    Binding("7", "open('fleet')", "Open Fleet", id="screen-fleet", tooltip="nodes side by side"),
    Binding("R", "rerun_all", "Run all checks again", id="rerun-all"),
    # With priority the next key waits for the prompt: a path begins with the key of the filter.
    Binding("s", "save", "Save a recording", id="save", priority=True),
    Binding("d", "compare", "Compare with a saved report", id="compare", priority=True),
    Binding("escape", "home", "Go to the first screen", id="back"),
    Binding("m", "mouse", "Turn the mouse on or off", id="mouse"),
    Binding("ctrl+l", "repaint", "Draw the screen again", id="repaint"),
    Binding("ctrl+z", "suspend_process", "Suspend; fg continues", id="suspend"),
    Binding("question_mark", "help", "Show the keys", id="help"),
    Binding("colon,ctrl+p", "command_palette", "Find a command", id="commands"),
    Binding("q", "quit", "Quit", id="quit"),
    Binding("ctrl+c", "interrupt", "Interrupt", id="interrupt", show=False),
)
"""Their ids are what a keymap of Textual names."""

MOVE, LOOK, COPY, ELSEWHERE = "Move", "Look", "Copy and save", "Elsewhere"
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    COPY: ("copy-fix", "copy-finding", "save", "compare"),
    MOVE: ("next-problem", "previous-problem", "subjects", "back"),
    ELSEWHERE: ("mouse", "repaint", "suspend", "help", "quit"),
}
PALETTE = (COPY, LOOK, ELSEWHERE, MOVE)
"""Sections in the order of the palette: what is wanted most comes first."""


class KeyCommand(NamedTuple):
    """What a key does on a screen: its names, empty where the screen uses it for itself, words and action."""

    keys: str
    text: str
    run: Callable[[], Any]
    section: str
    about: str = ""


def section_of(binding: str) -> str:
    """The section a binding belongs to, by its id."""
    if binding.startswith("screen-"):
        return ELSEWHERE
    return next((section for section, ids in _SECTIONS.items() if binding in ids), LOOK)


class Commands(Provider):
    """Everything that has a key here, the most useful first."""

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for command in self._commands:
            yield DiscoveryHit(_command_title(command), command.run, text=command.text)

    async def search(self, query: str) -> Hits:
        """Those that fit what was typed."""
        matcher = self.matcher(query)
        for command in self._commands:
            title = _command_title(command)
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


def _command_title(command: KeyCommand) -> str:
    """The words of a command, with its key."""
    key = command.keys.split(" ")[0]
    words = f"{command.text}: {command.about}" if command.about else command.text
    return f"{words}   ({key})" if key else words
