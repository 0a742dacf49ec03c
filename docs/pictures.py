"""`make docs`: pictures of the real app on recorded nodes, each for a dark and a light page.

`docs/pictures.py FOLDER` writes `NAME-dark.svg` and `NAME-light.svg`. The README's are in docs/.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from nodedoctor import __version__
from nodedoctor.cli.compare import document_of
from nodedoctor.engine.session import Request, Session
from nodedoctor.fleet.compare.outliers import judge
from nodedoctor.fleet.model import Fleet, Node
from nodedoctor.fleet.reports.reading import node
from nodedoctor.model import Observation
from nodedoctor.tui import start

DOCS = Path(__file__).parent
DEMO = DOCS.parent / "nodedoctor" / "demo"
LOGS = "sleeping-rank"
"""Logs in docs/examples of 64 ranks of torch that ran, one of which slept (sleeping_rank.py beside them)."""
README = ("checks", "triage", "fleet")
"""Pictures that the README shows."""
WIDE, SMALL = (140, 36), (140, 24)


def theme(colours: str) -> TerminalTheme:
    """A terminal's colours as in CSS: background, foreground, black to white, and the same eight bright."""
    ground, ink, *sixteen = (tuple(bytes.fromhex(word)) for word in colours.split())
    return TerminalTheme(ground, ink, sixteen[:8], sixteen[8:])


# The app draws with the terminal's sixteen colours alone, so that a theme is all that a page needs.
DARK = theme(
    "0d1117 e6edf3 "
    "484f58 ff7b72 3fb950 d29922 58a6ff bc8cff 39c5cf b1bac4 "
    "6e7681 ffa198 56d364 e3b341 79c0ff d2a8ff 56d4dd ffffff",
)
LIGHT = theme(
    "ffffff 1f2328 "
    "24292f cf222e 116329 7a4e00 0969da 8250df 1b7c83 57606a "
    "57606a a40e26 1a7f37 633c01 218bff a475f9 3192aa 24292f",
)

start.prepare_environment()

from nodedoctor.tui.app import NodeDoctor  # noqa: E402
from nodedoctor.tui.lines.nodes import Round  # noqa: E402
from nodedoctor.tui.run_history import RunHistory  # noqa: E402
from nodedoctor.tui.state import Nothing  # noqa: E402

Pictures = dict[str, str]


def drawn(app: NodeDoctor, name: str, title: str) -> Pictures:
    """What is on the screen, by the name of its file."""
    width, height = app.size
    console = Console(
        width=width,
        height=height,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        record=True,
        safe_box=False,
    )
    console.print(app.screen._compositor.render_update(full=True, screen_stack=app._background_screens))
    themes = (("dark", DARK), ("light", LIGHT))
    return {
        f"{name}-{kind}.svg": _local(
            console.export_svg(title=title, theme=theme, clear=False, unique_id=name)
        )
        for kind, theme in themes
    }


def _local(svg: str) -> str:
    """Without fonts from elsewhere: a picture must not fetch anything."""
    return re.sub(r"@font-face\s*{[^}]*}", "", svg).replace(
        "Fira Code", "Fira Code, Menlo, Consolas, monospace"
    )


async def of_node(name: str, demo: str, keys: list[str], size: tuple[int, int]) -> Pictures:
    """A recorded node after some keys."""
    rounds = RunHistory(Session(Request(replay=DEMO / demo)))
    rounds.start()
    app = NodeDoctor(rounds)
    async with app.run_test(size=size) as pilot:
        while app.state is None or app.state.running:
            await pilot.pause(0.05)
        await pilot.press(*keys)
        await pilot.pause()
        app.clear_notifications()
        await pilot.pause()
        made = drawn(app, name, f"nodedoctor demo {demo}")
    await rounds.close()
    return made


async def of_triage(size: tuple[int, int] = WIDE) -> Pictures:
    """The logs of a job that hung, on a machine that was not part of it."""
    words = ("triage", "--no-node", "--json", LOGS)
    done = subprocess.run(
        [sys.executable, "-m", "nodedoctor", *words], cwd=DOCS / "examples", capture_output=True, check=False
    )
    app = NodeDoctor(Nothing(), first="triage", triage=json.loads(done.stdout))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        return drawn(app, "triage", f"nodedoctor triage {LOGS}/")


async def of_fleet() -> Pictures:
    """A rack of healthy nodes with one that has lost links, one of another driver, one that is silent."""
    hosts = [f"gpu-a3-{number:03}" for number in range(1, 41)]
    answers = {host: HEALTHY.replace("gpu-a3-016", host) for host in hosts}
    answers["gpu-a3-017"] = NVLINKS_DOWN
    answers["gpu-a3-033"] = answers["gpu-a3-033"].replace("580.95.05", "570.158.01")
    nodes = [node(host, Observation(host, text=text)) for host, text in answers.items()]
    nodes.append(Node("gpu-a3-041", "silent", "no answer in 50 s"))
    fleet = Fleet(__version__, "slurm", "2026-11-14T09:11:00Z", 50.4, tuple(nodes), judge(nodes))

    async def rounds() -> AsyncIterator[Round]:
        yield Round(fleet)

    app = NodeDoctor(Nothing(), first="fleet", rounds=rounds())
    async with app.run_test(size=SMALL) as pilot:
        while app.round is None:
            await pilot.pause(0.05)
        await pilot.pause()
        return drawn(app, "fleet", "nodedoctor fleet --slurm")


HEALTHY, NVLINKS_DOWN = (json.dumps(document_of(DEMO / name)) for name in ("healthy", "nvlinks-down"))


async def pictures() -> list[Pictures]:
    """All of them."""
    return [
        await of_node("checks", "nvlinks-down", [], WIDE),
        await of_node("topology", "nvlinks-down", ["2"], SMALL),
        await of_triage(),
        await of_fleet(),
    ]


def targets(folder: Path, name: str) -> Iterator[Path]:
    """Where a picture goes: to the pages, and beside the README what it shows."""
    yield folder / name
    if name.startswith(README):
        yield DOCS / name


def main(folder: Path) -> None:
    """Write every picture."""
    folder.mkdir(parents=True, exist_ok=True)
    for made in asyncio.run(pictures()):
        for name, svg in made.items():
            for target in targets(folder, name):
                target.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
