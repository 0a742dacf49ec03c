"""Take agents through the rounds of a plan, and keep what each pair gave; a hang is a result."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.json_shapes import Json, number, part, parts, text, texts, whole_number, words
from nodedoctor.pairs.agent_pool import STARTING_S, AgentPool
from nodedoctor.pairs.fit import fit
from nodedoctor.pairs.model import Fault, Fit, Measurement, Pair, Round, What
from nodedoctor.pairs.schedule import Plan, doubts, packed, ring, smallest_failing, tries_at_most
from nodedoctor.record import record

OPENING_S = 5.0
"""Seconds an agent may take to open its ports, or to answer at all."""
BEYOND_S: Mapping[What, float] = {"tcp": 8.0, "rdma": 16.0, "collective": 30.0}
"""Seconds of a round beyond the load after which its pairs are hung: connecting may take four, servers of
perftest five in each of two halves, and eight ranks of NCCL twenty to find each other (ours)."""
STREAMS = 4
"""TCP streams of a pair each way; one is often bound by a core or a window."""


@record
class CrewMember:
    """A node as its agent describes it.

    `why` says why it is not measured, `gpus` how many ranks of NCCL it can have, `rails` are its active RDMA
    ports of the highest rate, which is `rail_gbps`.
    """

    host: str
    address: str = ""
    interface: str = ""
    link_gbps: float | None = None
    busy: tuple[str, ...] = ()
    why: str = ""
    gpus: int = 0
    rails: tuple[str, ...] = ()
    rail_gbps: float | None = None


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
    fell_back: str = ""

    @property
    def gpus(self) -> int:
        """GPUs of each measured node that take part in collectives; 0 for gloo on CPUs."""
        return min((one.gpus for one in self.members if one.host in self.plan.nodes), default=0)


async def gathered(crew: AgentPool, hosts: Sequence[str]) -> dict[str, CrewMember]:
    """Start the agents; every node as it describes itself."""
    toward = {
        host: [_plain(other) for other in (*hosts[place + 1 :], *hosts[:place])][:3]
        for place, host in enumerate(hosts)
    }
    await crew.start(hosts, toward)
    members: dict[str, CrewMember] = {}
    patience = STARTING_S[crew.what]
    until = time.monotonic() + patience
    while len(members) < len(hosts) and (heard := await crew.observe(until - time.monotonic())):
        host, told = heard
        if host in members:
            continue
        if told is None:
            members[host] = CrewMember(host, why=crew.complaints.get(host) or "the connection ended")
        elif told.get("is_") == "unable":
            members[host] = CrewMember(host, why=text(told, "note") or "it did not say why")
        elif told.get("is_") == "ready":
            members[host] = _member(host, told)
    return {host: members.get(host, CrewMember(host, why=f"no answer in {patience:g} s")) for host in hosts}


def can_rdma(members: Iterable[CrewMember]) -> bool:
    """Whether all of these have RDMA rails, and as many as the others."""
    counts = {len(member.rails) for member in members}
    return len(counts) == 1 and counts != {0}


class PlanRunner:
    """One run over agents that are ready."""

    def __init__(
        self,
        crew: AgentPool,
        members: Mapping[str, CrewMember],
        planned: Plan,
        groups: Mapping[str, str],
        size: int,
        stopped: asyncio.Event,
        may_fall_back: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._crew, self._members, self._plan = crew, members, planned
        self._groups, self._size, self._stopped, self._progress = groups, size, stopped, progress
        self._may_fall_back, self._fell_back = may_fall_back, ""
        self._measured: list[Measurement] = []
        self._gone: dict[str, None] = {}
        self._place = 0
        self._tries: list[Try] = []

    async def run(self) -> PlanOutcome:
        """All rounds, then those that settle doubts."""
        smallest: tuple[str, ...] = ()
        if self._plan.mode == "bisect":
            smallest = await self._bisect()
        else:
            for each in self._plan.rounds:
                await self._round(each)
                if self._may_fall_back and self._plan.what == "rdma" and self._unable():
                    await self._round(each)
        spent = 0
        while True:
            seen, again = doubts(self._plan, self._measured, self._groups, self._gone, spent)
            if not again or self._stopped.is_set():
                break
            spent += len(again)
            for each in again:
                await self._round(each, f" (doubts {spent} of {self._plan.again} at most)")
        return PlanOutcome(
            tuple(self._members.values()),
            self._plan,
            tuple(self._measured),
            tuple(self._gone),
            seen,
            self._place,
            tuple(self._tries),
            smallest,
            self._stopped.is_set(),
            self._fell_back,
        )

    def _unable(self) -> bool:
        """Whether RDMA gave nothing but errors in the first round; from then on TCP is measured."""
        self._may_fall_back = False
        errors = [one for one in self._measured if one.fault == "error"]
        if not errors or len(errors) < len(self._measured):
            return False
        self._fell_back = f"RDMA failed between all nodes, so TCP was measured: {errors[0].note}"
        self._plan = replace(self._plan, what="tcp")
        self._measured.clear()
        return True

    async def _bisect(self) -> tuple[str, ...]:
        """Halve the set of all nodes until the smallest that fails is left; () when none does."""
        nodes = self._plan.nodes
        if self._plan.what == "collective":  # what a good pair has is the measure of the whole
            for each in self._plan.rounds:
                await self._round(each)
        if not await self._fails(nodes):
            return ()
        search = smallest_failing(nodes)
        try:
            asked = next(search)
            while not self._stopped.is_set() and len(self._tries) < tries_at_most(len(nodes)):
                asked = search.send(await self._fails(asked))
        except StopIteration as end:
            return tuple(sorted(end.value))
        return ()

    async def _fails(self, nodes: tuple[str, ...]) -> bool:
        """Whether these nodes are not well together: in one all-reduce, else each with the next of a ring."""
        before = len(self._measured)
        failed = not self._gone.keys().isdisjoint(nodes)
        rate: float | None = None
        if not failed and self._plan.what == "collective":
            rate = await self._all_reduce(nodes)
            failed = rate is None
        elif not failed:
            for each in packed(ring(nodes)):
                await self._round(each)
        seen = fit(self._measured, self._groups, self._gone)
        slow = seen.slow_below * (seen.reference_gbps or 0.0)
        failed = failed or not self._gone.keys().isdisjoint(nodes) or (rate is not None and rate < slow)
        failed = failed or any(
            one.fault or (one.gbps or 0.0) < slow or (one.loss or 0.0) > seen.lossy_above
            for one in self._measured[before:]
        )
        self._tries.append(Try(nodes, failed, rate))
        return failed

    async def _all_reduce(self, nodes: tuple[str, ...]) -> float | None:
        """The rate of one collective over all of these; None when it does not come to an end."""
        self._place += 1
        self._progress(f"round {self._place}: an all-reduce over {len(nodes)} nodes")
        first, name = nodes[0], "all"
        self._crew.say(first, do="open", round=self._place, flows=[name])
        port = (await self._ports({first: [name]})).get(name)
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
        ends = (await self._results(flows)).get(name, {})
        rates = [rate for told in ends.values() if (rate := number(told.get("gbps"))) is not None]
        return min(rates) if len(rates) == len(nodes) else None

    async def _round(self, pairs: Round, more: str = "") -> None:
        pairs = tuple(one for one in pairs if self._gone.keys().isdisjoint(one))
        if not pairs or self._stopped.is_set():
            return
        self._place += 1
        self._progress(f"round {self._place} of {len(self._plan.rounds)}{more}: {len(pairs)} pairs")
        tokens = {one: secrets.token_hex(16) for one in pairs}
        listening: dict[str, list[str]] = {}
        for one in pairs:
            listening.setdefault(one[0], []).append(_flow(one))
        for host, flows in listening.items():
            self._crew.say(host, do="open", round=self._place, flows=flows)
        ports = await self._ports(listening)
        ready = [one for one in pairs if _flow(one) in ports and self._gone.keys().isdisjoint(one)]
        await self._load(ready, ports, tokens)

    async def _ports(self, listening: Mapping[str, list[str]]) -> dict[str, int]:
        ports: dict[str, int] = {}
        waiting = set(listening)
        until = time.monotonic() + OPENING_S
        while waiting and (heard := await self._hear(until)):
            host, told = heard
            if told.get("is_") == "open" and told.get("round") == self._place:
                opened = part(told, "ports")
                ports.update(
                    {flow: port for flow in opened if (port := whole_number(opened, flow)) is not None}
                )
                waiting.discard(host)
            waiting -= self._gone.keys()
        if not self._stopped.is_set():
            self._gone.update(dict.fromkeys(sorted(waiting)))
        return ports

    async def _load(
        self, pairs: Sequence[Pair], ports: Mapping[str, int], tokens: Mapping[Pair, str]
    ) -> None:
        flows: dict[str, list[dict[str, Any]]] = {}
        for one in pairs:
            a, b = one
            gpus = min(self._members[name].gpus for name in one)
            shared = {"flow": _flow(one), "token": tokens[one], "streams": STREAMS, "gpus": gpus, "of": 2}
            flows.setdefault(a, []).append({**shared, "place": 0, "from": self._members[b].address})
            place = [self._members[a].address, ports[_flow(one)]]
            flows.setdefault(b, []).append({**shared, "place": 1, "to": place})
        found = await self._results(flows)
        if not self._stopped.is_set():
            self._measured += [_join_ends(one, found.get(_flow(one), {}), self._place) for one in pairs]

    async def _results(
        self, flows: Mapping[str, list[dict[str, Any]]]
    ) -> dict[str, dict[str, dict[str, Any]]]:
        """Start what the nodes are to do, and what they say of it: by flow, then by node."""
        limit = self._plan.seconds + BEYOND_S[self._plan.what]
        for host, mine in flows.items():
            told: dict[str, Any] = {
                "what": self._plan.what,
                "seconds": self._plan.seconds,
                "size": self._size,
                "limit": limit,
                "flows": mine,
            }
            self._crew.say(host, do="go", round=self._place, **told)
        waiting = {(host, flow["flow"]) for host, mine in flows.items() for flow in mine}
        found: dict[str, dict[str, dict[str, Any]]] = {}
        until = time.monotonic() + limit + 1
        while waiting and (heard := await self._hear(until)):
            host, answer = heard
            if answer.get("is_") == "result" and answer.get("round") == self._place:
                found.setdefault(text(answer, "flow"), {})[host] = answer
                waiting.discard((host, text(answer, "flow")))
            waiting = {one for one in waiting if one[0] not in self._gone}
        if waiting and not self._stopped.is_set():
            await self._ping({host for host, _ in waiting})
        return found

    async def _ping(self, hosts: set[str]) -> None:
        """Whoever does not even answer this has stopped answering."""
        for host in hosts:
            self._crew.say(host, do="ping", round=self._place)
        until = time.monotonic() + OPENING_S
        while hosts and (heard := await self._hear(until)):
            hosts.discard(heard[0])
        if not self._stopped.is_set():
            self._gone.update(dict.fromkeys(sorted(hosts)))

    async def _hear(self, until: float) -> tuple[str, dict[str, Any]] | None:
        """What an agent says, until some time, or until somebody ends it all."""
        while not self._stopped.is_set() and (left := until - time.monotonic()) > 0:
            heard = await self._crew.observe(min(left, 0.2))
            if heard is None:
                continue
            host, told = heard
            if told is None:
                self._gone[host] = None
                return host, {}
            return host, told
        return None


def _join_ends(one: Pair, found: Mapping[str, Mapping[str, Any]], place: int) -> Measurement:
    """What both ends say, as one measurement."""
    ends = [found[name] for name in one if name in found]
    faults = [said for end in ends if (said := text(end, "fault"))]
    told: list[Fault] = [
        fault for fault in ("corrupt", "refused", "filtered", "hang", "error") if fault in faults
    ]
    fault = told[0] if told else "hang" if len(ends) < 2 or faults else None
    notes = [note for end in ends if (note := text(end, "note"))]
    rates = [rate for end in ends if (rate := number(end.get("gbps"))) is not None]
    losses = [
        again / segments
        for end in ends
        if (segments := whole_number(end, "segments")) and (again := whole_number(end, "again")) is not None
    ]
    trips = [trip for end in ends if (trip := number(end.get("rtt_us"))) is not None]
    return Measurement(
        one,
        round(min(rates), 4) if len(rates) == 2 else None,
        fault,
        round(max(losses), 6) if losses else None,
        min(trips) if trips else None,
        place,
        "; ".join(dict.fromkeys(notes))[:200],
        _rails(ends),
    )


def _rails(ends: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The lesser rate of each rail: each end says how fast it wrote."""
    rails: dict[str, float] = {}
    for end in ends:
        said = part(end, "rails")
        for name in said:
            if (rate := number(said[name])) is not None:
                rails[name] = min(rate, rails.get(name, rate))
    return rails


def _flow(one: Pair) -> str:
    return f"{one[0]} {one[1]}"


def _plain(host: str) -> str:
    """A host's name without the user that ssh is to be."""
    return host.rpartition("@")[2]


def _member(host: str, told: Json) -> CrewMember:
    address = text(told, "address")
    rails = parts(told, "rails")
    return CrewMember(
        host,
        address,
        text(told, "interface"),
        number(told.get("link_gbps")),
        texts(told, "busy"),
        text(told, "unable") or ("" if address else "it has no address on the way to the other nodes"),
        whole_number(told, "gpus") or 0,
        tuple(f"{text(rail, 'device')}/{words(rail.get('port'))}" for rail in rails),
        number(rails[0].get("gbps")) if rails else None,
    )
