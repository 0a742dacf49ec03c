"""`make docs`: pictures of the real app on the recorded nodes that ship with it, as docs/*.svg."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from nodedoctor.compare import document_of
from nodedoctor.session import Request, Session
from nodedoctor.tui import start

DOCS = Path(__file__).parent
DEMO = DOCS.parent / "nodedoctor" / "demo"
TRIAGE = DOCS.parent / "tests" / "frames" / "triage.json"
WIDE, SMALL = (140, 36), (80, 24)

start.prepare_environment()

from nodedoctor.tui.app import NodeDoctor  # noqa: E402
from nodedoctor.tui.rounds import Rounds  # noqa: E402


async def picture(name: str, node: str, keys: list[str], size: tuple[int, int], **options: Any) -> None:
    """Open a recorded node, press some keys, keep what stands on the screen."""
    rounds = Rounds(Session(Request(replay=DEMO / node)))
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
            title=f"nodedoctor demo {node}" if not options else "nodedoctor triage logs/"
        )
    await rounds.close()
    # No fonts from elsewhere: a picture in a README must not fetch anything.
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace(
        "Fira Code", "Fira Code, Menlo, Consolas, monospace"
    )
    (DOCS / f"{name}.svg").write_text(svg, encoding="utf-8")


HEALTHY = document_of(DEMO / "healthy")


async def main() -> None:
    """Make all of them."""
    await picture("checks", "nvlinks-down", ["j"], WIDE)
    await picture("checks-80x24", "raylet-1024-files", [], SMALL)
    await picture("topology", "nvlinks-down", ["2", "j", "j", "j"], (140, 24))
    await picture("probes", "driver-mismatch", ["6", "j"], WIDE)
    await picture("compare", "nvlinks-down", [], (140, 24))
    triage = json.loads(TRIAGE.read_text(encoding="utf-8"))
    await picture("triage", "healthy", ["j", "j", "j", "j", "j", "j", "j", "j"], (140, 24), triage=triage)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
