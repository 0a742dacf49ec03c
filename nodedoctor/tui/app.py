"""The Textual app: it owns the state, and every screen is made from it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.reactive import var
from textual.screen import Screen
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.widgets import Input

from nodedoctor.model import Status
from nodedoctor.tui.driver import NodeDoctorDriver
from nodedoctor.tui.keys import (
    ELSEWHERE,
    EVERYWHERE,
    LOOK,
    PALETTE,
    Commands,
    GoToCheck,
    KeyCommand,
    section_of,
)
from nodedoctor.tui.messages import Mark, OpenNode, ShowCheck, ShowProbe
from nodedoctor.tui.screens.checks import ChecksScreen
from nodedoctor.tui.screens.steps import StepsScreen
from nodedoctor.tui.state import Engine, RequestRefused, State, file_name
from nodedoctor.tui.theme import ASCII, UNICODE, is_light
from nodedoctor.tui.widgets.prompt import Prompt, ask
from nodedoctor.tui.widgets.tabs import Badge, badges_of

if TYPE_CHECKING:
    from textual.dom import DOMNode
    from textual.events import Resize
    from textual.geometry import Size

    from nodedoctor.report.document import Report
    from nodedoctor.tui.lines.nodes import Round

INTERRUPTED = 130
SCREENS = ("checks", "topology", "live", "triage", "compare", "probes", "fleet")
"""The modes, each with a module and a class of its name."""
OF_NODE = ("checks", "topology", "probes")
"""Screens whose tabs are marked by the report alone."""
PROMPTING = ("save", "compare", "open_logs")
"""Actions that ask for a path."""
TMUX_TIMEOUT_S = 2.0
"""Seconds tmux may take for a buffer; it answers in milliseconds."""


class PlainBar(ScrollBarRender):
    """A scroll bar of whole cells: no characters that a font or locale may lack."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "] * 8


class NodeDoctor(App[None]):
    """nodedoctor on a terminal."""

    TITLE = "nodedoctor"
    CSS_PATH = "nodedoctor.tcss"
    DEFAULT_MODE = "checks"
    NOTIFICATION_TIMEOUT = 10
    """Seconds a message stays without a key; the next key takes it away."""
    ended_by = 0
    """The signal that ended the screen, if one did."""
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide"), (160, "-broad")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (16, "-tall")]  # noqa: RUF012
    COMMANDS = {Commands, GoToCheck}  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [*EVERYWHERE]

    # A var, not a reactive: that one would draw the whole screen whenever a second has gone by.
    state: var[State | None] = var(None, always_update=True)
    round: var[Round | None] = var(None, always_update=True)
    badges: var[Mapping[str, Badge]] = var({})

    def __init__(
        self,
        engine: Engine,
        *,
        ascii: bool = False,
        first: str = "checks",
        triage: Mapping[str, Any] | None = None,
        measured: Mapping[str, Any] | None = None,
        triage_again: Sequence[str] = (),
        rounds: AsyncIterator[Round] | None = None,
        mouse: bool = False,
    ) -> None:
        super().__init__(driver_class=NodeDoctorDriver, ansi_color=True)
        self.theme = "ansi-light" if is_light(os.environ) else "ansi-dark"
        self.engine = engine
        self.glyphs = ASCII if ascii else UNICODE
        self.copied: list[str] = []
        self.refused = ""
        self._mouse, self._wants_mouse = False, mouse
        self._shown_at: Size | None = None
        self._first = first
        self._document, self._triage_again = triage, triage_again
        self._measured = measured
        self._rounds = rounds
        self.set_class(ascii, "-ascii")
        ScrollBar.renderer = PlainBar
        for mode in SCREENS if measured is None else (*SCREENS, "measured"):
            self.add_mode(mode, partial(self._import_screen, mode))

    async def on_mount(self) -> None:
        """Follow the runs, and go to the screen that was asked for."""
        if self.engine.latest is not None:
            self.state = self.engine.latest
        self._follow_states()
        # Textual draws nothing when it is continued in a terminal of the same size.
        self.app_resume_signal.subscribe(self, lambda _: self.action_repaint())
        self.set_mouse(self._wants_mouse)
        if self._rounds is not None:
            self._follow_fleet(self._rounds)
        if self._measured is not None:
            await self.switch_mode("measured")
        elif self._document is not None:
            await self.show_triage(self._document, self._triage_again)
        elif self._first != self.DEFAULT_MODE:
            await self.switch_mode(self._first)

    async def on_event(self, event: events.Event) -> None:
        """Messages go with the next key."""
        if isinstance(event, events.Key) and not event.is_forwarded and self._notifications:
            self.clear_notifications()
        await super().on_event(event)

    def on_resize(self, event: Resize) -> None:
        """A terminal of another size shows another picture: it has cut lines, or folded them."""
        if self._shown_at not in (None, event.size):  # the first of these events only tells the size
            self.action_repaint()
        self._shown_at = event.size

    def watch_state(self, state: State | None) -> None:
        """Mark the tabs that have something to say."""
        if state is not None:
            others = {mode: badge for mode, badge in self.badges.items() if mode not in OF_NODE}
            self.badges = {**others, **badges_of(state)}

    def on_mark(self, message: Mark) -> None:
        """Mark the tab of a screen, or take the mark away."""
        others = {mode: badge for mode, badge in self.badges.items() if mode != message.mode}
        bad = next((s for s in (Status.FAIL, Status.UNKNOWN, Status.WARN) if s.word == message.word), None)
        self.badges = {**others, message.mode: (message.figure, bad)} if bad else others

    def copy_to_clipboard(self, text: str) -> None:
        """Copy, and remember it: a terminal may drop the copy without a word, so it is printed at the end."""
        super().copy_to_clipboard(text)
        self.copied = [*(earlier for earlier in self.copied if earlier != text), text]
        in_tmux = bool(os.environ.get("TMUX"))
        if in_tmux:
            self.run_worker(self._give_to_tmux(text), group="tmux")
        # No terminal answers whether it took the copy.
        place = "your terminal and tmux" if in_tmux else "your terminal"
        self.notify(f"sent to {place}; printed again when you leave", markup=False)

    async def _give_to_tmux(self, text: str) -> None:
        """A tmux of its default settings drops what a program copies, so it gets a buffer of its own."""
        from nodedoctor.children import child_process
        from nodedoctor.declare.registry import Command

        command = Command(("tmux", "load-buffer", "-w", "-"), stdin=text.encode())
        await child_process.run("tmux", command, TMUX_TIMEOUT_S)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Letters that open a prompt are letters in one, and the keys of steps where those are listed."""
        if action not in PROMPTING:
            return True
        return not isinstance(self.focused, Input) and not isinstance(self.screen, StepsScreen)

    def action_open(self, mode: str) -> None:
        """Go to another screen; help and other pages on top of this one are left."""
        self._leave_pages()
        self.switch_mode(mode)

    def action_home(self) -> None:
        """Back to the first screen, or to the fleet or the rates where that is what was opened."""
        many = "measured" if self._measured is not None else "fleet" if self.round is not None else ""
        first = many or self.DEFAULT_MODE
        if self.current_mode != first:
            self.switch_mode(first)

    def action_repaint(self) -> None:
        """Draw everything again: others may have written on this terminal."""
        if isinstance(self._driver, NodeDoctorDriver):
            self._driver.forget()
        self.screen.refresh()

    def action_mouse(self) -> None:
        """Take the mouse for wheel and clicks, or leave it to the terminal, which then selects text."""
        self.set_mouse(not self._mouse)
        words = "clicks, wheel, and selecting copies" if self._mouse else "left to the terminal"
        self.notify(f"mouse: {words}", markup=False)

    def set_mouse(self, on: bool) -> None:
        """Ask the terminal for buttons, the wheel and moves with a button held, never for every move."""
        if on != self._mouse and self._driver is not None:
            self._mouse = on
            self._driver.write(
                "\x1b[?1000h\x1b[?1002h\x1b[?1006h" if on else "\x1b[?1006l\x1b[?1002l\x1b[?1000l"
            )
            self._driver.flush()

    def on_text_selected(self) -> None:
        """Copy what was selected with the mouse, when the button is released."""
        if text := (self.screen.get_selected_text() or "").strip():
            self.copy_to_clipboard(text)

    def on_unmount(self) -> None:
        """Leave the mouse to the terminal."""
        self.set_mouse(False)

    def _leave_pages(self) -> None:
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def action_rerun_all(self) -> None:
        """Ask everything again."""
        if self.engine.about.nothing:
            self.notify("this was read from a file: there is nothing to ask again", markup=False)
        elif self.state is not None and self.state.running:
            self.notify(f"{len(self.state.running)} checks are still running", markup=False)
        else:
            self.notify("all checks are run again", markup=False)
            self.engine.again()

    async def action_save(self) -> None:
        """Ask where to keep what was seen."""
        if self.engine.about.nothing:
            self.notify("this was read from a file: nothing was recorded here", markup=False)
        elif self.state is not None:
            await self._ask_path(
                "save as", file_name(self.state.report, self.engine.about.redact), self._save_path
            )

    async def action_compare(self) -> None:
        """Ask what to compare with."""
        await self._ask_path("compare with (.json report, .zip or folder of a recorded node)", "", self._read)

    def action_help(self) -> None:
        """Show what the keys do here."""
        from nodedoctor.tui.screens.help import HelpScreen

        keys = [command for command in self._keys(self.screen) if command.keys]
        self.push_screen(HelpScreen(keys, self.glyphs))

    def commands(self, screen: Screen[Any]) -> list[KeyCommand]:
        """Everything that can be done on a screen, the most useful first."""
        commands = self._keys(screen)
        commands.append(KeyCommand("", "Open logs", self.action_open_logs, ELSEWHERE, "why a job died"))
        commands.append(KeyCommand("", "List what could not be judged", self.show_unseen, LOOK))
        return sorted(commands, key=lambda command: PALETTE.index(command.section))

    async def show_unseen(self) -> None:
        """List what could not be judged, and how to make it visible."""
        await self.switch_mode("checks")
        if isinstance(self.screen, ChecksScreen):
            self.screen.set_filter("is:unknown")

    async def on_show_check(self, message: ShowCheck) -> None:
        """Go to a check from another screen."""
        self._leave_pages()
        await self.switch_mode("checks")
        if isinstance(self.screen, ChecksScreen):
            self.screen.select(message.check)

    async def on_show_probe(self, message: ShowProbe) -> None:
        """Go to what a probe printed, at the line that is the evidence."""
        from nodedoctor.tui.screens.probes import ProbesScreen

        await self.switch_mode("probes")
        if isinstance(self.screen, ProbesScreen):
            self.screen.select(message.evidence)

    async def on_open_node(self, message: OpenNode) -> None:
        """Make one node's report the one that all other screens show."""
        self.run_worker(self._open_node(message), group="node", exclusive=True)

    async def _open_node(self, message: OpenNode) -> None:
        from nodedoctor.cli.compare import CompareError
        from nodedoctor.tui.process import reading

        try:
            self.state = State(await reading.document(message.report))
        except CompareError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        await self.switch_mode("checks")

    def exit(self, result: None = None, return_code: int = 0, message: Any = None) -> None:
        """Leave, at once."""
        if isinstance(self._driver, NodeDoctorDriver):
            self._driver.leaving = True
        super().exit(result, return_code, message)

    def action_interrupt(self) -> None:
        """Leave the way ctrl+c leaves everything else."""
        self.exit(return_code=INTERRUPTED)

    def _keys(self, screen: Screen[Any]) -> list[KeyCommand]:
        """What every key does here that a person may want to know.

        Of two with the same key the first works, and the other has none.
        """
        bindings: dict[str, tuple[list[str], Binding, DOMNode]] = {}
        ids: dict[str, str] = {}
        inside = screen.focused.ancestors if screen.focused else ()
        for owner in dict.fromkeys((screen, *([screen.focused] if screen.focused else ()), *inside, self)):
            for key, binding in owner._bindings:
                if binding.id and binding.show:
                    keys, _, _ = bindings.setdefault(binding.id, ([], binding, owner))
                    if ids.setdefault(key, binding.id) == binding.id and bindings[binding.id][2] is owner:
                        keys.append(self.get_key_display(binding))
        return [
            KeyCommand(
                " ".join(keys),
                binding.description,
                partial(self.run_action, binding.action, owner),
                section_of(id),
                binding.tooltip if id.startswith("screen-") else "",
            )
            for id, (keys, binding, owner) in bindings.items()
        ]

    def get_key_display(self, binding: Binding) -> str:
        """A key by its name where Textual has a character that a font or locale may lack."""
        shown = super().get_key_display(binding)
        return binding.key if binding.key.startswith("ctrl+") or not shown.isascii() else shown

    async def _ask_path(self, label: str, value: str, done: Callable[[str | None], None]) -> None:
        await ask(self.screen, Prompt(label, value, done))

    def _read(self, path: str | None) -> None:
        if path:
            self.run_worker(self._compare_with(path), group="compare", exclusive=True)

    async def _compare_with(self, path: str) -> None:
        self.notify(f"reading {path}", markup=False)
        from nodedoctor.cli.compare import CompareError
        from nodedoctor.tui.process import reading

        try:
            document = await reading.document(path)
        except CompareError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        await self.show_comparison(document)

    async def show_comparison(self, document: Report) -> None:
        """Go to the Compare screen, with a saved report as the other side."""
        from nodedoctor.tui.screens.compare import CompareScreen

        await self.switch_mode("compare")
        if isinstance(self.screen, CompareScreen):
            self.screen.against(document)

    async def action_open_logs(self) -> None:
        """Ask for the logs of a job, or what was mailed of a node."""
        await self._ask_path("logs of a job, or outputs of a node (a file or a folder)", "", self._read_logs)

    async def show_triage(self, document: Mapping[str, Any], again: Sequence[str] = ()) -> None:
        """Go to the Triage screen with a document, and the words that read its logs again."""
        from nodedoctor.tui.screens.triage import TriageScreen

        await self.switch_mode("triage")
        if isinstance(self.screen, TriageScreen):
            self.screen.open(document, again)

    def _read_logs(self, path: str | None) -> None:
        if path:
            self.run_worker(self._triage_of(path), group="triage", exclusive=True)

    async def _triage_of(self, path: str) -> None:
        """Show logs as a verdict, and what is no log of a job as the node whose outputs it is."""
        from nodedoctor.cli.compare import CompareError
        from nodedoctor.tui.process import reading

        self.notify(f"reading {path}", markup=False)
        verdict, refused = None, ""
        try:
            verdict = await reading.triage(path)
        except CompareError as error:
            refused = str(error)
        report = None
        if verdict is None or verdict.get("outcome") == "nothing":
            with suppress(CompareError):
                report = await reading.pasted(path)
        if report is not None:
            self.state = State(report)
            await self.switch_mode("checks")
        elif verdict is not None:
            await self.show_triage(verdict, () if path.endswith(".json") else (path,))
        else:
            self.notify(refused, severity="error", markup=False)

    def _save_path(self, path: str | None) -> None:
        if path:
            self.run_worker(self._write_recording(path), group="save")

    async def _write_recording(self, path: str) -> None:
        from nodedoctor.cli import headless  # loads the engine, which runs in a process of its own

        problem = await headless.write(path, await self.engine.recording())
        message = f"{path}: {problem}" if problem else f"saved {path}"
        self.notify(message, severity="error" if problem else "information", markup=False)

    @work(exclusive=True, group="follow")
    async def _follow_states(self) -> None:
        try:
            async for state in self.engine.states():
                self.state = state
        except RequestRefused as refused:
            self.refused = str(refused)
            self.exit()

    @work(exclusive=True, group="fleet")
    async def _follow_fleet(self, rounds: AsyncIterator[Round]) -> None:
        from nodedoctor.fleet.model import FleetError

        try:
            async for now in rounds:
                self.round = now
        except FleetError as error:
            self.refused = str(error)
            self.exit()

    def _import_screen(self, mode: str) -> Screen[None]:
        """The screen of a mode, imported when it is first opened.

        It counts as styled by the latest theme, which has not changed since it was parsed: Textual would
        parse every style again for each new screen, 15 ms before the first picture.
        """
        module = import_module(f"nodedoctor.tui.screens.{mode}")
        engine = (self.engine,) if mode in ("checks", "live", "probes") else ()
        measured = (self._measured,) if mode == "measured" else ()
        screen: Screen[None] = getattr(module, f"{mode.title()}Screen")(*engine, self.glyphs, *measured)
        screen._css_update_count = self._css_update_count
        return screen
