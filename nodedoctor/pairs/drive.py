"""Take agents through the rounds of a plan, and keep what each pair gave; a hang is a result."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.json_shapes import number, part, text, whole_number
from nodedoctor.pairs.agent_pool import AgentPool
from nodedoctor.pairs.crew import CrewMember
from nodedoctor.pairs.culprits import fit
from nodedoctor.pairs.join import join_ends, join_rails
from nodedoctor.pairs.methods import METHODS
from nodedoctor.pairs.model import Fit, Measurement, Pair, Round
from nodedoctor.pairs.schedule import Plan, doubts, packed, ring, smallest_failing, tries_at_most
from nodedoctor.record import record

OPENING_S = 5.0
"""Seconds an agent may take to open its ports, or to answer at all."""
STREAMS = 4
"""TCP streams of a pair each way; one is often bound by a core or a window."""


@record
class Lane:
    """One connection of a pair: on one rail, or on the way from one node to the other."""

    flow: str
    rail: str
    addresses: tuple[str, str]
    devices: tuple[str, str]


@record
class Try:
    """One set of nodes that was tried together; `gbps` is the rate of its all-reduce, if there was one."""

    nodes: tuple[str, ...]
    failed: bool
    gbps: float | None = None


@record
class PlanOutcome:
    """Everything that was seen. `gone` are nodes that stopped answering, `smallest` what a bisection left."""

    members: tuple[CrewMember, ...]
    plan: Plan
    measured: tuple[Measurement, ...]
    gone: tuple[str, ...]
    fit: Fit
    rounds: int
    tries: tuple[Try, ...] = ()
    smallest: tuple[str, ...] = ()
    interrupted: bool = False
    note: str = ""

    @property
    def gpus(self) -> int:
        """GPUs of each measured node that take part in collectives; 0 for gloo on CPUs."""
        return min((member.gpus for member in self.members if member.host in self.plan.nodes), default=0)


class PlanRunner:
    """One run over agents that are ready."""

    def __init__(
        self,
        crew: AgentPool,
        members: Mapping[str, CrewMember],
        plan: Plan,
        groups: Mapping[str, str],
        size: int,
        stopped: asyncio.Event,
        may_fall_back: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._crew, self._members, self._plan = crew, members, plan
        self._groups, self._size, self._stopped, self._progress = groups, size, stopped, progress
        self._may_fall_back, self._note = may_fall_back, ""
        self._dead_rails: frozenset[str] = frozenset()
        self._measured: list[Measurement] = []
        self._gone: dict[str, None] = {}
        self._place = 0
        self._tries: list[Try] = []

    async def run(self) -> PlanOutcome:
        """All rounds, then those that settle doubts."""
        smallest: tuple[str, ...] = ()
        if self._plan.mode == "bisect":
            smallest = await self._bisect_nodes()
        else:
            for pairs in self._plan.rounds:
                await self._run_round(pairs)
                if self._rdma_fails() or self._some_rails_are_dead():
                    await self._run_round(pairs)
        spent = 0
        while True:
            fit_now, again = doubts(self._plan, self._measured, self._groups, self._gone, spent)
            if not again or self._stopped.is_set():
                break
            spent += len(again)
            for pairs in again:
                await self._run_round(pairs, f" (doubts {spent} of {self._plan.again} at most)")
        return PlanOutcome(
            tuple(self._members.values()),
            self._plan,
            tuple(self._measured),
            tuple(self._gone),
            fit_now,
            self._place,
            tuple(self._tries),
            smallest,
            self._stopped.is_set(),
            self._note,
        )

    def _rdma_fails(self) -> bool:
        """Whether RDMA gave nothing but errors in the first round; from then on TCP is measured."""
        if not self._may_fall_back or self._plan.what != "rdma":
            return False
        self._may_fall_back = False
        errors = [measurement for measurement in self._measured if measurement.fault == "error"]
        if not errors or len(errors) < len(self._measured):
            return False
        self._note = f"RDMA failed between all nodes, so TCP was measured: {errors[0].note}"
        self._plan = replace(self._plan, what="tcp")
        self._measured.clear()
        return True

    def _some_rails_are_dead(self) -> bool:
        """Whether some rails, not all, joined no nodes in the first round: from then on they are left out.

        Networks of rails often have no way between subnets: that says nothing about a node.
        """
        if self._plan.what != "rails" or self._place != 1 or len(self._measured) < 2:
            return False
        rails = {rail for measurement in self._measured for rail in measurement.rails}
        self._dead_rails = frozenset(
            rail for rail in rails if not any(measurement.rails.get(rail) for measurement in self._measured)
        )
        if self._dead_rails:
            names = ", ".join(sorted(self._dead_rails))
            self._note = f"no two nodes could connect on {names}: not measured"
            self._measured.clear()
        return bool(self._dead_rails)

    def _pair_lanes(self, pair: Pair) -> list[Lane]:
        """The connections that are measured between two nodes."""
        a, b = (self._members[name] for name in pair)
        if self._plan.what != "rails":
            return [Lane(" ".join(pair), "", (a.address, b.address), ("", ""))]
        return [
            Lane(" ".join((*pair, ours)), ours, (here, there), (ours, theirs))
            for ours, theirs, here, there in zip(a.rails, b.rails, a.addresses, b.addresses, strict=True)
            if ours not in self._dead_rails
        ]

    async def _bisect_nodes(self) -> tuple[str, ...]:
        """Halve the set of all nodes until the smallest that fails is left; () when none does."""
        nodes = self._plan.nodes
        if self._plan.what == "collective":  # what a good pair has is the measure of the whole
            for pairs in self._plan.rounds:
                await self._run_round(pairs)
        if not await self._set_fails(nodes):
            return ()
        search = smallest_failing(nodes)
        try:
            subset = next(search)
            while not self._stopped.is_set() and len(self._tries) < tries_at_most(len(nodes)):
                subset = search.send(await self._set_fails(subset))
        except StopIteration as end:
            return tuple(sorted(end.value))
        return ()

    async def _set_fails(self, nodes: tuple[str, ...]) -> bool:
        """Whether these nodes are not well together: in one all-reduce, else each with the next of a ring."""
        before = len(self._measured)
        failed = not self._gone.keys().isdisjoint(nodes)
        rate: float | None = None
        if not failed and self._plan.what == "collective":
            rate = await self._all_reduce(nodes)
            failed = rate is None
        elif not failed:
            for pairs in packed(ring(nodes)):
                await self._run_round(pairs)
        fit_now = fit(self._measured, self._groups, self._gone)
        slow = fit_now.slow_below * (fit_now.reference_gbps or 0.0)
        failed = failed or not self._gone.keys().isdisjoint(nodes) or (rate is not None and rate < slow)
        failed = failed or any(
            measurement.fault
            or (measurement.gbps or 0.0) < slow
            or (measurement.loss or 0.0) > fit_now.lossy_above
            for measurement in self._measured[before:]
        )
        self._tries.append(Try(nodes, failed, rate))
        return failed

    async def _all_reduce(self, nodes: tuple[str, ...]) -> float | None:
        """The rate of one collective over all of these; None when it does not come to an end."""
        self._place += 1
        self._progress(f"round {self._place}: an all-reduce over {len(nodes)} nodes")
        first, name = nodes[0], "all"
        self._crew.say(first, do="open", round=self._place, flows=[name])
        port = (await self._await_ports({first: [name]})).get(name)
        if port is None:
            return None
        shared = {
            "flow": name,
            "token": secrets.token_hex(16),
            "of": len(nodes),
            "gpus": min(self._members[node].gpus for node in nodes),
        }
        end: dict[str, Any] = {"to": [self._members[first].address, port]}
        flows = {
            node: [{**shared, "place": place, **(end if place else {"from": ""})}]
            for place, node in enumerate(nodes)
        }
        ends = (await self._collect_results(flows)).get(name, {})
        rates = [rate for answer in ends.values() if (rate := number(answer.get("gbps"))) is not None]
        return min(rates) if len(rates) == len(nodes) else None

    async def _run_round(self, pairs: Round, more: str = "") -> None:
        pairs = tuple(pair for pair in pairs if self._gone.keys().isdisjoint(pair))
        if not pairs or self._stopped.is_set():
            return
        self._place += 1
        self._progress(f"round {self._place} of {len(self._plan.rounds)}{more}: {len(pairs)} pairs")
        listening: dict[str, dict[str, list[str]]] = {}
        for pair in pairs:
            for lane in self._pair_lanes(pair):
                listening.setdefault(pair[0], {})[lane.flow] = [lane.addresses[0], lane.devices[0]]
        for host, flows in listening.items():
            self._crew.say(host, do="open", round=self._place, flows=list(flows), rails=flows)
        ports = await self._await_ports(listening)
        await self._load_pairs([pair for pair in pairs if self._gone.keys().isdisjoint(pair)], ports)

    async def _await_ports(self, listening: Mapping[str, Collection[str]]) -> dict[str, int]:
        ports: dict[str, int] = {}
        waiting = set(listening)
        until = time.monotonic() + OPENING_S
        while waiting and (event := await self._next_event(until)):
            host, message = event
            if message.get("is_") == "open" and message.get("round") == self._place:
                opened = part(message, "ports")
                ports.update(
                    {flow: port for flow in opened if (port := whole_number(opened, flow)) is not None}
                )
                waiting.discard(host)
            waiting -= self._gone.keys()
        if not self._stopped.is_set():
            self._gone.update(dict.fromkeys(sorted(waiting)))
        return ports

    async def _load_pairs(self, pairs: Sequence[Pair], ports: Mapping[str, int]) -> None:
        flows: dict[str, list[dict[str, Any]]] = {}
        lanes = {nodes: [lane for lane in self._pair_lanes(nodes) if lane.flow in ports] for nodes in pairs}
        for pair, lane in ((pair, lane) for pair, several in lanes.items() for lane in several):
            shared = {
                "flow": lane.flow,
                "token": secrets.token_hex(16),
                "streams": STREAMS,
                "gpus": min(self._members[name].gpus for name in pair),
                "of": 2,
            }
            a, b = lane.addresses
            flows.setdefault(pair[0], []).append({**shared, "place": 0, "from": b, "bound": a})
            dialling = {"place": 1, "to": [a, ports[lane.flow]], "bound": b, "device": lane.devices[1]}
            flows.setdefault(pair[1], []).append({**shared, **dialling})
        answers = await self._collect_results(flows)
        if not self._stopped.is_set():
            self._measured += [
                join_rails(
                    [
                        (lane.rail, join_ends(nodes, answers.get(lane.flow, {}), self._place))
                        for lane in several
                    ]
                )
                for nodes, several in lanes.items()
                if several
            ]

    async def _collect_results(
        self, flows: Mapping[str, list[dict[str, Any]]]
    ) -> dict[str, dict[str, dict[str, Any]]]:
        """Start what the nodes are to do, and what they say of it: by flow, then by node."""
        limit = self._plan.seconds + METHODS[self._plan.what].beyond_s
        for host, mine in flows.items():
            command: dict[str, Any] = {
                "what": self._plan.what,
                "seconds": self._plan.seconds,
                "size": self._size,
                "limit": limit,
                "flows": mine,
            }
            self._crew.say(host, do="go", round=self._place, **command)
        waiting = {(host, flow["flow"]) for host, mine in flows.items() for flow in mine}
        answers: dict[str, dict[str, dict[str, Any]]] = {}
        until = time.monotonic() + limit + 1
        while waiting and (event := await self._next_event(until)):
            host, answer = event
            if answer.get("is_") == "result" and answer.get("round") == self._place:
                answers.setdefault(text(answer, "flow"), {})[host] = answer
                waiting.discard((host, text(answer, "flow")))
            waiting = {entry for entry in waiting if entry[0] not in self._gone}
        if waiting and not self._stopped.is_set():
            await self._ping_hosts({host for host, _ in waiting})
        return answers

    async def _ping_hosts(self, hosts: set[str]) -> None:
        """A node that does not even answer this has stopped answering."""
        for host in hosts:
            self._crew.say(host, do="ping", round=self._place)
        until = time.monotonic() + OPENING_S
        while hosts and (event := await self._next_event(until)):
            hosts.discard(event[0])
        if not self._stopped.is_set():
            self._gone.update(dict.fromkeys(sorted(hosts)))

    async def _next_event(self, until: float) -> tuple[str, dict[str, Any]] | None:
        """What an agent says, until some time, or until somebody ends it all."""
        while not self._stopped.is_set() and (remaining := until - time.monotonic()) > 0:
            event = await self._crew.observe(min(remaining, 0.2))
            if event is None:
                continue
            host, message = event
            if message is None:
                self._gone[host] = None
                return host, {}
            return host, message
        return None
