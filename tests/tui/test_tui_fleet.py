"""The Fleet screen, driven by keys: the odd ones first, the matrix, a node's report on all other screens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from tuidriver import Act, check_frame, frame, press, rack, until

from nodedoctor.fleet.model import Fleet, Node, NodeCause, Oddity, Problem, ValueGroup
from nodedoctor.model import Severity, Status
from nodedoctor.nodeset import expand
from nodedoctor.report.json import document
from nodedoctor.report.json import render as rendered
from nodedoctor.tui.app import NodeDoctor
from nodedoctor.tui.lines import matrix, node_pages, nodes
from nodedoctor.tui.lines.nodes import Round
from nodedoctor.tui.screens.checks import ChecksScreen
from nodedoctor.tui.state import Nothing
from nodedoctor.tui.theme import UNICODE

GOOD = {"nvlink.links": Status.PASS, "ib.state": Status.PASS, "driver.answers": Status.PASS}
HOSTS = expand("gpu-[001-120]")


def _node(host: str, *problems: Problem, report: str = "") -> Node:
    verdict = max(problems, key=lambda p: p.severity).status if problems else Status.PASS
    statuses = {**GOOD, **{problem.check: problem.status for problem in problems}}
    counts = {status.value: sum(s is status for s in statuses.values()) for status in Status}
    return Node(
        host, seconds=1.2, verdict=verdict, problems=problems, statuses=statuses, counts=counts, report=report
    )


def fleet(report: str = "") -> Fleet:
    links = Problem("nvlink.links", "gpu:3", Status.FAIL, "16 of 18 NVLinks up; down: 4, 11", "reset-gpu")
    rail = Problem("ib.state", "mlx5_4", Status.WARN, "trained at 200 of 400 Gb/s", "investigate")
    special = {
        "gpu-017": _node("gpu-017", links, report=report),
        "gpu-020": _node("gpu-020", rail, links),
        "gpu-021": _node("gpu-021", rail, links),
        "gpu-099": Node("gpu-099", "silent", "no answer in 50 s"),
        "gpu-100": Node("gpu-100", "unreachable", "ssh: connect to host gpu-100 port 22: No route to host"),
    }
    nodes = tuple(special.get(host) or _node(host) for host in HOSTS)
    usual = ValueGroup("570.86.10", tuple(host for host in HOSTS if host != "gpu-120"))
    odd = Oddity(
        "driver",
        "NVIDIA driver",
        Status.WARN,
        "gpu-120 has 550.54.15; 119 others 570.86.10",
        "NCCL negotiates features by driver; one older node holds all others back.",
        (usual, ValueGroup("550.54.15", ("gpu-120",))),
        usual,
        ("gpu-120",),
        "Install the driver of the others on gpu-120.",
    )
    return Fleet("0.1.0", "ssh", "2026-11-21T05:33:34Z", 4.2, nodes, (odd,))


def sit(rounds: Sequence[Round], act: Act, size: tuple[int, int] = (80, 24)) -> NodeDoctor:
    async def answering() -> AsyncIterator[Round]:
        for one in rounds:
            yield one

    async def run() -> NodeDoctor:
        app = NodeDoctor(Nothing(), first="fleet", rounds=answering())
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.round is rounds[-1])
            await act(app, pilot)
        return app

    return asyncio.run(run())


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
def test_what_it_looks_like(size: tuple[int, int]):
    stations = [
        ("list", ""),
        ("odd", "G k k"),
        ("matrix", "m"),
        ("all", "m p G"),
        ("filter", "slash m l x 5 enter"),
    ]

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        for name, keys in stations:
            await press(*keys.split())(app, pilot)
            await pilot.pause()
            check_frame(f"fleet-{name}-{size[0]}x{size[1]}", frame(app))

    sit([Round(fleet())], act, size)


@pytest.mark.slow
def test_enter_opens_a_nodes_report_on_every_screen(tmp_path: Path):
    report = tmp_path / "gpu-017.json"
    report.write_text(rendered(document(asyncio.run(rack(tmp_path).diagnosis().run()))))
    shown = []

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("enter", "j", "enter")(app, pilot)
        await until(pilot, lambda: isinstance(app.screen, ChecksScreen))
        shown.append(frame(app))
        await press("2")(app, pilot)
        shown.append(frame(app))
        await press("1", "escape")(app, pilot)
        shown.append(frame(app))

    sit([Round(fleet(str(report)))], act)
    checks, topology, back = shown
    assert "\ngpu-a3-017" in checks and "rack.links" in checks and "7 Fleet" in checks
    assert "\ntopology" in topology and "GPU0" in topology
    assert "> FAIL         gpu-017" in back


def test_a_report_that_is_gone_is_said(tmp_path: Path):
    shown = []

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("enter", "j", "enter")(app, pilot)
        await until(pilot, lambda: any("No such file" in note.message for note in app._notifications))
        shown.append(frame(app))

    sit([Round(fleet(str(tmp_path / "gone.json")))], act)
    assert "> FAIL         gpu-017" in shown[0]


def test_nodes_with_the_same_cause_are_one_line_with_a_command_to_type():
    def sick(host: str, gpu: int) -> Node:
        said = f"provider: GPU {gpu} lost 2 NVLinks; request a replacement"
        root = Problem("nvlink.links", f"gpu:{gpu}", Status.FAIL, "16 of 18 NVLinks up", "reset-gpu")
        shown = Problem("kernel.xid", f"gpu:{gpu}", Status.FAIL, "Xid 74 (2 times)")
        cause = NodeCause(
            "nvlink.links",
            Status.FAIL,
            said,
            f"nvidia-smi nvlink -s -i {gpu}",
            (root.id, shown.id),
            f"GPU {gpu} lost 2 NVLinks",
            "provider",
            "replace-node",
        )
        return replace(_node(host, root, shown), cause=said, causes=(cause,))

    nodes_ = list(fleet().nodes)
    for at, gpu in ((2, 3), (6, 3), (7, 5)):
        nodes_[at] = sick(nodes_[at].host, gpu)
    shown = []

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        for keys in ((), ("enter",), ("j", "j"), ("escape", "c")):
            await press(*keys)(app, pilot)
            shown.append(frame(app))

    app = sit([Round(replace(fleet(), nodes=tuple(nodes_)))], act)
    folded, opened, node, again = shown
    assert re.search(r"> FAIL PROV  ► 3 nodes +GPU 3 lost 2 NVLinks.*; request a replacement", folded)
    assert "owner     provider; request a replacement" in folded and "FAIL PROV    gpu-003" not in folded
    assert "first     $ nvidia-smi nvlink -s -i 3\n          on gpu-003" in folded
    lines = opened.splitlines()
    first = next(number for number, line in enumerate(lines) if "▼ 3 nodes" in line)
    members = ["gpu-003", "gpu-007", "gpu-008"]
    assert [line.split()[2] for line in lines[first + 1 : first + 4]] == members
    assert "GPU 5 lost 2 NVLinks" in lines[first + 3]
    assert "> FAIL PROV    gpu-007" in node and "follows   kernel.xid" in node
    assert "$ nvidia-smi nvlink -s -i 3\n          on gpu-007" in node
    assert "  gpu-003  " not in again and "> FAIL PROV  ► 3 nodes" in again
    assert app.copied == ["gpu-[003,007-008]"]


def _keys(whole: Fleet, **options: Any) -> list[str]:
    return [entry.key for entry in nodes.entries(whole, glyphs=UNICODE, **options)]


def _caused(host: str, *headlines: str, owner: str = "administrator") -> Node:
    causes = tuple(
        NodeCause(
            "driver.answers",
            Status.FAIL,
            explains=("driver.answers",),
            headline=said,
            owner=owner,
            action="reboot",
        )
        for said in headlines
    )
    return replace(_node(host, Problem("driver.answers", "", Status.FAIL, "no answer")), causes=causes)


def test_a_node_is_below_each_of_its_causes():
    whole = Fleet("0", "ssh", "", 0.0, (_caused("n1", "a", "b"), _caused("n2", "a"), _caused("n3", "b")))
    groups = nodes.entries(whole, glyphs=UNICODE)
    assert [(entry.summary, entry.hosts) for entry in groups[:2]] == [("a", "n[1-2]"), ("b", "n[1,3]")]
    opened = nodes.entries(whole, glyphs=UNICODE, opened={entry.key for entry in groups})
    assert [entry.name.split()[-1] for entry in opened[:6]] == ["nodes", "n1", "n2", "nodes", "n1", "n3"]
    assert opened[1].summary == "also b" and len({entry.key for entry in opened}) == len(opened)


def test_owner_and_action_stay_where_the_words_are_cut():
    whole = Fleet("0", "ssh", "", 0.0, (_caused("gpu-a3-017", "driver " * 40),))
    (row,) = nodes.rows(nodes.entries(whole, glyphs=UNICODE), 79, UNICODE)
    assert row.word == "FAIL ADMIN" and row.text.endswith("…; reboot the node")
    assert len(row.text) <= 79 - nodes.MARGIN - len("gpu-a3-017")


def test_silent_and_unseen_nodes_are_one_line_each():
    def unseen(host: str) -> Node:
        return _node(host, Problem("ib.state", "", Status.UNKNOWN, "no", reason="denied"))

    silent = (Node(f"s{number}", "silent", f"no answer in {number} s") for number in range(20))
    whole = Fleet("0", "ssh", "", 0.0, (*silent, *(unseen(f"u{number}") for number in range(20))))
    first, second = nodes.rows(nodes.entries(whole, glyphs=UNICODE), 100, UNICODE)
    assert (first.name, second.name) == ("► 20 nodes", "► 20 nodes")
    assert first.text.startswith("silent: no answer in 0 s (others alike)")
    assert second.text.startswith("1 check could not be judged: denied   u[0-19]")


def test_until_a_node_is_opened_there_is_none_to_see_or_save():
    shown = []

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("1")(app, pilot)
        shown.append(frame(app))
        for key in ("s", "R"):
            await press(key)(app, pilot)
            shown.extend(note.message for note in app._notifications)

    sit([Round(fleet())], act)
    assert "no node is looked at here" in shown[0] and "1970" not in shown[0]
    assert len(shown) == 3 and all("read from a file" in message for message in shown[1:])


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("is:fail", ["node gpu-017", "node gpu-020", "node gpu-021"]),
        ("is:fail mlx5", ["node gpu-020", "node gpu-021"]),
        ("is:fail !mlx5", ["node gpu-017"]),
        ("is:silent", ["node gpu-099"]),
        ("is:unkn", ["node gpu-099", "node gpu-100"]),
        ("is:odd", ["oddity driver"]),
        ("550.54", ["oddity driver"]),
        ("zzz", []),
    ],
)
def test_filters(typed: str, keys: list[str]):
    assert _keys(fleet(), needle=typed) == keys
    assert "nothing fits" in node_pages.page(fleet(), None)[0].text


def test_the_matrix_has_a_column_for_each_subject_at_every_width():
    links = [Problem("nvlink.links", f"gpu:{n}", Status.FAIL, "down") for n in range(2)]
    bad = [
        *links,
        Problem("nvlink.errors", "", Status.FAIL, "many"),
        Problem("ib.rate", "", Status.WARN, "s"),
    ]
    hidden = Problem("memory.ecc", "", Status.UNKNOWN, "no", reason="denied")
    hung = Problem("driver.mode", "", Status.UNKNOWN, "no", reason="stuck")
    whole = Fleet("0", "ssh", "", 0.0, (_node("gpu-1", *bad, hidden, hung), _node("gpu-2")))
    for width in (40, 79, 199):
        head = "".join(text for text, _ in matrix.heading(whole, width))
        for row in matrix.rows(whole, width, UNICODE):
            line = " " * 6 + "".join(text for text, _ in row.parts)
            assert width < 60 or len(line) <= width
            mark = line[max(head.find("NVL"), head.find("NVLink")) :].split()[0]
            assert len(row.parts) == 13 and mark == ("2F" if row.key == "node gpu-1" else ".")
    sick, well = (matrix.rows(whole, 79, UNICODE)[at].parts for at in range(2))
    assert [text.strip() for text, _ in sick[1:]] == ["1U", "", "-", "2F", "", "1W", *[""] * 6]
    assert [text.strip() for text, _ in well[1:]] == [".", "", "", ".", "", ".", *[""] * 6]
    told = [para.text for para in matrix.about(whole, "node gpu-1")]
    assert told == ["nvlink.links nvlink.errors", "driver.mode", "ib.rate", "memory.ecc", matrix.LETTERS]
    plugin = _node("gpu-3", Problem("rack.door", "", Status.WARN, "open"))
    assert matrix.columns(replace(whole, nodes=(plugin,)))[-1] == "Other"


def test_the_hardware_of_an_oddity_is_on_its_page():
    sick = fleet().nodes[16]
    usual = ValueGroup("18", ("gpu-1", "gpu-2", "gpu-3"))
    odd = ValueGroup("7 x 18, 1 x 16", (sick.host,))
    kind = " (8 x NVIDIA H100 80GB HBM3)"
    up = Oddity("up", f"NVLinks up{kind}", Status.WARN, "", "", (usual, odd), usual, (sick.host,))
    whole = Fleet("0", "ssh", "", 0.0, (sick,), (up,))
    first, second = nodes.entries(whole, glyphs=UNICODE)
    assert first.summary == "nvlink.links: GPU 3: 16 of 18 NVLinks up; down: 4, 11"
    assert second.summary == "NVLinks up: gpu-017 1 x 16; most 18"
    assert any("8 x NVIDIA H100" in para.text for para in node_pages.page(whole, second))


@pytest.mark.parametrize("odd", [Status.FAIL, Status.WARN])
@pytest.mark.parametrize("sick", [Status.FAIL, Status.UNKNOWN, Status.WARN])
def test_rows_are_in_order_of_severity_and_nodes_before_what_sets_them_apart(odd: Status, sick: Status):
    node = _node("gpu-2", Problem("driver.branch", "", sick, "another driver"))
    usual, other = ValueGroup("580", ("gpu-1", "gpu-3")), ValueGroup("570", ("gpu-2",))
    oddity = Oddity("driver", "NVIDIA driver", odd, "", "", (usual, other), usual, ("gpu-2",))
    whole = Fleet("0", "ssh", "", 0.0, (_node("gpu-1"), node, _node("gpu-3")), (oddity,))
    shown = nodes.entries(whole, glyphs=UNICODE)
    assert (shown[0].key == "oddity driver") is (Severity.of(odd) > Severity.of(sick))
    assert shown[-1].key == nodes.WELL and [entry.hosts for entry in shown[:2]] == ["gpu-2", "gpu-2"]
    flat = _keys(whole, folded=False)
    assert sorted(flat) == ["node gpu-1", "node gpu-2", "node gpu-3", "oddity driver"]
    assert (flat[0] == "oddity driver") is (Severity.of(odd) > Severity.of(sick))


@pytest.mark.parametrize(("size", "drawn"), [((80, 24), False), ((140, 40), True), ((200, 60), True)])
def test_the_matrix_is_below_the_page_where_all_of_it_is_in_view(size: tuple[int, int], drawn: bool):
    shown = []

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await pilot.pause()
        shown.append(frame(app))

    sit([Round(fleet())], act, size)
    assert (matrix.LETTERS in shown[0]) is drawn and "16 of 18 NVLinks up" in shown[0]


def test_nodes_come_in_one_by_one():
    shown = []

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        shown.append(frame(app))

    whole = fleet()
    part = replace(whole, nodes=whole.nodes[:100], oddities=())
    sit([Round(part, HOSTS[100:])], act)
    assert "waiting for gpu-[101-120]" in shown[0] and "100/120" in shown[0] and "RUN" in shown[0]


def test_names_are_copied_as_a_node_set():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("G", "k", "c", "G", "c", "m", "g", "j", "c")(app, pilot)

    app = sit([Round(fleet())], act)
    assert app.copied == ["gpu-120", "gpu-[001-016,018-019,022-098,101-119]", "gpu-[020-021]"]


def test_what_nodes_say_is_drawn_inert():
    evil = Node("gpu-1\x1b[2J", "unreadable", "[red]\x1b]0;owned\x07")
    shown = []

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        shown.append(frame(app))

    sit([Round(Fleet("0", "reports", "", 0.0, (evil,)))], act)
    assert "\\x1b" in shown[0] and "[red]" in shown[0] and "\x1b" not in shown[0]
