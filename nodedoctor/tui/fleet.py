"""`nodedoctor fleet` on a terminal: nodes appear as they answer, and leaving early ends the asking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from nodedoctor import __version__
from nodedoctor.cli.console import mutter
from nodedoctor.fleet.document import document, fleet_of
from nodedoctor.fleet.gather import Gathered, GatherState, Transport, gather
from nodedoctor.fleet.model import Fleet, FleetError, FleetRequest
from nodedoctor.report.inert import inert
from nodedoctor.tui import start
from nodedoctor.tui.lines.nodes import Round
from nodedoctor.tui.state import Nothing


def show(transport: Transport, request: FleetRequest, *, peers: bool = False, save: str = "") -> Gathered:
    """Ask the nodes while a person looks on; FleetError when they cannot be asked at all."""
    app_class = start.load_app()
    asking = Asking(transport, request, peers, save)

    async def sit() -> Gathered:
        app = app_class(Nothing(), ascii=not start.speaks_utf8(), first="fleet", rounds=asking.rounds())
        try:
            await start.run_app(app)
        finally:
            gathered = await asking.finish()
        code = start.code_of(app) or 0
        if code == start.BUG:
            raise SystemExit(code)
        if app.refused:
            raise FleetError(app.refused)
        mutter("".join(f"{line}\n" for line in (_last_word(gathered.fleet), *start.copied(app.copied))))
        return Gathered(gathered.fleet, max(0, code - 128))

    return asyncio.run(sit())


class Asking:
    """A fleet under way."""

    def __init__(self, transport: Transport, request: FleetRequest, peers: bool, save: str) -> None:
        self._transport, self._request, self._peers, self._save = transport, request, peers, save
        self._task: asyncio.Task[Gathered] | None = None
        self._stopped = asyncio.Event()

    async def rounds(self) -> AsyncIterator[Round]:
        """The nodes so far, whenever that changed; at last the fleet, judged. FleetError as of `gather`."""
        states: asyncio.Queue[GatherState] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._task = asyncio.create_task(
            gather(
                self._transport,
                self._request,
                peers=self._peers,
                save=self._save,
                progress=states.put_nowait,
                stopped=self._stopped,
            )
        )
        while not self._task.done():
            getting = asyncio.create_task(states.get())
            await asyncio.wait({getting, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                break
            state = getting.result()
            fleet = Fleet(__version__, self._transport.name, "", loop.time() - began, state.nodes)
            yield Round(fleet, state.waiting)
        final = (await asyncio.shield(self._task)).fleet
        yield Round(fleet_of(document(final)))

    async def finish(self) -> Gathered:
        """End the asking; what had not answered is silent."""
        self._stopped.set()
        if self._task is None:
            return Gathered(Fleet(__version__, self._transport.name, "", 0.0, ()))
        return await self._task


def _last_word(fleet: Fleet) -> str:
    """What stays on the terminal."""
    from nodedoctor.fleet.text import tally

    return inert(f"{fleet.verdict.word}  {tally(fleet)}")
