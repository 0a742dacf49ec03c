"""Begins with probes while the checks that ask for them, and what waits for answers, are still being loaded.

Loading takes a third of a fast run, in which a second core would have little to do. Only what is asked in any
case is begun: probes of checks that are selected, which depend on nothing but the options, and of each lane
no more than are asked at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nodedoctor.children.fork_server import ForkServer
from nodedoctor.declare.registry import Check, Command, Lane, Options, Probe, probes_of
from nodedoctor.engine.calls import call_planner
from nodedoctor.engine.lanes import WIDTH

_LANES = (Lane.CPU, Lane.FS)
"""What loads nothing and asks no driver."""


class Prefetcher:
    """Is shown the checks as they are loaded, once all of our probes are known."""

    def __init__(self, server: ForkServer, options: Options, chosen: Callable[[Check], bool]) -> None:
        self._server = server
        self._options = options
        self._chosen = chosen
        self._wanted: dict[str, Probe] = {}
        self._begun: dict[str, Lane] = {}

    def on_check_loaded(self, check: Check, probes: Mapping[str, Probe]) -> None:
        """A check has been loaded: begin with what it asks for that other probes wait for, too."""
        if not self._chosen(check):
            return
        heads = {before for probe in probes.values() for before in probe.after}
        for name in sorted(probes_of(check) - self._wanted.keys()):
            probe = probes.get(name)
            if probe is not None and probe.plan and probe.lane in _LANES and not probe.after:
                self._wanted[name] = probe
                if name in heads:
                    self._begin(probe)

    def start_rest(self) -> None:
        """All checks are loaded: begin with the others that they ask for."""
        for probe in self._wanted.values():
            self._begin(probe)

    def _begin(self, probe: Probe) -> None:
        if probe.name in self._begun or list(self._begun.values()).count(probe.lane) >= WIDTH[probe.lane]:
            return
        self._begun[probe.name] = probe.lane
        plan = call_planner(probe, self._options, ())
        if isinstance(plan, Command):
            self._server.ahead(plan)
