"""What the node does now: every GPU, who is late, the host, its ports, the kernel log as it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.facts.gpu.gpu import LostGpu
from nodedoctor.facts.gpu.nvml.watch import LoadSample, sample_of
from nodedoctor.json_shapes import loaded
from nodedoctor.model import Status
from nodedoctor.report.document import problems_first, severity
from nodedoctor.report.inert import inert
from nodedoctor.report.page import sentence
from nodedoctor.tui.lines import empty_state, hardware, host_load, load
from nodedoctor.tui.lines.tiles import devices
from nodedoctor.tui.messages import Mark
from nodedoctor.tui.process.kernel import kernel_lines
from nodedoctor.tui.state import Engine, State
from nodedoctor.tui.theme import LABEL, QUIET, RUN, STYLE, Glyphs, Para
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.listing import Listing
from nodedoctor.tui.widgets.panes import Panes, PanesScreen

INTERVAL = 1.0
LOG_LINES = 200


class LiveScreen(PanesScreen):
    """One line per GPU; below it the selected GPU, the host and the kernel log."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause", id="pause"),
    ]
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("space", "Pause"),
        ("enter", "Read"),
        ("z", "Zoom"),
        ("1", "Checks"),
    )
    EMPTY: ClassVar[tuple[tuple[str, str], ...]] = (("1", "Checks"), ("6", "Probes"), (":", "Commands"))

    def __init__(self, engine: Engine, glyphs: Glyphs) -> None:
        super().__init__("live", Panes(glyphs, stacked=True), self.HINTS)
        self._engine = engine
        self._glyphs = glyphs
        self._state: State | None = None
        self._sample = LoadSample()
        self._nvml_problem = ""
        self._host: dict[str, Any] = {}
        self._ports: list[dict[str, Any]] = []
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._history = load.History()
        self._paused = self._by_hand = False

    @property
    def recorded(self) -> bool:
        """Whether the node shown is not this machine: then nothing here is asked."""
        return self._engine.about.recorded

    def on_mount(self) -> None:
        """Follow the app's state, and this machine unless the node is a recorded one."""
        self.watch(self.app, "state", self.show)
        if not self.recorded:
            self._follow_gpus()
            self._follow_host()
            self._follow_ports()
            self._follow_log()

    def on_resize(self) -> None:
        """Columns depend on the width."""
        self.call_after_refresh(self._draw_loads)

    def show(self, state: State | None) -> None:
        """Show a new state: it knows who is which rank."""
        self._state = state
        if state is not None and self.recorded:
            facts = state.report["facts"] or {}
            self._sample = LoadSample(loads=tuple(load.recorded(facts)), lost=hardware.lost_gpus(facts))
            self.query_one(Hints).show(self.HINTS[1:] if self._sample.loads else self.EMPTY)
        self._draw_loads()

    def on_listing_moved(self, event: Listing.Moved) -> None:
        """Show the GPU under the cursor."""
        self._by_hand = self._by_hand or event.by_hand
        self._draw_page()

    def action_pause(self) -> None:
        """Hold the picture; readings go on."""
        self._paused = not self._paused
        self._draw_loads(now=True)

    @work(group="gpus")
    async def _follow_gpus(self) -> None:
        """NVML in a child: where it hangs, the line that names the waiting call is all that comes."""
        argv = child("gpu/nvml", "--watch", str(INTERVAL), packages=True)
        before: LoadSample | None = None
        async for line in child_process.follow(Command(argv)):
            sample = sample_of(line, before)
            if sample is None:
                continue
            self._nvml_problem = _nvml_problem(sample)
            if sample.time_seconds is not None:
                before = self._sample = sample
                self._history.add(sample.loads)
            self._draw_loads()
        self._nvml_problem = self._nvml_problem or "NVML says no more: its child has ended"
        self._draw_loads()

    @work(group="host")
    async def _follow_host(self) -> None:
        async for reading in self._host_lines():
            self._host = reading
            self._draw_loads()

    @work(group="ports")
    async def _follow_ports(self) -> None:
        async for reading in self._host_lines("--infiniband"):
            ports = reading.get("ports")
            self._ports = (
                [port for port in ports if isinstance(port, dict)] if isinstance(ports, list) else []
            )

    @work(group="log")
    async def _follow_log(self) -> None:
        async for line in kernel_lines():
            self._log.append(line)
            self._draw_page()

    async def _host_lines(self, *words: str) -> Any:
        root = self._engine.about.root
        argv = child("host/host_watch", str(INTERVAL), "--root", root, *words)
        async for line in child_process.follow(Command(argv)):
            try:
                reading = loaded(line)
            except ValueError:
                continue
            if isinstance(reading, dict):
                yield reading

    def _draw_loads(self, now: bool = False) -> None:
        if not self.is_mounted or (self._paused and not now):
            return
        loads, late = self._sample.loads, load.stragglers(self._sample.loads)
        width = self.size.width - 1
        words = ("PAUSED   " if self._paused else "") + load.waiting_words(loads)
        ranks = _ranks(self._state)
        title = [
            ("live", LABEL),
            (f"   {words}", "bold red") if words else (f"   {self._source_words()}", QUIET),
        ]
        shown = load.layout(loads, width, self._history)
        self.query_one("#head", Lines).show([tuple(title), load.heads(shown) if loads else ()])
        lost_gpus = self._lost_gpus()
        rows = {
            gpu.gpu.index: load.row(gpu, gpu.gpu.index in late, self._history, shown, self._glyphs, ranks)
            for gpu in loads
        } | {index: hardware.lost_row(gpu) for index, gpu in lost_gpus.items()}
        self.panes.listing.show([rows[index] for index in sorted(rows)])
        self.post_message(Mark("live", Status.FAIL.word if late or lost_gpus else ""))
        if not self._by_hand:
            suspects = (
                lost_gpus or late or [gpu.gpu.index for gpu in loads if any(self._findings(gpu.gpu.index))]
            )
            self.panes.listing.select(str(min(suspects, default=0)), by_hand=False)
        self._draw_page()

    def _draw_page(self) -> None:
        key = self.panes.listing.key
        self.panes.page.show(f"gpu {key}", list(self._paras(key)))

    def _paras(self, key: str | None) -> Iterator[Para]:
        if self._nvml_problem:
            yield Para(inert(self._nvml_problem), f"{'nvml':<9} ", lead_style=RUN)
        ranks, lost_gpus = _ranks(self._state), self._lost_gpus()
        for index, lost_gpu in lost_gpus.items():
            if str(index) == key:
                yield Para(hardware.lost_reason(lost_gpu), f"GPU{index}  ")
                yield from self._findings(index)
        for gpu in self._sample.loads:
            if str(gpu.gpu.index) == key and gpu.gpu.index not in lost_gpus:
                yield from load.about(gpu, ranks)
                yield from self._findings(gpu.gpu.index)
        yield from host_load.host_lines(self._host, self._ports)
        if self.recorded and not self._sample.loads:
            yield from empty_state.page("live")
        if self.recorded and self._state is not None:
            yield from hardware.page(self._state.report["facts"] or {}, self.size.width - 1)
        if not self._log and not self.recorded:
            yield Para("nothing yet", f"{'kernel':<9} ", QUIET)
        for number, line in enumerate(reversed(self._log)):
            yield Para(inert(line)[:2000], f"{'kernel' if number == 0 else '':<9} ", verbatim=True)

    def _lost_gpus(self) -> dict[int, LostGpu]:
        """The GPUs of which nothing is read, by number."""
        lost_gpus = (*self._sample.lost, *load.newly_lost(self._sample.loads))
        return {gpu.index: gpu for gpu in lost_gpus if gpu.index is not None}

    def _findings(self, index: int) -> Iterator[Para]:
        """What checks found about a GPU."""
        for result in problems_first(self._state.report["results"]) if self._state else ():
            for finding in result["findings"]:
                if severity(finding).is_problem and f"gpu:{index}" in devices(finding["subject"] or ""):
                    status = Status(finding["status"])
                    text = f"{result['check']}  {sentence(finding)}"
                    yield Para(text, f"{status.word:<9} ", lead_style=STYLE[status])

    def _source_words(self) -> str:
        if self.recorded:
            return "a recorded node: " + (
                "one reading" if self._sample.loads else "no reading of a GPU in it"
            )
        if self._sample.loads:
            return f"every {INTERVAL:.0f} s"
        if self._state is not None and self._state.report["node"].get("gpus_on_bus") == 0:
            return "no NVIDIA GPU in this machine; host and kernel log below"
        return "no GPU can be read here" if self._nvml_problem else "waiting for the first reading"


def _nvml_problem(sample: LoadSample) -> str:
    if sample.init_error:
        return f"{sample.init_error.name}: {sample.init_error.text}"
    return f"the driver does not answer {sample.waiting}" if sample.waiting else ""


def _ranks(state: State | None) -> dict[int, str]:
    """Who is which rank, by pid."""
    facts = state.report["facts"] if state else {}
    fact = facts.get("processes")
    rows = fact.get("processes") if isinstance(fact, dict) else None
    names: dict[int, str] = {}
    for process in rows or ():
        if isinstance(process, dict) and process.get("role"):
            who = process["role"] if process.get("rank") is None else f"rank {process['rank']}"
            names[process["pid"]] = f"{who} {process.get('script') or ''}".strip()
    return names
