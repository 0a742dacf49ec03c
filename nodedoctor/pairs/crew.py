"""The nodes as their agents describe them, and which of them can be measured."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nodedoctor.json_shapes import Json, number, parts, text, texts, whole_number, words
from nodedoctor.pairs.agent_pool import AgentPool
from nodedoctor.record import record


@record
class CrewMember:
    """A node as its agent describes it.

    `why` says why it is not measured, `gpus` how many ranks of NCCL it can have. `rails` are its active RDMA
    ports, or its interfaces where TCP is measured on each, of the highest rate, which is `rail_gbps`;
    `addresses` are those of the interfaces, of which there are `interfaces` whatever is measured.
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
    addresses: tuple[str, ...] = ()
    interfaces: int = 0


async def gathered(crew: AgentPool, hosts: Sequence[str]) -> dict[str, CrewMember]:
    """Start the agents; every node as it describes itself."""
    toward = {
        host: [peer.rpartition("@")[2] for peer in (*hosts[place + 1 :], *hosts[:place])][:3]
        for place, host in enumerate(hosts)
    }
    await crew.start(hosts, toward)
    members: dict[str, CrewMember] = {}
    patience = crew.starting_s
    until = time.monotonic() + patience
    while len(members) < len(hosts) and (event := await crew.observe(until - time.monotonic())):
        host, message = event
        if host in members:
            continue
        if message is None:
            members[host] = CrewMember(host, why=crew.complaints.get(host) or "the connection ended")
        elif message.get("is_") == "unable":
            members[host] = CrewMember(host, why=text(message, "note") or "it did not say why")
        elif message.get("is_") == "ready":
            members[host] = _member(host, message)
    return {host: members.get(host, CrewMember(host, why=f"no answer in {patience:g} s")) for host in hosts}


def can_rdma(members: Iterable[CrewMember]) -> bool:
    """Whether all of these have RDMA rails, and as many as the others."""
    counts = {len(member.rails) for member in members}
    return len(counts) == 1 and counts != {0}


def with_equal_rails(members: Mapping[str, CrewMember]) -> dict[str, CrewMember]:
    """The members; one that has another number of rails than most is not measured, and says so."""
    counts = Counter(len(member.rails) for member in members.values() if not member.why)
    usual = max(counts, key=lambda rails: (counts[rails], rails), default=0)
    return {
        host: member
        if member.why or len(member.rails) == usual
        else replace(member, why=f"{len(member.rails)} rails that can be measured, others have {usual}")
        for host, member in members.items()
    }


def _member(host: str, message: Json) -> CrewMember:
    address = text(message, "address")
    rails = parts(message, "rails")
    return CrewMember(
        host,
        address,
        text(message, "interface"),
        number(message.get("link_gbps")),
        texts(message, "busy"),
        text(message, "unable") or ("" if address else "it has no address on the way to the other nodes"),
        whole_number(message, "gpus") or 0,
        tuple("/".join(filter(None, (text(rail, "device"), words(rail.get("port"))))) for rail in rails),
        number(rails[0].get("gbps")) if rails else None,
        tuple(text(rail, "address") for rail in rails),
        whole_number(message, "interfaces") or 0,
    )
