"""The real app on recorded nodes, driven by keys, and its screen as a grid of text."""

from __future__ import annotations

import asyncio
import html
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from nodedoctor.engine.session import Request, Session
from nodedoctor.tui import start

FRAMES = Path(__file__).parents[1] / "frames"
UPDATE = "NODEDOCTOR_UPDATE_FRAMES"
"""Set this variable to write the golden frames anew; then read the diff."""

start.prepare_environment()

from textual import events  # noqa: E402
from textual.app import App  # noqa: E402
from textual.keys import _character_to_key  # noqa: E402
from textual.pilot import Pilot  # noqa: E402

from nodedoctor.tui.app import NodeDoctor  # noqa: E402
from nodedoctor.tui.run_history import RunHistory  # noqa: E402

Act = Callable[[NodeDoctor, Pilot[None]], Awaitable[None]]


def rack(tmp_path: Path, *words: str, node: Path | None = None, **more: Any) -> Session:
    """The made-up rack as it was recorded, or another recording judged by the rack's checks."""
    words = words or ("rack",)
    return Session(Request(words, folders=(checks(tmp_path),), replay=node or FRAMES / "node", **more))


def hung(tmp_path: Path) -> Session:
    """This machine, asked eight questions that it never answers."""
    return Session(Request(("hung",), folders=(checks(tmp_path),)))


def checks(tmp_path: Path) -> Path:
    """A copy of the check files that belongs to us: as root, nothing else is loaded."""
    folder = tmp_path / "checks"
    if not folder.exists():
        shutil.copytree(FRAMES / "checks", folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def drive(
    session: Session,
    act: Act,
    size: tuple[int, int] = (80, 24),
    *,
    asking: int = 0,
    messages: bool = False,
    **options: Any,
) -> NodeDoctor:
    """Open the app, wait until all has come in (or until so many probes are hanging), act, leave.

    Textual's tests do not draw messages unless asked to.
    """

    async def run() -> NodeDoctor:
        rounds = RunHistory(session)
        rounds.start()
        app = NodeDoctor(rounds, **options)
        async with app.run_test(size=size, notifications=messages) as pilot:
            await settled(app, pilot, asking=asking)
            await act(app, pilot)
        await rounds.close()
        return app

    return asyncio.run(run())


async def settled(app: NodeDoctor, pilot: Pilot[None], *, asking: int = 0) -> None:
    """Wait until every answer is on the screen; with `asking`, until so many probes are under way."""

    def here() -> bool:
        if app.state is None:
            return False
        return len(app.state.asking) >= asking if asking else not app.state.running

    await until(pilot, here)
    for _ in range(3):
        await pilot.pause()


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    """Wait for something to come true; a minute is for slow machines."""
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends, frame(pilot.app)
        await pilot.pause(0.02)
    await pilot.pause()


def press(*keys: str) -> Act:
    """An act that presses keys, one after the other; longer words are names like enter, others are typed."""

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        for key in keys:
            character = key if len(key) == 1 else CHARACTERS.get(key)
            app.post_message(events.Key(_character_to_key(key) if len(key) == 1 else key, character))
            await pilot.pause(0)
            await pilot.pause(0)
        await pilot.pause()

    return act


CHARACTERS = {"slash": "/", "colon": ":", "question_mark": "?", "exclamation_mark": "!"}


def frame(app: App[None]) -> str:
    """What stands on the screen, from the picture that Textual itself makes of it."""
    rows: dict[int, dict[int, str]] = {}
    svg = app.export_screenshot()
    for x, line, text in re.findall(r'<text [^>]*?x="([\d.]+)"[^>]*?-line-(\d+)\)">(.*?)</text>', svg):
        rows.setdefault(int(line), {})[round(float(x) / 12.2)] = html.unescape(text).replace("\xa0", " ")
    width, height = app.size
    return "\n".join(_joined(rows.get(line, {}), width) for line in range(height)) + "\n"


def after(session: Session, keys: Sequence[str], size: tuple[int, int] = (80, 24), **options: Any) -> str:
    """The screen after some keys."""
    frames = []

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press(*keys)(app, pilot)
        await pilot.pause()
        frames.append(frame(app))

    drive(session, act, size, **options)
    return frames[0]


def check_frames(session: Session, size: tuple[int, int], *stations: tuple[str, str]) -> None:
    """Hold the screen to a golden frame after each station's keys, all in one sitting."""

    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        for name, keys in stations:
            await press(*keys.split())(app, pilot)
            for _ in range(50):  # a busy machine draws a new screen in several steps
                await pilot.pause()
                if frame(app) == golden(name):
                    break
            check_frame(name, frame(app))

    drive(session, act, size)


def check_frame(name: str, shown: str) -> None:
    """Compare with the golden frame of that name, or write it when asked to."""
    if os.environ.get(UPDATE):
        (FRAMES / f"{name}.txt").write_text(shown, encoding="utf-8")
    assert shown == golden(name), f"{FRAMES / name}.txt; {UPDATE}=1 writes it anew"


def golden(name: str) -> str | None:
    """The golden frame of that name; None when there is none yet."""
    path = FRAMES / f"{name}.txt"
    return path.read_text(encoding="utf-8") if path.exists() else None


def _joined(pieces: dict[int, str], width: int) -> str:
    line = ""
    for column, text in sorted(pieces.items()):
        line = line.ljust(column) + text
    return line[:width].rstrip()
