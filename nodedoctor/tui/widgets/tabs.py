"""The line at the top: every screen with its key, and a mark on those that have something to say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.cells import cell_len
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from nodedoctor.model import Outcome, Status
from nodedoctor.report.document import severity
from nodedoctor.report.inert import inert
from nodedoctor.report.matrix import off_bus
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import QUIET, STYLE, Part
from nodedoctor.tui.widgets.lines import strip

NAMES = {
    "checks": ("1", "Checks"),
    "topology": ("2", "Topology"),
    "live": ("3", "Live"),
    "triage": ("4", "Triage"),
    "compare": ("5", "Compare"),
    "probes": ("6", "Probes"),
    "fleet": ("7", "Fleet"),
}
NARROW = 78
"""Cells from which there is room for all names and marks."""
_LINKS = ("nvlink", "topo", "p2p", "fabric")
"""Subjects of checks about what the Topology screen draws."""
_UNANSWERED = (Outcome.STUCK.value, Outcome.TIMEOUT.value, Outcome.CRASH.value)
Badge = tuple[str, Status]


class Tabs(Widget):
    """Keys and names; the screen that is open in reverse."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self._mode = mode
        self._badges: Mapping[str, Badge] = {}
        self._host = ""

    def on_mount(self) -> None:
        """Follow what the screens are made from."""
        self.watch(self.app, "state", self._follow_host)
        self.watch(self.app, "badges", self._show_badges)

    def on_click(self, event: events.Click) -> None:
        """Open the screen under the pointer."""
        edge = 0
        for mode, parts in self._tab_parts():
            edge += sum(cell_len(text) for text, _ in parts)
            if event.x < edge:
                self.app.run_worker(self.app.run_action(f"open('{mode}')"))
                return

    def render_line(self, y: int) -> Strip:
        """The tabs, and which node this is, at the right."""
        parts = [part for _, tab in self._tab_parts() for part in tab]
        room = self.size.width - sum(cell_len(text) for text, _ in parts)
        if self._host and self._mode != "checks" and len(self._host) < room:
            parts.append((f"{self._host:>{room}}", QUIET))
        return strip(parts, self.size.width, self.rich_style)

    def _tab_parts(self) -> Iterator[tuple[str, list[Part]]]:
        short = self.size.width < NARROW
        for mode, (key, name) in NAMES.items():
            here = mode == self._mode
            mark, status = self._badges.get(mode, ("", Status.PASS))
            name = name[:4] if short and not here else name
            parts = [(f"{key} ", "bold"), (name, "bold reverse" if here else "")]
            yield mode, [*parts, (mark, STYLE[status]), ("  ", "")]

    def _follow_host(self, state: State | None) -> None:
        if state is not None:
            host = inert(str(state.report["node"].get("hostname") or ""))
            if host != self._host:
                self._host = host
                self.refresh()

    def _show_badges(self, badges: Mapping[str, Any]) -> None:
        if badges != self._badges:
            self._badges = dict(badges)
            self.refresh()


def badges_of(state: State) -> dict[str, Badge]:
    """What the node's report has to say on each screen."""
    badges: dict[str, Badge] = {}
    if state.report["causes"] and not state.running:
        worst = state.report["causes"][0]
        badges["checks"] = (f"({len(state.report['causes'])})", Status(worst["status"]))
    links = [
        finding
        for result in state.report["results"]
        if result["check"].partition(".")[0] in _LINKS and result["check"] not in state.running
        for finding in result["findings"]
        if finding["status"] in ("fail", "warn")
    ]
    if off_bus(state.report["facts"]):
        badges["topology"] = ("!", Status.FAIL)
    elif links:
        badges["topology"] = ("!", Status(max(links, key=severity)["status"]))
    if count := sum(probe["outcome"] in _UNANSWERED for probe in state.report["probes"]):
        badges["probes"] = (f"({count})", Status.UNKNOWN)
    return badges
