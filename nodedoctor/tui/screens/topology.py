"""GPU by GPU and GPU by adapter: how they are linked, over which path, and how fast it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from nodedoctor.model import Status
from nodedoctor.report.document import Finding, Result, problems_first, severity
from nodedoctor.report.inert import inert
from nodedoctor.report.matrix import LOST, Matrix, matrices, meanings, off_bus
from nodedoctor.report.page import sentence
from nodedoctor.tui.lines import boxes
from nodedoctor.tui.messages import ShowCheck
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import LABEL, QUIET, STYLE, Glyphs, Para, Part, Row
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.listing import Listing
from nodedoctor.tui.widgets.panes import Panes, PanesScreen

CELL = 6
_AROUND = ">" + " " * 5 + "NUMA"
"""What else is in a line: the cursor, blanks between the parts, the last column."""
ODD = "bold red"


class TopologyScreen(PanesScreen):
    """One line per GPU; `<` marks what is odd, enter goes to the finding about it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "cycle", "Show links, paths or speed", id="matrix"),
        Binding("enter", "jump", "Open the finding", id="jump"),
    ]
    EMPTY: ClassVar[tuple[tuple[str, str], ...]] = (("1", "Checks"), ("6", "Probes"), (":", "Commands"))
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("m", "Link, path, bandwidth"),
        ("enter", "Open the finding"),
        ("1", "Checks"),
    )

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__("topology", Panes(glyphs, reads=False, stacked=True), self.EMPTY)
        self._state: State | None = None
        self._which = 0
        self._by_hand = False
        self._glyphs = glyphs

    def on_mount(self) -> None:
        """Follow the app's state."""
        self.watch(self.app, "state", self.show)

    def on_resize(self) -> None:
        """A wide terminal has room for the adapters."""
        self.call_after_refresh(self.show, self._state)

    def show(self, state: State | None) -> None:
        """Show a new state."""
        self._state = state
        if state is None:
            return
        maps = matrices(state.report["facts"])
        if not maps:
            self.query_one("#head", Lines).show([(("topology", LABEL),)])
            self.panes.page.show("", list(_empty_paras(state)))
            self.query_one(Hints).show(self.EMPTY)
            return
        self.query_one(Hints).show(self.HINTS if len(maps) > 1 else self.HINTS[1:])
        matrix = maps[self._which % len(maps)]
        nics = _heads(matrix, self.size.width)
        self.query_one("#head", Lines).show(
            [tuple(_title_parts(matrix, len(maps))), tuple(_column_parts(matrix, nics))]
        )
        self.panes.listing.show([_row(matrix, gpu, nics) for gpu in matrix.gpus])
        if not self._by_hand:
            odd_gpus = [a for pair in matrix.odd for a in pair]
            # The first of those with most odd pairs; the first GPU where none is odd.
            self.panes.listing.select(max(matrix.gpus, key=odd_gpus.count), by_hand=False)
        self._show_gpu()

    def on_listing_moved(self, event: Listing.Moved) -> None:
        """Say what is known about the GPU under the cursor."""
        self._by_hand = self._by_hand or event.by_hand
        self._show_gpu()

    def _show_gpu(self) -> None:
        if self._state is not None and self.panes.listing.key:
            gpu = self.panes.listing.key
            maps = matrices(self._state.report["facts"])
            lines = boxes.drawing(
                maps[0], self._state.report["facts"], gpu, self.size.width - 1, self._glyphs
            )
            about = list(_gpu_paras(gpu, maps, self._gpu_results(gpu)))
            # On a small terminal what is known about the GPU comes first.
            picture = [Para(parts=line) for line in lines]
            tall = self.size.height >= len(maps[0].gpus) + 24
            first, second = (picture, about) if tall else (about, picture)
            others = [matrix for matrix in maps if matrix is not maps[self._which % len(maps)]]
            below = (
                list(_matrix_paras(others[0], self.size.width))
                if others and self._has_room_for(others[0])
                else []
            )
            between = [Para()] if lines else []
            self.panes.page.show(gpu, [*first, *between, *second, Para(), *_legend_paras(maps), *below])

    def _has_room_for(self, matrix: Matrix) -> bool:
        """Whether a second matrix fits below everything else."""
        return self.size.height >= 2 * len(matrix.gpus) + 36

    def on_listing_chosen(self) -> None:
        """Enter on a GPU."""
        self.action_jump()

    def action_cycle(self) -> None:
        """Show the next matrix."""
        maps = matrices(self._state.report["facts"]) if self._state else []
        if len(maps) < 2:
            self.notify("nothing else is known: no PCIe paths from NVML, no measured bandwidth", markup=False)
        self._which += 1
        self.show(self._state)

    def action_jump(self) -> None:
        """Go to the worst finding about this GPU."""
        results = self._gpu_results(self.panes.listing.key or "")
        if results:
            self.post_message(ShowCheck(results[0]["check"]))
        else:
            self.notify("no finding names this GPU", markup=False)

    def _gpu_results(self, gpu: str) -> list[Result]:
        results = problems_first(self._state.report["results"]) if self._state else ()
        return [
            result
            for result in results
            if any(_is_about(f["subject"], gpu) for f in _problem_findings(result))
        ]


def _problem_findings(result: Result) -> Iterator[Finding]:
    return (finding for finding in result["findings"] if severity(finding).is_problem)


def _is_about(subject: str | None, gpu: str) -> bool:
    """Whether `gpu:3` or `pair:0-3` speaks of GPU3."""
    kind, _, rest = (subject or "").partition("/")[0].partition(":")
    number = gpu.removeprefix("GPU")
    return (kind == "gpu" and rest == number) or (kind == "pair" and number in rest.split("-"))


def _matrix_paras(matrix: Matrix, width: int) -> Iterator[Para]:
    """Another matrix as lines of the page."""
    nics = _heads(matrix, width)
    yield Para()
    yield Para(parts=tuple(_title_parts(matrix, 1)))
    yield Para(parts=tuple(_column_parts(matrix, nics)))
    for gpu in matrix.gpus:
        row = _row(matrix, gpu, nics)
        yield Para(parts=(("  ", ""), (row.word, row.style), *row.parts))


def _title_parts(matrix: Matrix, count: int) -> Iterator[Part]:
    yield "topology", LABEL
    yield f"   {matrix.title}", ""
    yield (f"   {matrix.legend}" if matrix.legend else ""), QUIET
    yield (f"   m: {count - 1} more" if count > 1 else ""), QUIET


def _column_parts(matrix: Matrix, nics: Mapping[str, str]) -> Iterator[Part]:
    yield " " * (CELL + 1), ""
    yield "".join(f"{gpu:>{CELL - 1}} " for gpu in matrix.gpus) + "  ", LABEL
    if nics:
        yield "".join(f"{name:>{_cell_width(nics)}}" for name in nics.values()) + "   ", LABEL
    elif matrix.nics:
        yield f"{'nearest NIC':<16}", LABEL
    yield "NUMA" if matrix.numa else "", LABEL


def _row(matrix: Matrix, gpu: str, nics: Mapping[str, str]) -> Row:
    parts: list[Part] = []
    for peer in matrix.gpus:
        cell = matrix.cells.get((gpu, peer), "--" if gpu == peer else "?")
        is_odd = (gpu, peer) in matrix.odd
        parts.append((f"{cell:>{CELL - 1}}{'<' if is_odd else ' '}", ODD if is_odd else ""))
    parts.append(("  ", ""))
    if nics:
        for nic in nics:
            cell = matrix.paths.get((gpu, nic), "")
            parts.append((f"{cell:>{_cell_width(nics)}}", "" if cell in ("PIX", "PXB") else QUIET))
        parts.append(("   ", ""))
    elif matrix.nics:
        parts.append((f"{matrix.nearest.get(gpu, ''):<16}", ""))
    parts.append((matrix.numa.get(gpu, ""), ""))
    return Row(gpu, f"{gpu:<{CELL - 1}}", LABEL, "", parts=tuple(parts))


def _heads(matrix: Matrix, width: int) -> dict[str, str]:
    """What heads the column of each adapter; none where there is no room for a column each."""
    room = width - len(_AROUND) - (len(matrix.gpus) + 1) * CELL
    full = {nic: inert(nic)[:12] for nic in matrix.nics}
    short = {nic: inert(nic.replace("mlx5_", "mlx_"))[:8] for nic in matrix.nics}
    return next((heads for heads in (full, short) if heads and _cell_width(heads) * len(heads) <= room), {})


def _cell_width(heads: Mapping[str, str]) -> int:
    return max(5, *(len(head) + 1 for head in heads.values()))


def _gpu_paras(gpu: str, maps: list[Matrix], results: list[Result]) -> Iterator[Para]:
    matrix = maps[0]
    yield Para(gpu, style=LABEL)
    if gpu in matrix.lost:
        yield Para(f"has fallen off the bus ({matrix.lost[gpu]})", f"{LOST:<9} ", lead_style=ODD)
    if matrix.numa.get(gpu):
        cpus = f", CPUs {matrix.cpus[gpu]}" if gpu in matrix.cpus else ""
        yield Para(f"node {matrix.numa[gpu]}{cpus}", f"{'NUMA':<9} ")
    if matrix.nearest.get(gpu):
        yield Para(matrix.nearest[gpu], f"{'nearest':<9} ")
    for grid in maps:
        for value in sorted({grid.cells[pair] for pair in grid.odd if pair[0] == gpu} - {LOST}):
            peers = [b for a, b in sorted(grid.odd) if a == gpu and grid.cells[a, b] == value]
            text = f"{value} to {', '.join(peers)}; {grid.why}"
            yield Para(text, f"{'odd':<9} ", lead_style=ODD)
    for result in results:
        for finding in _problem_findings(result):
            if _is_about(finding["subject"], gpu):
                status = Status(finding["status"])
                yield Para(
                    f"{result['check']}  {sentence(finding)}", f"{status.word:<9} ", lead_style=STYLE[status]
                )


def _legend_paras(maps: Sequence[Matrix]) -> Iterator[Para]:
    for token, meaning in meanings(maps):
        yield Para(meaning, f"{token:<9} ", QUIET, QUIET)


def _empty_paras(state: State) -> Iterator[Para]:
    yield Para("No link between GPUs is known here." if not state.running else "Nothing is known yet.")
    for gpu, address in off_bus(state.report["facts"]).items():
        yield Para(f"{gpu} has fallen off the bus ({address})", style=ODD)
    yield Para()
    for probe in state.report["probes"]:
        if probe["name"] in ("nvml", "nvidia-smi-topo"):
            note = (probe["note"] or "").partition("\n")[0] or probe["outcome"]
            yield Para(inert(note), f"{probe['name']:<16} ")
