"""`make docs`: pictures of the real app on the recorded nodes that ship with it, as docs/*.svg."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

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
TRIAGE = DOCS.parent / "tests" / "frames" / "triage.json"
WIDE, SMALL = (140, 36), (80, 24)

start.prepare_environment()

from nodedoctor.tui.app import NodeDoctor  # noqa: E402
from nodedoctor.tui.lines.nodes import Round  # noqa: E402
from nodedoctor.tui.run_history import RunHistory  # noqa: E402
from nodedoctor.tui.state import Nothing  # noqa: E402


async def picture(name: str, demo: str, keys: list[str], size: tuple[int, int], **options: Any) -> None:
    """Open a recorded node, press some keys, keep what stands on the screen."""
    rounds = RunHistory(Session(Request(replay=DEMO / demo)))
    rounds.start()
    app = NodeDoctor(rounds, **options)
    async with app.run_test(size=size) as pilot:
        while app.state is None or app.state.running:
            await pilot.pause(0.05)
        if name == "compare":
            await app.show_comparison(HEALTHY)
        await pilot.press(*keys)
        await pilot.pause()
        app.clear_notifications()
        await pilot.pause()
        svg = app.export_screenshot(
            title=f"nodedoctor demo {demo}" if not options else "nodedoctor triage logs/"
        )
    await rounds.close()
    _keep(name, svg)


async def fleet_picture() -> None:
    """A rack of healthy nodes with one that has lost links, one of another driver, one that is silent."""
    healthy = json.dumps(HEALTHY)
    hosts = [f"gpu-a3-{number:03}" for number in range(1, 41)]
    answers = {host: healthy.replace("gpu-a3-016", host) for host in hosts}
    answers["gpu-a3-017"] = json.dumps(NVLINKS_DOWN)
    answers["gpu-a3-033"] = answers["gpu-a3-033"].replace("580.95.05", "570.158.01")
    nodes = [node(host, Observation(host, text=text)) for host, text in answers.items()]
    nodes.append(Node("gpu-a3-041", "silent", "no answer in 50 s"))
    fleet = Fleet(__version__, "slurm", "2026-11-14T09:11:00Z", 50.4, tuple(nodes), judge(nodes))

    async def rounds() -> AsyncIterator[Round]:
        yield Round(fleet)

    app = NodeDoctor(Nothing(), first="fleet", rounds=rounds())
    async with app.run_test(size=(140, 24)) as pilot:
        while app.round is None:
            await pilot.pause(0.05)
        await pilot.pause()
        _keep("fleet", app.export_screenshot(title="nodedoctor fleet --slurm"))


def _keep(name: str, svg: str) -> None:
    # No fonts from elsewhere: a picture in a README must not fetch anything.
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace(
        "Fira Code", "Fira Code, Menlo, Consolas, monospace"
    )
    (DOCS / f"{name}.svg").write_text(svg, encoding="utf-8")


HEALTHY, NVLINKS_DOWN = document_of(DEMO / "healthy"), document_of(DEMO / "nvlinks-down")


async def main() -> None:
    """Make all of them."""
    await picture("checks", "nvlinks-down", [], WIDE)
    await picture("checks-80x24", "raylet-1024-files", [], SMALL)
    await picture("topology", "nvlinks-down", ["2"], (140, 24))
    await picture("probes", "driver-mismatch", ["6", "j"], WIDE)
    await picture("compare", "nvlinks-down", [], (140, 24))
    triage = json.loads(TRIAGE.read_text(encoding="utf-8"))
    await picture("triage", "healthy", [], (140, 24), triage=triage)
    await fleet_picture()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
